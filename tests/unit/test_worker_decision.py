"""The one retry layer: what each outcome means for its job, at each number of attempts spent."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.decision import ABORTED_DELAY_MS, Decision, Defer, Finish, decide, given_back
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
from fairlane.store.attempts import Claim

POLICY = RetryPolicy(max_attempts=3, initial_delay=1.0, max_delay=8.0, max_rate_limits=5)
TEMPORARY = {
    Overloaded("m", 503): "overloaded",
    Overloaded("m", 529, 1500): "overloaded",
    NetworkFailure("m"): "broken",
    TimedOut("m"): "broken",
    TimedOut("m", 504): "broken",
    InvalidResponse("m", 200): "none",
}


def decision(outcome: Outcome, spent: int = 0, limited: int = 0, policy: RetryPolicy = POLICY) -> Decision:
    return decide(outcome, Claim(spent, limited, 0), policy, random.Random(1))


def names(outcome: Any) -> str:
    return type(outcome).__name__ if not isinstance(outcome, (int, str)) else str(outcome)


@pytest.mark.parametrize("spent", [0, 1, 2, 7])
def test_a_success_ends_the_job_whatever_it_has_spent(spent: int) -> None:
    made = decision(Success("yes", Usage(10, 5), retry_after_ms=300), spent)

    assert isinstance(made, Finish)
    assert (made.error, made.attempts) == (None, spent + 1)
    lesson = made.lesson
    assert (lesson.signal, lesson.usage) == ("ok", Usage(10, 5))
    assert (lesson.retry_after_ms, lesson.reason) == (300, "")


def test_a_success_that_does_not_tell_its_usage_says_nothing_of_tokens() -> None:
    assert decision(Success("yes")).lesson.usage == Usage()


@pytest.mark.parametrize(("outcome", "signal"), TEMPORARY.items(), ids=names)
@pytest.mark.parametrize("spent", [0, 1])
def test_what_may_pass_is_tried_again_while_attempts_are_left(
    outcome: Outcome, signal: str, spent: int
) -> None:
    made = decision(outcome, spent)

    assert isinstance(made, Defer)
    assert (made.costs_attempt, made.rate_limited) == (True, False)
    assert 0 <= made.delay_ms <= 1000 * 2**spent
    assert (made.lesson.signal, made.lesson.reason) == (signal, "m")
    assert made.lesson.retry_after_ms == outcome.retry_after_ms


@pytest.mark.parametrize(("outcome", "signal"), TEMPORARY.items(), ids=names)
@pytest.mark.parametrize("spent", [2, 3, 9])
def test_what_may_pass_fails_the_job_at_its_last_attempt(outcome: Outcome, signal: str, spent: int) -> None:
    made = decision(outcome, spent)

    assert isinstance(made, Finish)
    assert (made.error, made.attempts, made.lesson.signal) == ("m", spent + 1, signal)


@pytest.mark.parametrize("spent", [0, 2, 50])
def test_a_rate_limit_costs_no_attempt(spent: int) -> None:
    made = decision(RateLimited("slow down", retry_after_ms=900), spent, limited=3)

    assert isinstance(made, Defer)
    assert (made.costs_attempt, made.rate_limited, made.delay_ms) == (False, True, 0)
    assert (made.lesson.signal, made.lesson.retry_after_ms) == ("limited", 900)


def test_rate_limits_have_a_budget_of_their_own() -> None:
    made = decision(RateLimited("slow down"), spent=1, limited=4)

    assert isinstance(made, Finish)
    assert made.attempts == 1
    assert "rate limited 5 times" in str(made.error)


@pytest.mark.parametrize("spent", [0, 2])
def test_a_refused_request_ends_the_job_at_once(spent: int) -> None:
    made = decision(PermanentFailure("no such model", 404), spent)

    assert isinstance(made, Finish)
    assert (made.error, made.attempts, made.lesson.signal) == ("no such model", spent + 1, "answered")


def test_a_failure_that_nobody_was_asked_about_teaches_nothing() -> None:
    assert decision(PermanentFailure("the template misses 'q'")).lesson.signal == "none"


@pytest.mark.parametrize("reason", ["auth", "quota"])
def test_refused_access_parks_the_lane_and_costs_no_attempt(reason: Any) -> None:
    made = decision(AccessRefused("no quota", 403, reason), spent=2)

    assert isinstance(made, Defer)
    assert (made.costs_attempt, made.rate_limited, made.delay_ms) == (False, False, 0)
    assert (made.lesson.signal, made.lesson.reason) == ("refused", "no quota")


def test_what_this_worker_cannot_do_goes_back_free_of_charge_and_not_at_once() -> None:
    made = decision(Aborted("no connection"), spent=2)

    assert isinstance(made, Defer)
    assert (made.costs_attempt, made.delay_ms, made.lesson.signal) == (False, ABORTED_DELAY_MS, "none")


def test_what_is_given_back_waits_for_nothing() -> None:
    made = given_back("the worker stops")

    assert (made.costs_attempt, made.rate_limited, made.delay_ms) == (False, False, 0)
    assert (made.lesson.signal, made.lesson.reason) == ("none", "the worker stops")


def test_a_policy_of_one_attempt_never_tries_again() -> None:
    made = decision(NetworkFailure("m"), policy=RetryPolicy(max_attempts=1))

    assert isinstance(made, Finish)


@given(spent=st.integers(0, 98), seed=st.integers())
def test_delays_are_jittered_within_their_bounds(spent: int, seed: int) -> None:
    policy = RetryPolicy(max_attempts=100, initial_delay=0.5, max_delay=20.0)

    made = decide(NetworkFailure("m"), Claim(spent, 0, 0), policy, random.Random(seed))

    assert isinstance(made, Defer)
    assert 0 <= made.delay_ms <= min(20_000, 500 * 2**spent)
