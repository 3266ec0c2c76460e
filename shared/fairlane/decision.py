"""What an outcome means for its job: the one retry layer, as a pure function."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from fairlane.job import (
    Aborted,
    AccessRefused,
    InvalidResponse,
    NetworkFailure,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    Success,
    TimedOut,
    Usage,
)
from fairlane.retry import RetryPolicy
from fairlane.store.attempts import Claim, Lesson, Signal

ABORTED_DELAY_MS = 1000  # what one worker cannot do is tried again where it may be done, and not at once


@dataclass(frozen=True, slots=True)
class Finish:
    """The job is over; ``error`` is ``None`` where it succeeded. ``attempts`` is what it has spent in all."""

    lesson: Lesson
    attempts: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Defer:
    """The job goes back and waits at least ``delay_ms``."""

    lesson: Lesson
    delay_ms: int = 0
    costs_attempt: bool = False
    rate_limited: bool = False


Decision: TypeAlias = Finish | Defer


def decide(outcome: Outcome, claim: Claim, policy: RetryPolicy, rng: random.Random) -> Decision:
    """Finish or defer, and what the lane learns from it."""
    attempts = claim.attempts + 1
    match outcome:
        case Success():
            return Finish(_lesson(outcome, "ok", outcome.usage), attempts)
        case RateLimited():
            lesson = _lesson(outcome, "limited")
            if claim.rate_limits + 1 >= policy.max_rate_limits:
                told = f"rate limited {claim.rate_limits + 1} times: {outcome.message}"
                return Finish(lesson, claim.attempts, told)
            return Defer(lesson, rate_limited=True)
        case Overloaded():
            return _again(_lesson(outcome, "overloaded"), outcome.message, attempts, policy, rng)
        case NetworkFailure() | TimedOut():
            return _again(_lesson(outcome, "broken"), outcome.message, attempts, policy, rng)
        case InvalidResponse():
            return _again(_lesson(outcome, "none"), outcome.message, attempts, policy, rng)
        case PermanentFailure():
            # Without a status nobody was asked, so there is nothing to learn of the lane.
            signal: Signal = "none" if outcome.status is None else "answered"
            return Finish(_lesson(outcome, signal), attempts, outcome.message)
        case AccessRefused():
            return Defer(_lesson(outcome, "refused"))
        case Aborted():
            return Defer(_lesson(outcome, "none"), delay_ms=ABORTED_DELAY_MS)
    assert_never(outcome)


def _again(lesson: Lesson, message: str, attempts: int, policy: RetryPolicy, rng: random.Random) -> Decision:
    if attempts >= policy.max_attempts:
        return Finish(lesson, attempts, message)
    return Defer(lesson, delay_ms=policy.delay_ms(attempts, rng), costs_attempt=True)


def _lesson(outcome: Outcome, signal: Signal, usage: Usage | None = None) -> Lesson:
    reason = "" if isinstance(outcome, Success) else outcome.message
    return Lesson(signal, usage or Usage(), outcome.retry_after_ms, reason, outcome.hints)


def given_back(why: str, delay_ms: int = 0) -> Defer:
    """A job that is returned untried, at no cost to anyone."""
    return Defer(Lesson("none", reason=why), delay_ms)
