"""The one retry layer: what each outcome means for its job, at each number of attempts spent."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.decision import (
    ABORTED_DELAY_MS,
    MOST_REJECTIONS,
    Decision,
    Defer,
    Finish,
    RetryPolicy,
    decide,
    finish,
    requeue,
)
from fairlane.model.job import Claim
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
from fairlane.model.tokens import Usage

POLICY = RetryPolicy(max_attempts=3, initial_delay=1.0, max_delay=8.0, max_rate_limits=5)
UNPROVEN = {
    ServerError("m", 500): "server_error",
    ServerError("m", 502, 1500): "server_error",
    NetworkFailure("m"): "broken",
    TimedOut("m"): "broken",
    TimedOut("m", 504): "broken",
    InvalidResponse("m", 200): "broken",
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
    feedback = made.feedback
    assert (feedback.signal, feedback.usage) == ("ok", Usage(10, 5))
    assert (feedback.retry_after_ms, feedback.reason) == (300, "")


def test_a_success_without_usage_says_nothing_of_tokens() -> None:
    assert decision(Success("yes")).feedback.usage == Usage()


@pytest.mark.parametrize(("outcome", "signal"), UNPROVEN.items(), ids=names)
@pytest.mark.parametrize("spent", [0, 1, 9])
def test_a_failure_that_may_be_the_lanes_is_tried_again_and_redis_counts_it(
    outcome: Outcome, signal: str, spent: int
) -> None:
    made = decision(outcome, spent)

    assert isinstance(made, Defer)
    assert (made.cost, made.max_attempts, made.rate_limited) == ("unproven", 3, False)
    assert 0 <= made.delay_ms <= 1000 * 2**spent
    assert (made.feedback.signal, made.feedback.reason) == (signal, "m")
    assert made.feedback.retry_after_ms == outcome.retry_after_ms


def test_failures_that_are_not_proven_lengthen_the_back_off() -> None:
    policy = RetryPolicy(initial_delay=1.0, max_delay=60.0, jitter="added")

    made = decide(NetworkFailure("m"), Claim(1, 0, 0, unproven=3), policy, random.Random(1))

    assert isinstance(made, Defer)
    assert 16_000 <= made.delay_ms <= 16_500


@pytest.mark.parametrize("status", [503, 529])
def test_an_overload_costs_nothing_and_waits_for_its_lane_alone(status: int) -> None:
    made = decision(Overloaded("busy", status, 1500), spent=2)

    assert isinstance(made, Defer)
    assert (made.cost, made.max_attempts, made.delay_ms) == ("nothing", 0, 0)
    assert (made.feedback.signal, made.feedback.retry_after_ms) == ("overloaded", 1500)


def test_a_flawed_answer_costs_an_attempt_and_what_it_used() -> None:
    made = decision(FlawedAnswer("no score", 200, usage=Usage(10, 5)))

    assert isinstance(made, Defer)
    assert (made.cost, made.max_attempts) == ("attempt", 3)
    assert (made.feedback.signal, made.feedback.usage) == ("answered", Usage(10, 5))


def test_a_job_without_attempts_left_finishes_with_the_reason_of_its_last() -> None:
    made = decision(ServerError("m", 500), spent=2)

    assert isinstance(made, Defer)
    assert finish(made, 3) == Finish(made.feedback, 3, "m")


def test_a_deadline_of_the_run_is_named_and_that_of_the_provider_is_not() -> None:
    assert decision(TimedOut("m", deadline_ms=5000)).feedback.deadline_ms == 5000
    assert decision(TimedOut("m", 504)).feedback.deadline_ms is None


def test_the_lane_learns_after_how_long_a_proxy_gave_up() -> None:
    feedback = decision(TimedOut("m", 504, after_ms=60_000)).feedback
    assert (feedback.proxy_ms, feedback.deadline_ms) == (60_000, None)


def test_equal_refusals_of_the_request_have_equal_names() -> None:
    def refusal(status: int, message: str, *, content: bool = False) -> str:
        return decision(PermanentFailure(message, status, content=content)).feedback.refusal

    assert refusal(404, "no model x (req_011CQ)") == refusal(404, "no model x (req_7fXY)") != ""
    assert refusal(404, "no model x") != refusal(404, "no model y")
    assert refusal(400, "no parameter x") != refusal(422, "no parameter x")
    assert refusal(400, "filtered", content=True) == ""
    assert refusal(413, "too large") == ""


REJECTIONS = (RateLimited("no room"), Overloaded("no room", 503))


@pytest.mark.parametrize("outcome", REJECTIONS, ids=names)
def test_a_job_that_is_rejected_alone_is_called_ever_more_rarely_and_ends(outcome: Outcome) -> None:
    policy = RetryPolicy(jitter="added")
    made = [
        decide(outcome, Claim(1, 0, 0, rejected=before, alone=2, own="own"), policy, random.Random(1))
        for before in (2, 4, 20, MOST_REJECTIONS - 2, MOST_REJECTIONS - 1)
    ]

    delays = [each.delay_ms for each in made if isinstance(each, Defer)]
    assert delays == sorted(delays)
    assert delays[0] >= 4000
    assert delays[-2:] == [60_000, 60_000]
    last = made[-1]
    assert isinstance(last, Finish)
    assert last.error == "rejected 200 times, 2 of them while its lane answered others: no room"
    assert last.attempts == 1, "rejections cost no attempt"


@pytest.mark.parametrize("outcome", REJECTIONS, ids=names)
def test_a_job_that_is_certain_to_be_rejected_ends_with_its_next_rejection(outcome: Outcome) -> None:
    claim = Claim(1, 0, 0, rejected=11, alone=10, own="last")
    last = decide(outcome, claim, RetryPolicy(), random.Random(1))

    assert isinstance(last, Finish)
    assert last.error == "rejected 12 times, 10 of them while its lane answered others: no room"


@pytest.mark.parametrize("outcome", REJECTIONS, ids=names)
def test_a_job_whose_lane_rejects_others_too_waits_for_its_lane_alone(outcome: Outcome) -> None:
    claim = Claim(0, 0, 0, rejected=MOST_REJECTIONS, alone=2)
    made = decide(outcome, claim, RetryPolicy(), random.Random(1))

    assert isinstance(made, Defer)
    assert (made.cost, made.delay_ms) == ("nothing", 0)


@pytest.mark.parametrize("spent", [0, 2, 50])
def test_a_rate_limit_costs_no_attempt(spent: int) -> None:
    made = decision(RateLimited("slow down", retry_after_ms=900), spent, limited=3)

    assert isinstance(made, Defer)
    assert (made.cost, made.rate_limited, made.delay_ms) == ("nothing", True, 0)
    assert (made.feedback.signal, made.feedback.retry_after_ms) == ("limited", 900)


def test_rate_limits_have_a_budget_of_their_own() -> None:
    made = decision(RateLimited("slow down"), spent=1, limited=4)

    assert isinstance(made, Finish)
    assert made.attempts == 1
    assert "rate limited 5 times" in str(made.error)


@pytest.mark.parametrize("spent", [0, 2])
def test_a_refused_request_ends_the_job_where_the_script_finds_that_it_is_its_own(spent: int) -> None:
    made = decision(PermanentFailure("no such model", 404), spent)

    assert isinstance(made, Defer)
    assert (made.cost, made.max_attempts, made.feedback.signal) == ("rejected", 0, "answered")
    ended = finish(made, spent + 1)
    assert (ended.error, ended.attempts) == ("no such model", spent + 1)


@pytest.mark.parametrize("spent", [0, 2])
def test_a_rejection_that_may_pass_is_tried_again_and_counts_as_one(spent: int) -> None:
    made = decision(PermanentFailure("HTTP 404 without a message", 404, doubtful=True), spent)

    assert isinstance(made, Defer)
    assert (made.cost, made.max_attempts) == ("doubtful", RetryPolicy().max_attempts)
    assert (made.feedback.signal, made.feedback.refusal) == ("answered", "404 HTTP 404 without a message")


def test_a_failure_that_nobody_was_asked_about_teaches_nothing() -> None:
    assert decision(PermanentFailure("the template misses 'q'")).feedback.signal == "none"


@pytest.mark.parametrize(
    ("outcome", "cost"),
    [
        (PermanentFailure("over its allowance", 400), "rejected"),
        (PermanentFailure("more credits, or fewer max_tokens", 402), "rejected"),
        (PermanentFailure("not found", 404, doubtful=True), "doubtful"),
        (PermanentFailure("no such page", 404, doubtful=True, of_proxy=True), "absent"),
    ],
)
def test_a_rejection_that_may_be_the_lanes_is_weighed_there(outcome: PermanentFailure, cost: str) -> None:
    made = decide(outcome, Claim(0, 0, 0), POLICY, random.Random(1))
    assert isinstance(made, Defer)
    assert (made.cost, made.max_attempts) == (cost, 0 if cost == "rejected" else 3)


@pytest.mark.parametrize(
    "outcome",
    [
        PermanentFailure("your prompt was flagged", 400, content=True),
        PermanentFailure("larger than the limit", 413),
        PermanentFailure("the template misses 'q'"),
    ],
)
def test_a_rejection_of_one_row_ends_it_at_once(outcome: PermanentFailure) -> None:
    assert isinstance(decide(outcome, Claim(0, 0, 0), POLICY, random.Random(1)), Finish)


def test_an_older_claim_is_no_control() -> None:
    reply = b'{"attempts":0,"rate_limits":0,"waited_ms":0,"sendable":true,"good_ms":0,"unproven":0}'
    claim = Claim.of(reply)
    assert claim is not None
    assert not claim.control


@pytest.mark.parametrize("doubtful", [False, True])
def test_a_rejection_that_may_be_a_parameters_is_followed_by_the_next_call_at_once(doubtful: bool) -> None:
    failure = PermanentFailure("no such model", 404, doubtful=doubtful)
    outcome = UnsupportedParameter("no such model", 404, parameter="response_format", failure=failure)
    made = decide(outcome, Claim(0, 0, 0), POLICY, random.Random(1))
    assert isinstance(made, Defer)
    assert (made.delay_ms, made.cost, made.feedback.signal, made.feedback.refusal) == (
        0,
        "nothing",
        "answered",
        "",
    )


@pytest.mark.parametrize("status", [400, 401, 402, 403, 429])
@pytest.mark.parametrize("reason", ["auth", "quota"])
def test_denied_access_costs_an_attempt_only_where_others_have_it(reason: Any, status: int) -> None:
    made = decision(AccessDenied("no quota", status, reason), spent=2)

    assert isinstance(made, Defer)
    assert (made.cost, made.rate_limited) == ("denied" if status == 403 else "unproven", False)
    assert (made.feedback.signal, made.feedback.reason) == ("refused", "no quota")


def test_what_this_worker_cannot_do_goes_back_free_of_charge_and_not_at_once() -> None:
    made = decision(Aborted("no connection"), spent=2)

    assert isinstance(made, Defer)
    assert (made.cost, made.delay_ms, made.feedback.signal) == ("nothing", ABORTED_DELAY_MS, "none")


def test_a_requeued_job_waits_for_nothing() -> None:
    made = requeue("the worker stops")

    assert (made.cost, made.rate_limited, made.delay_ms) == ("nothing", False, 0)
    assert (made.feedback.signal, made.feedback.reason) == ("none", "the worker stops")


@given(spent=st.integers(0, 98), seed=st.integers())
def test_delays_are_jittered_within_their_bounds(spent: int, seed: int) -> None:
    policy = RetryPolicy(max_attempts=100, initial_delay=0.5, max_delay=20.0)

    made = decide(NetworkFailure("m"), Claim(spent, 0, 0), policy, random.Random(seed))

    assert isinstance(made, Defer)
    assert 0 <= made.delay_ms <= min(20_000, 500 * 2**spent)
