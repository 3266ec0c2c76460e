"""Decides whether a job finishes or is tried again, and when: the one retry layer, as pure functions."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, assert_never

from pydantic import Field, model_validator

from fairlane.core.section import MOST_COUNT, Section
from fairlane.model.job import Claim, Feedback, Signal
from fairlane.model.outcome import (
    Aborted,
    AccessDenied,
    FlawedAnswer,
    InvalidResponse,
    NetworkFailure,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
    TimedOut,
    UnsupportedParameter,
)

Jitter = Literal["full", "added"]

ADDED_JITTER_S = 0.5


class RetryPolicy(Section):
    """Exponential back-off, in seconds.

    ``max_attempts`` counts calls that failed for a reason of their own job. A rate limit costs none of them;
    ``max_rate_limits`` is its own, larger budget. An overload (503, 529) costs none either, nor does any
    failure of a lane that answers nobody.

    A wrong argument raises `ConfigurationError`.

    ``jitter`` says how the n-th wait is drawn. "full": anything from 0 to min(max, initial·2^(n-1)), which
    spreads callers best (Brooker, "Exponential Backoff And Jitter", AWS 2015). "added":
    min(initial·2^(n-1) + up to half a second, max), so that no wait is shorter than the one before it.
    """

    max_attempts: int = Field(default=3, ge=1, le=100)
    initial_delay: float = Field(default=1.0, ge=0, le=3600)
    max_delay: float = Field(default=60.0, ge=0, le=86_400)
    max_rate_limits: int = Field(default=1000, ge=1, le=MOST_COUNT)
    """Rate limits after which a job fails."""
    jitter: Jitter = "full"

    @model_validator(mode="after")
    def _ordered(self) -> RetryPolicy:
        if self.max_delay < self.initial_delay:
            low, high = self.initial_delay, self.max_delay
            raise ValueError(f"max_delay ({high:g}) is below initial_delay ({low:g})")
        return self

    def delay_ms(self, attempts_spent: int, rng: random.Random) -> int:
        """Milliseconds to wait once ``attempts_spent`` calls have failed, 1 or more."""
        backoff = self.initial_delay * 2.0 ** min(attempts_spent - 1, 1000)
        if self.jitter == "full":
            delay = rng.uniform(0.0, min(self.max_delay, backoff))
        else:
            delay = min(self.max_delay, backoff + rng.uniform(0.0, ADDED_JITTER_S))
        return round(delay * 1000)


FORBIDDEN = 403
"""A status that may deny one request only, such as one that a firewall blocks."""

MOST_REJECTIONS = 200
"""A job fails after so many rejections, if more of them met it alone than chance explains. A provider that
rejects 95 % of all calls rejects one job in 28,000 so often. A job whose rejections are certainly its own
fails sooner (``lib/lane/new_lease.lua``)."""

ABORTED_DELAY_MS = 1000
"""Delay of a job that its worker cannot execute. Another worker may; the same one must not spin on it."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The job has ended; ``error`` is ``None`` if it succeeded. ``attempts`` counts all that it used."""

    feedback: Feedback
    attempts: int
    error: str | None = None


Cost = Literal[
    "nothing", "withdrawn", "control", "unproven", "denied", "absent", "rejected", "doubtful", "attempt"
]
"""What a failed call costs its job. "unproven": an attempt, but only once the lane has answered a call that
started later; until then the failure may be the lane's. "denied": an attempt if the lane answers others and
denies this job alone, else unproven. "absent": unproven if the lane has answered before, else an attempt.
"rejected", "doubtful": unproven if the lane may reject all calls alike, else an attempt; a "rejected" job
then ends. "control": nothing, since the call repeated another request. "withdrawn": nothing, and the lane
learns nothing."""


@dataclass(frozen=True, slots=True)
class Defer:
    """The job is requeued and waits at least ``delay_ms``.

    A job that has used all ``max_attempts`` is not requeued: its worker finishes it.
    """

    feedback: Feedback
    delay_ms: int = 0
    cost: Cost = "nothing"
    rate_limited: bool = False
    max_attempts: int = 0


Decision: TypeAlias = Finish | Defer


def decide(
    outcome: Outcome, claim: Claim, policy: RetryPolicy, rng: random.Random, *, sent: bool = True
) -> Decision:
    """Finish or defer the job, with the feedback for its lane. ``rng`` draws the back-off.

    ``sent``: whether the request left its worker.
    """
    decision = _decided(outcome, claim, policy, rng)
    return decision if sent else replace(decision, feedback=replace(decision.feedback, sent=False))


def _decided(outcome: Outcome, claim: Claim, policy: RetryPolicy, rng: random.Random) -> Decision:
    attempts = claim.attempts + 1
    match outcome:
        case Success():
            return Finish(_feedback(outcome, "ok"), attempts)
        case RateLimited():
            feedback = _feedback(outcome, "limited")
            if claim.rate_limits + 1 >= policy.max_rate_limits:
                error = f"rate limited {claim.rate_limits + 1} times: {outcome.message}"
                return Finish(feedback, claim.attempts, error)
            return _rejected(feedback, claim, policy, rng)
        case Overloaded():
            return _rejected(_feedback(outcome, "overloaded"), claim, policy, rng)
        case ServerError():
            return _retried(_feedback(outcome, "server_error"), "unproven", claim, policy, rng)
        case NetworkFailure() | TimedOut() | InvalidResponse():
            return _retried(_feedback(outcome, "broken"), "unproven", claim, policy, rng)
        case FlawedAnswer():
            return _retried(_feedback(outcome, "answered"), "attempt", claim, policy, rng)
        case PermanentFailure(of_proxy=True):
            return _retried(_feedback(outcome, "absent"), "absent", claim, policy, rng)
        case PermanentFailure(doubtful=True):
            feedback = _feedback(outcome, "answered")
            doubt: Cost = "doubtful" if feedback.refusal else "attempt"
            return _retried(feedback, doubt, claim, policy, rng)
        case PermanentFailure():
            # Without a status the provider was not asked, so the lane has nothing to learn.
            signal: Signal = "none" if outcome.status is None else "answered"
            feedback = _feedback(outcome, signal)
            if feedback.refusal:
                return replace(_retried(feedback, "rejected", claim, policy, rng), max_attempts=0)
            return Finish(feedback, attempts, outcome.message)
        case UnsupportedParameter(failure=failure) if failure is not None:
            return _unblamed(failure, _decided(failure, claim, policy, rng))
        case UnsupportedParameter():
            return Defer(_feedback(outcome, "answered"))
        case AccessDenied():
            cost: Cost = "denied" if outcome.status == FORBIDDEN else "unproven"
            return _retried(_feedback(outcome, "refused"), cost, claim, policy, rng)
        case Aborted(status=None):
            return Defer(_feedback(outcome, "none"), delay_ms=ABORTED_DELAY_MS)
        case Aborted():
            return withdrawn(outcome)
    assert_never(outcome)


def decide_control(outcome: Outcome, claim: Claim, policy: RetryPolicy, rng: random.Random) -> Defer:
    """Requeue a job whose attempt repeated a request that its lane had answered before.

    Only the lane learns from it: an answer shows that its rejections are of their rows.
    """
    if isinstance(outcome, Success):
        return Defer(_feedback(outcome, "ok"), cost="control")
    if isinstance(outcome, PermanentFailure | UnsupportedParameter):
        return Defer(replace(_feedback(outcome, "server_error"), refusal=""), cost="control")
    if isinstance(outcome, Aborted) and outcome.status is not None:
        return withdrawn(outcome)
    decision = _decided(outcome, claim, policy, rng)
    return Defer(decision.feedback, decision.delay_ms if isinstance(decision, Defer) else 0)


def finish(decision: Defer, attempts: int) -> Finish:
    """Finish a job whose ``attempts`` are used up, with the feedback of its last one."""
    return Finish(decision.feedback, attempts, decision.feedback.reason)


def _rejected(feedback: Feedback, claim: Claim, policy: RetryPolicy, rng: random.Random) -> Decision:
    """Requeue a rejected job. Its lane decides when it starts; a job that alone is rejected backs off."""
    rejected, limited = claim.rejected + 1, feedback.signal == "limited"
    if not claim.own:
        return Defer(feedback, rate_limited=limited)
    if rejected < MOST_REJECTIONS and claim.own != "last":
        return Defer(feedback, policy.delay_ms(rejected, rng), rate_limited=limited)
    error = (
        f"rejected {rejected} times, {claim.alone} of them while its lane answered others: {feedback.reason}"
    )
    return Finish(feedback, claim.attempts, error)


def _retried(feedback: Feedback, cost: Cost, claim: Claim, policy: RetryPolicy, rng: random.Random) -> Defer:
    delay_ms = policy.delay_ms(claim.attempts + claim.unproven + 1, rng)
    return Defer(feedback, delay_ms, cost, max_attempts=policy.max_attempts)


def _unblamed(failure: Outcome, made: Decision) -> Defer:
    """Requeue a job whose failure an unsupported parameter may have caused; only its lane learns from it.

    A rejected request is repeated at once, without the parameter.
    """
    delay_ms = made.delay_ms if isinstance(made, Defer) and not isinstance(failure, PermanentFailure) else 0
    return Defer(replace(made.feedback, refusal=""), delay_ms)


def _feedback(outcome: Outcome, signal: Signal) -> Feedback:
    return Feedback(
        signal,
        outcome.usage,
        outcome.retry_after_ms,
        "" if isinstance(outcome, Success) else outcome.message,
        outcome.hints,
        outcome.deadline_ms if isinstance(outcome, TimedOut) else None,
        _refusal(outcome) if isinstance(outcome, PermanentFailure) else "",
        proxy_ms=outcome.after_ms if isinstance(outcome, TimedOut) else None,
    )


NO_MONEY = 402
REFUSALS = frozenset({400, 401, NO_MONEY, 403, 404, 405, 410, 422})
"""Statuses with which providers reject a model or a parameter. A 413 is about one row's size, a 402 about a
``max_tokens`` that the account's credits do not pay for."""

_IDENTIFIER = re.compile(r"\breq[_-]\w+|\b[0-9a-f]{16,}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
"""The id of a request in a provider's message: otherwise equal messages differ in it."""
_NUMBER = re.compile(r"[0-9]+")
"""Numbers in a 402's message, such as the credits left, change with each answer."""


def _refusal(outcome: PermanentFailure) -> str:
    """The status and the message without ids; "" if the provider rejected only this row's content."""
    if outcome.content or not (outcome.textless or outcome.status in REFUSALS):
        return ""
    words = without_ids(outcome.message)
    if outcome.status == NO_MONEY:
        words = _NUMBER.sub("…", words)
    return f"{outcome.status} {words}"


def without_ids(message: str) -> str:
    """A provider's message without the ids in which equal messages differ."""
    return _IDENTIFIER.sub("…", message)


def withdrawn(denied: AccessDenied | Aborted) -> Defer:
    """Requeue a job whose call only this worker's key, or a key since replaced, has failed: its lane serves
    others, and its budgets get the call back.
    """
    return Defer(_feedback(denied, "refused"), ABORTED_DELAY_MS, "withdrawn")


PAUSED: Final = "its run or its lane was paused before the call was sent"
"""Why a job is requeued whose permit was granted before the pause."""


def unsent(
    why: str = "the permit came too late: with the calls before it, it would exceed the burst",
    delay_ms: int = 0,
) -> Defer:
    """Requeue a job whose permit came too late to be used. Nothing was sent, and its permit is returned."""
    return Defer(Feedback("unsent", reason=why, sent=False), delay_ms)


def requeue(why: str, delay_ms: int = 0, *, sent: bool = False) -> Defer:
    """Requeue a job at no cost to its attempts or its lane. ``sent``: its call was aborted in flight."""
    return Defer(Feedback("none", reason=why, sent=sent), delay_ms)
