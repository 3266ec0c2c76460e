"""Classifies an answer, or an error by status and type, as the outcome that the lane learns from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from fairlane.config.connections.connection import Connection
from fairlane.export.finish_reasons import REFUSAL, openai_reason
from fairlane.model.hints import Hints
from fairlane.model.outcome import (
    AccessDenied,
    FlawedAnswer,
    InvalidResponse,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
    TimedOut,
)
from fairlane_workers.providers.answers.answer import Answer
from fairlane_workers.providers.errors.content import rejects_content
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.errors.error_class import (
    ErrorClass,
    class_of,
    configured_class,
    meant_status,
    remedy_of_redirect,
)
from fairlane_workers.providers.errors.rate_limit_names import TOO_MANY_REQUESTS, is_used_up, limits_growth
from fairlane_workers.providers.errors.retry_after import (
    provider_now_ms,
    retry_after_ms,
    stated_date_ms,
    wait_in_words_ms,
)
from fairlane_workers.providers.errors.server_state import is_doubtful, is_of_proxy
from fairlane_workers.providers.errors.spent import affordable_tokens, is_spent
from fairlane_workers.providers.errors.wording import bounded, scrubbed, without_runs
from fairlane_workers.providers.limits.prose import is_beyond_limit, is_too_long_for_plan
from fairlane_workers.providers.limits.reading import (
    asked_wait_ms,
    read_limits,
    read_refusal,
    wait_of_success_ms,
)
from fairlane_workers.providers.limits.table import LimitDialect


@dataclass(frozen=True, slots=True)
class Reading:
    """How the errors of a connection are read.

    ``limits`` is or names the dialect of its rate-limit headers (`providers.limits.table`); the headers
    may prove another one. ``error_map``, the operator's, gives the class of an error by its type, code (lower
    case) or status, ahead of all rules. ``statuses``, the preset's, gives it by status after an error's names
    and words. ``late_statuses``: see `Dialect`. ``shared``: several models share one lane. There a
    403 that does not name the key rejects the model that was asked for; the lane stays open to others.
    ``reasoning_tags``: an answer may begin with reasoning between ``<think>`` and ``</think>``, which no
    outcome has.
    """

    limits: str | LimitDialect | None = None
    error_map: Mapping[str, str] = field(default_factory=dict)
    statuses: Mapping[int, str] = field(default_factory=dict)
    late_statuses: Mapping[str, int] = field(default_factory=dict)
    shared: bool = False
    reasoning_tags: bool = True

    @classmethod
    def of(cls, connection: Connection, statuses: Mapping[int, str]) -> Reading:
        """By the settings of a connection, then by what its provider means by some ``statuses``."""
        return cls(
            connection.limit_headers,
            connection.error_map,
            statuses,
            shared=connection.scope != "model",
            reasoning_tags=connection.reasoning_tags,
        )


_PASSING: Mapping[ErrorClass, type[Overloaded | ServerError | TimedOut]] = {
    ErrorClass.OVERLOADED: Overloaded,
    ErrorClass.SERVER_ERROR: ServerError,
    ErrorClass.TIMED_OUT: TimedOut,
}

# Azure sends `insufficient_quota` also for a rate that the next window (60 s) restores.
_AZURE_HEADERS = ("apim-request-id", "x-ms-region", "x-ratelimit-renewalperiod-requests")
_AZURE_SHORT_MS = 120_000

# OpenAI's and Anthropic's servers say so of an error that looks permanent and is not.
_REPEAT = "x-should-retry"

_UNKNOWN_STATUS = 500
_HOUR_MS = 3_600_000
_LONG_WAIT_MS = _HOUR_MS
"""A message names a longer wait, which holds its lane (`longest_wait_seconds`)."""


def conclude(
    answer: Answer,
    status: int,
    headers: Mapping[str, str],
    reading: Reading,
    *,
    now_ms: int,
    secrets: Iterable[str] = (),
) -> Outcome:
    """The outcome of an answer that came with a 2xx, as far as it could be read.

    If the model declined in its own words, these are the output, and the finish reason is "refusal". An
    answer that is too large, or has other parts and no text, is final: the next one would be the same.
    ``headers`` have names in lower case; ``now_ms`` is in epoch milliseconds.
    """
    if said := answer.error or (None if answer.complete else answer.aside):
        error = ErrorBody.of(said)
        return classify_late_error(error, headers, reading, now_ms=now_ms, secrets=secrets)
    hints = read_limits(reading.limits, headers, now_ms)
    wait_ms = wait_of_success_ms(retry_after_ms(headers, now_ms), hints)

    def fit(text: str) -> str:
        return bounded(scrubbed(text, secrets))

    if answer.too_large and not answer.complete:
        problem = f"the answer is {answer.too_large}. Raise worker.max_response_bytes, or ask for less"
        return PermanentFailure(fit(problem), status, wait_ms, hints, textless=True, usage=answer.usage)
    if not answer.complete:
        stray = answer.skipped and f"not JSON: {answer.skipped!r}"
        problem = answer.problem or stray or "the stream ended before the answer did"
        so_far = replace(answer.usage, output_tokens=None)
        return InvalidResponse(fit(problem), status, wait_ms, hints, so_far)
    declined = answer.declined and bool((answer.text or "").strip())
    if answer.refusal and not declined:
        return PermanentFailure(fit(answer.refusal), status, wait_ms, hints, usage=answer.usage)
    if reading.reasoning_tags:
        answer.leave_out_reasoning()
    output = answer.output
    kinds = [kind for kind, trace in answer.held.items() if not trace]
    spent = openai_reason(answer.finish_reason, calls=False) == "length"
    if (kinds or (answer.held and not spent)) and not (output or "").strip():
        what = ", ".join(kinds or answer.held)
        problem = fit(f"the answer holds no text, which is all that a record keeps, but {what}")
        return PermanentFailure(problem, status, wait_ms, hints, textless=True, usage=answer.usage)
    if output is None and spent:
        output = ""  # the model's reasoning used up its tokens
    if output is None or (output == "" and not spent and _is_missing(answer)):
        none = "holds reasoning alone" if answer.thought and output == "" else "holds no text"
        none = "is empty, and no token was counted for it" if output == "" and not answer.thought else none
        problem = fit(f"the answer {none} (finish reason {answer.finish_reason})")
        if answer.finish_reason is None:
            return InvalidResponse(problem, status, wait_ms, hints, answer.usage)
        return FlawedAnswer(problem, status, wait_ms, hints, answer.usage)
    ended = REFUSAL if declined else answer.finish_reason
    reason = ended and without_runs(ended, secrets)
    model = answer.model and without_runs(answer.model, secrets)
    notes = (without_runs(f"the answer also held {', '.join(kinds)}, which no record keeps", secrets),)
    return Success(
        without_runs(output, secrets),
        answer.usage,
        reason,
        status,
        wait_ms,
        hints,
        model=model,
        notes=notes if kinds else (),
    )


def _is_missing(answer: Answer) -> bool:
    """Whether an empty text is none: the model has only reasoned, or wrote no token.

    A model that rightly says nothing, as before a stop sequence, has written at least one.
    """
    return answer.thought or (answer.counts and not answer.output_tokens)


def classify(
    error: ErrorBody,
    status: int,
    headers: Mapping[str, str],
    reading: Reading,
    *,
    now_ms: int,
    secrets: Iterable[str] = (),
) -> Outcome:
    """The outcome of an answer whose HTTP status is not 2xx.

    The status and the error's own type and code decide. Its first words do for an account without money or
    one that is shut, and for a rate limit with another status ("request 4291 tokens" is not a 429).
    ``headers`` have names in lower case. The message is the provider's own, bounded, without ``secrets``;
    ``now_ms`` (epoch milliseconds) resolves Retry-After.
    """
    message = bounded(scrubbed(error.message or _wordless(status, headers), secrets))
    return _outcome(error, status, headers, message, reading, now_ms)


def passing(error: ErrorBody, status: int, message: str, wait_ms: int | None) -> Outcome | None:
    """The outcome of an error that passes, by its words and its HTTP status; ``None`` for all others."""
    kind = _PASSING.get(class_of(error, status, {}, {}, shared=False))
    return None if kind is None else kind(message, status, wait_ms)


def classify_late_error(
    error: ErrorBody,
    headers: Mapping[str, str],
    reading: Reading,
    *,
    now_ms: int,
    secrets: Iterable[str] = (),
) -> Outcome:
    """The outcome of an error that arrived after a 2xx: its type stands for the status it would have had.

    An unknown type counts as the server's own fault (500): it is tried again.
    """
    known = reading.late_statuses
    named = next((known[kind] for kind in error.kinds if kind in known), None)
    fallback = 429 if is_spent(error) else _UNKNOWN_STATUS
    message = error.message or f"an error without a message after HTTP 200 ({', '.join(error.kinds)})"
    message = bounded(scrubbed(message, secrets))
    return _outcome(error, named or error.status or fallback, headers, message, reading, now_ms)


def _outcome(
    error: ErrorBody, status: int, headers: Mapping[str, str], message: str, reading: Reading, now_ms: int
) -> Outcome:
    now_ms = provider_now_ms(headers, now_ms)
    wait_ms, limits = retry_after_ms(headers, now_ms), reading.limits
    if wait_ms is not None and wait_ms > _LONG_WAIT_MS:
        message = f"{message} (Retry-After asks for {wait_ms / _HOUR_MS:.0f} h)"
    azure = any(headers.get(name) is not None for name in _AZURE_HEADERS)
    brief = azure and wait_ms is not None and wait_ms <= _AZURE_SHORT_MS
    meant = meant_status(error, status, headers, reading.late_statuses)
    error_class = configured_class(error, status, reading.error_map) or class_of(
        error,
        meant,
        headers,
        reading.statuses,
        shared=reading.shared,
        brief=brief and status == TOO_MANY_REQUESTS,
    )
    if error_class is ErrorClass.PERMANENT and headers.get(_REPEAT) == "true":
        error_class = ErrorClass.SERVER_ERROR
    if error_class is ErrorClass.RATE_LIMITED:
        hints, wait_ms = read_refusal(limits, headers, error, wait_ms, now_ms)
        if is_used_up(error, status) and (hints is None or hints.exhausted is None):
            hints = replace(hints or Hints(), exhausted="day")
        elif limits_growth(error):
            hints = replace(hints or Hints(), exhausted="growth")
        too_long = is_too_long_for_plan(error.message)
        if too_long or is_beyond_limit(error.message):
            hints = hints and replace(hints, exhausted=None)
            return PermanentFailure(message, status, hints=hints, doubtful=too_long)
        return RateLimited(message, status, wait_ms, hints)
    hints = read_limits(limits, headers, now_ms)
    if status < _UNKNOWN_STATUS:
        wait_ms = asked_wait_ms(wait_ms, hints)
    if error_class is ErrorClass.OVERLOADED and wait_ms is None:
        wait_ms = wait_in_words_ms(error.message, now_ms)
    if kind := _PASSING.get(error_class):
        return kind(message, status, wait_ms, hints)
    match error_class:
        case ErrorClass.PERMANENT:
            if tokens := affordable_tokens(error):
                message = f"{message} (set max_tokens to {tokens} or less, or add credits)"
            content = rejects_content(error)
            doubtful = not content and is_doubtful(error, meant)
            of_proxy = doubtful and is_of_proxy(error, status)
            return PermanentFailure(message, status, wait_ms, hints, content, doubtful, of_proxy)
        case ErrorClass.TOO_LONG:
            return PermanentFailure(message, status, hints=hints, content=True)
        case ErrorClass.QUOTA:
            wait_ms = wait_ms or stated_date_ms(error.message, now_ms)
            return AccessDenied(message, status, "quota", wait_ms, hints)
        case ErrorClass.AUTH:
            return AccessDenied(message, status, "auth", wait_ms, hints)
        case _:
            return InvalidResponse(message, status, wait_ms, hints)


def _wordless(status: int, headers: Mapping[str, str]) -> str:
    """A message for an error that has none of its own."""
    if status // 100 == 3:
        target = headers.get("location") or "nowhere"
        return f"HTTP {status}: redirects to {target} and is not followed; {remedy_of_redirect(target)}"
    return f"HTTP {status} without a message"
