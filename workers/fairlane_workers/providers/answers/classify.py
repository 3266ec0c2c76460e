"""Classifies an answer, or an error by status and type, as the outcome that the lane learns from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fairlane.export.finish_reasons import openai_reason
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
from fairlane_workers.providers.errors.doubtful import is_doubtful, lacks_capacity
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.errors.rate_limit_names import (
    CERTAIN,
    FORBIDDEN,
    TOO_MANY_REQUESTS,
    is_rate_limit,
    is_used_up,
)
from fairlane_workers.providers.errors.retry_after import retry_after_ms, wait_in_words_ms
from fairlane_workers.providers.errors.spent import is_shut, is_spent
from fairlane_workers.providers.errors.wording import bounded, scrubbed, without_runs
from fairlane_workers.providers.limits import asked_wait_ms, is_beyond_limit, read_limits, read_refusal


class _ErrorClass(StrEnum):
    """The values are those of `Connection.error_map`."""

    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    TIMED_OUT = "timed_out"
    PERMANENT = "permanent"
    QUOTA = "quota"
    AUTH = "auth"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Reading:
    """How the errors of a connection are read.

    ``limits`` names the dialect of its rate-limit headers (`fairlane_workers.providers.limits`); the headers
    may prove another one. ``error_map`` gives the class of an error by its type, code (lower case) or status,
    ahead of all rules. ``late_statuses``: see `Dialect`. ``shared``: several models share one lane. There a
    403 that does not name the key rejects the model that was asked for; the lane stays open to others.
    """

    limits: str | None = None
    error_map: Mapping[str, str] = field(default_factory=dict)
    late_statuses: Mapping[str, int] = field(default_factory=dict)
    shared: bool = False


_OF_STATUS = {
    401: _ErrorClass.AUTH,
    402: _ErrorClass.QUOTA,
    403: _ErrorClass.AUTH,
    408: _ErrorClass.TIMED_OUT,
    # Another request is in the way, or the connection is too new: OpenAI's own client repeats a 409, too.
    409: _ErrorClass.SERVER_ERROR,
    # A proxy took another connection's way.
    421: _ErrorClass.SERVER_ERROR,
    425: _ErrorClass.SERVER_ERROR,
    429: _ErrorClass.RATE_LIMITED,
    # "Client closed request": a gateway gave up waiting, or Google's server cancelled the call.
    499: _ErrorClass.TIMED_OUT,
    503: _ErrorClass.OVERLOADED,
    504: _ErrorClass.TIMED_OUT,
    529: _ErrorClass.OVERLOADED,
}
_OF_CLASS = {3: _ErrorClass.PERMANENT, 4: _ErrorClass.PERMANENT, 5: _ErrorClass.SERVER_ERROR}

# Amazon sends some of these with a 400: https://docs.aws.amazon.com/bedrock/latest/APIReference/CommonErrors.html
_AUTH_KINDS = frozenset(
    {
        *("expiredtoken", "expiredtokenexception", "incompletesignature", "incompletesignatureexception"),
        *("invalidclienttokenid", "invalidsignatureexception", "missingauthenticationtoken"),
        *("missingauthenticationtokenexception", "notauthorized", "requestexpired"),
        "unrecognizedclientexception",
        "organization_restricted",  # Groq's
        # Google's and Anthropic's, with a 400 too.
        *("api_key_invalid", "api_key_expired", "organization_on_hold"),
        # OpenAI's.
        *("invalid_api_key", "account_deactivated", "unsupported_country_region_territory"),
    }
)
# LiteLLM's, with a 401 or a 403: the key, its team or its user may not use the model.
_MODEL_DENIED = "_model_access_denied"
# Bedrock's 424: the model broke, not the request.
_SERVER_KINDS = frozenset({"modelerrorexception", "modelstreamerrorexception"})
# "No capacity" in the words of OpenAI, Anthropic, Moonshot, Google, Amazon and Groq, with any status that
# does not say what is wrong. A 429 with one says nothing about the caller's limits.
_OVERLOAD_KINDS = frozenset(
    {
        *("overloaded_error", "server_is_overloaded", "engine_overloaded", "engine_overloaded_error"),
        *("model_overloaded", "server_overloaded", "service_unavailable", "serviceunavailableexception"),
        # text-generation-inference's "Model is overloaded", with a 429
        *("unavailable", "modelnotreadyexception", "overloaded", "capacity_exceeded"),
    }
)
_PASSING = frozenset({408, 429, 503, 504, 529})
"""Statuses that pass. A type that stands for one counts more than a 400: Bedrock throttles with 400s, too."""
_CONTENT_KINDS = frozenset({"content_filter", "content_policy_violation"})

# Azure sends `insufficient_quota` also for a rate that the next window (60 s) restores.
_AZURE_HEADERS = ("apim-request-id", "x-ms-region", "x-ratelimit-renewalperiod-requests")
_AZURE_SHORT_MS = 120_000

# OpenAI's and Anthropic's servers say so of an error that looks permanent and is not.
_REPEAT = "x-should-retry"

_UNKNOWN_STATUS = 500


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

    ``headers`` have names in lower case; ``now_ms`` is in epoch milliseconds.
    """
    if answer.error:
        error = ErrorBody.of(answer.error)
        return classify_late_error(error, headers, reading, now_ms=now_ms, secrets=secrets)
    hints = read_limits(reading.limits, headers, now_ms)
    wait_ms = asked_wait_ms(retry_after_ms(headers, now_ms), hints)

    def fit(text: str) -> str:
        return bounded(scrubbed(text, secrets))

    if not answer.complete:
        problem = answer.problem or "the stream ended before the answer did"
        return InvalidResponse(fit(problem), status, wait_ms, hints)
    if answer.refusal:
        return PermanentFailure(fit(answer.refusal), status, wait_ms, hints)
    output = answer.output
    if output is None and openai_reason(answer.finish_reason, calls=False) == "length":
        output = ""  # the model's reasoning used up its tokens
    if output is None:
        problem = fit(f"the answer holds no text (finish reason {answer.finish_reason})")
        if answer.finish_reason is None:
            return InvalidResponse(problem, status, wait_ms, hints)
        return FlawedAnswer(problem, status, wait_ms, hints, answer.usage)
    reason = answer.finish_reason and without_runs(answer.finish_reason, secrets)
    model = answer.model and without_runs(answer.model, secrets)
    return Success(without_runs(output, secrets), answer.usage, reason, status, wait_ms, hints, model=model)


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


def passing(status: int, message: str, wait_ms: int | None) -> Outcome | None:
    """The outcome of an error by its HTTP status alone, if that passes; ``None`` for all others."""
    match _OF_STATUS.get(status) or _OF_CLASS.get(status // 100):
        case _ErrorClass.OVERLOADED:
            return Overloaded(message, status, wait_ms)
        case _ErrorClass.TIMED_OUT:
            return TimedOut(message, status, wait_ms)
        case _ErrorClass.SERVER_ERROR:
            return ServerError(message, status, wait_ms)
        case _:
            return None


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
    wait_ms, limits = retry_after_ms(headers, now_ms), reading.limits
    azure = any(headers.get(name) is not None for name in _AZURE_HEADERS)
    brief = azure and wait_ms is not None and wait_ms <= _AZURE_SHORT_MS
    denied = _denied(error, brief=status == TOO_MANY_REQUESTS and brief)
    meant, error_class = _meant(status, error, reading), _configured(error, status, reading.error_map)
    if error_class is None and meant == TOO_MANY_REQUESTS and lacks_capacity(error):
        error_class = _ErrorClass.OVERLOADED
    if error_class is None:
        error_class = _class_of(meant, frozenset(error.kinds), denied=denied, shared=reading.shared)
    if error_class is _ErrorClass.PERMANENT and headers.get(_REPEAT) == "true":
        error_class = _ErrorClass.SERVER_ERROR
    if error_class is _ErrorClass.RATE_LIMITED:
        hints, wait_ms = read_refusal(limits, headers, error, wait_ms, now_ms)
        if is_used_up(error, status) and (hints is None or hints.exhausted is None):
            hints = replace(hints or Hints(), exhausted="day")
        if is_beyond_limit(error.message):
            return PermanentFailure(message, status, hints=hints and replace(hints, exhausted=None))
        return RateLimited(message, status, wait_ms, hints)
    hints = read_limits(limits, headers, now_ms)
    if status < _UNKNOWN_STATUS:
        wait_ms = asked_wait_ms(wait_ms, hints)
    match error_class:
        case _ErrorClass.OVERLOADED:
            wait_ms = wait_in_words_ms(error.message, now_ms) if wait_ms is None else wait_ms
            return Overloaded(message, status, wait_ms, hints)
        case _ErrorClass.SERVER_ERROR:
            return ServerError(message, status, wait_ms, hints)
        case _ErrorClass.TIMED_OUT:
            return TimedOut(message, status, wait_ms, hints)
        case _ErrorClass.PERMANENT:
            content = not _CONTENT_KINDS.isdisjoint(error.kinds)
            doubtful = not content and is_doubtful(error, status)
            return PermanentFailure(message, status, wait_ms, hints, content, doubtful)
        case _ErrorClass.QUOTA:
            return AccessDenied(message, status, "quota", wait_ms, hints)
        case _ErrorClass.AUTH:
            return AccessDenied(message, status, "auth", wait_ms, hints)
        case _ErrorClass.INVALID:
            return InvalidResponse(message, status, wait_ms, hints)


def _meant(status: int, error: ErrorBody, reading: Reading) -> int:
    """The status that an error means: many services throttle with another one than 429."""
    known = reading.late_statuses
    named = next((known[kind] for kind in error.kinds if known.get(kind) in _PASSING), status)
    if status == 400 and named != status:
        return named
    return TOO_MANY_REQUESTS if is_rate_limit(error, status) else status


def _configured(error: ErrorBody, status: int, error_map: Mapping[str, str]) -> _ErrorClass | None:
    """The class that the connection configures for an error, by type or code first, then by status."""
    names = (*error.kinds, str(status)) if error_map else ()
    return next((_ErrorClass(error_map[name]) for name in names if name in error_map), None)


def _denied(error: ErrorBody, *, brief: bool) -> _ErrorClass | None:
    """Why a 4xx is no fault of the request and passes by no wait; ``brief``: it names a short one."""
    if is_spent(error) and not brief:
        return _ErrorClass.QUOTA
    return _ErrorClass.AUTH if is_shut(error) else None


def _class_of(status: int, kinds: frozenset[str], *, denied: _ErrorClass | None, shared: bool) -> _ErrorClass:
    if status // 100 == 4:
        if denied:
            return denied
        if kinds & _AUTH_KINDS:
            return _ErrorClass.AUTH
        if kinds & _SERVER_KINDS:
            return _ErrorClass.SERVER_ERROR
        if kinds & _CONTENT_KINDS:
            return _ErrorClass.PERMANENT
    if shared and (status == FORBIDDEN or any(kind.endswith(_MODEL_DENIED) for kind in kinds)):
        return _ErrorClass.PERMANENT
    if status == 503 and "resource_exhausted" in kinds:
        return _ErrorClass.RATE_LIMITED
    if status not in CERTAIN and kinds & _OVERLOAD_KINDS:
        return _ErrorClass.OVERLOADED
    return _OF_STATUS.get(status) or _OF_CLASS.get(status // 100, _ErrorClass.INVALID)


def _wordless(status: int, headers: Mapping[str, str]) -> str:
    """A message for an error that has none of its own."""
    if status // 100 == 3:
        target = headers.get("location") or "nowhere"
        return f"HTTP {status}: redirects to {target} and is not followed; set base_url to the final address"
    return f"HTTP {status} without a message"
