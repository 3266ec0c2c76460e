"""Rejections in equal words are of their rows where others are answered; of enough jobs they hold a lane."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.model.decision import Defer
from fairlane.model.job import Attempt, Claim, Feedback, Reported
from fairlane.model.run import RunRef
from tests.support.deployment import Deployment

LANE, SECOND_MS, ENOUGH = "sim:fast", 1000, 5
CAPPED = "400 the allowance of plan 17 is used up"


def rejected(d: Deployment, attempt: Attempt, refusal: str = CAPPED) -> Reported:
    """Report a call whose request was rejected; what costs its job nothing is queued again at once."""
    feedback = Feedback("answered", reason=refusal[4:], refusal=refusal)
    call = d.attempts.defer(attempt, "w1", Defer(feedback, cost="rejected"), now_ms=d.redis_ms)
    reported = Reported.of(d.functions.run(d.redis, call))
    assert reported is not None
    return reported


def answering_lane(d: Deployment, jobs: int = 100, run: str = "r1") -> RunRef:
    """A lane that has answered a call of the run."""
    ref = d.queued_lane(jobs=jobs, run=run)
    d.finish(d.start_next(ref))
    d.advance(SECOND_MS)
    return ref


def claimed(d: Deployment, attempt: Attempt) -> Claim:
    claim = d.claim(attempt)
    assert claim is not None
    return claim


def circuit(d: Deployment) -> str:
    return d.lane_state(LANE).get("circuit", "closed")


def test_enough_equal_rejections_open_the_circuit_and_fail_no_job(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d)
    calls = d.start(ref, 8)
    news = [rejected(d, each, f"400 the allowance of plan {each.job} is used up") for each in calls]
    assert not any(each.exhausted for each in news)
    assert [each.news for each in news[:ENOUGH]] == ["", "", "", "", "open"]
    view = d.lanes.view(LANE, d.now_ms)
    assert (view.circuit, view.shut and view.shut.reason) == ("open", "circuit")
    assert "the allowance of plan" in str(view.last_error)
    assert view.down_since_ms is not None


def test_rejected_jobs_are_retried_at_no_cost_once_a_probe_is_answered(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d, jobs=12)
    jobs = {each.job for each in d.start(ref, 8) if not rejected(d, each).exhausted}
    for _ in range(3):
        assert not rejected(d, d.start_next(ref)).exhausted
        assert circuit(d) == "open"
    answered = d.start_next(ref)
    d.finish(answered)
    assert circuit(d) == "closed"
    d.advance(10 * SECOND_MS)
    claims = {each.job: claimed(d, each) for each in d.take(ref)}
    assert jobs - {answered.job} <= set(claims)
    assert {(each.attempts, each.unproven) for each in claims.values()} == {(0, 0)}


def test_a_call_in_flight_that_is_rejected_in_other_words_costs_its_job_nothing(real_redis: Redis) -> None:
    """A cap may be reached while rows are rejected for themselves."""
    d = Deployment(real_redis)
    ref = answering_lane(d)
    *bad, capped = d.start(ref, ENOUGH + 1)
    for each in bad:
        rejected(d, each, "422 unknown field in message 3")
    assert circuit(d) == "open"
    assert not rejected(d, capped).exhausted


def test_a_row_ends_with_its_second_rejection_after_a_later_call_was_answered(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d)
    bad, good = d.start(ref, 2)
    assert not rejected(d, bad).exhausted
    d.finish(good)
    again = next(each for each in d.take(ref) if each.job == bad.job)
    assert claimed(d, again).attempts == 1
    assert rejected(d, again).exhausted == 2
    assert circuit(d) == "closed"


def test_a_rejected_row_ends_at_once_if_a_later_call_was_already_answered(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d)
    bad, good = d.start(ref, 2)
    d.finish(good)
    assert rejected(d, bad).exhausted == 1


def test_a_rejection_message_known_to_be_row_specific_costs_no_second_call(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d)
    for _ in range(3):
        bad, good = d.start(ref, 2)
        d.finish(good)
        rejected(d, bad)
        d.finish(bad)
    assert rejected(d, d.start(ref)[0]).exhausted == 1


def test_a_run_that_was_never_answered_ends_its_rows_at_once(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    answering_lane(d, jobs=1)
    other = d.queued_lane(run="r2")
    first = d.take(other, 1)[0]
    assert claimed(d, first).attempts == 0
    assert rejected(d, first).exhausted == 1


@pytest.mark.parametrize("answered", [False, True])
def test_whether_a_run_was_answered_is_asked_when_the_rejection_is_reported(
    real_redis: Redis, answered: bool
) -> None:
    """A cap may be reached among a run's very first calls."""
    d = Deployment(real_redis)
    first, capped = d.start(d.queued_lane(), 2)
    if answered:
        d.finish(first)
    assert bool(rejected(d, capped).exhausted) is not answered


def test_an_unanswered_runs_control_that_is_rejected_alike_fails_no_job(
    real_redis: Redis,
) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d, jobs=6)
    for each in d.start(ref, 5):
        rejected(d, each)
    other = d.queued_lane(run="r2")
    d.advance(2 * SECOND_MS)
    [probe] = d.take(other, 1)
    assert claimed(d, probe).control
    assert not rejected(d, probe).exhausted
    assert circuit(d) == "open"


@pytest.mark.parametrize("other", ["400 image 3 is too small", "403 the allowance of plan 17 is used up"])
def test_rejections_in_other_words_or_with_another_status_are_not_alike(
    real_redis: Redis, other: str
) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d)
    for number, each in enumerate(d.start(ref, 12)):
        rejected(d, each, CAPPED if number % 2 else other)
    assert circuit(d) == "closed"


def test_calls_still_in_flight_keep_the_circuit_closed(real_redis: Redis) -> None:
    """Rejections are quick, and answers slow: a third of the calls is no sign of a lane that rejects all."""
    d = Deployment(real_redis)
    ref = answering_lane(d)
    for each in d.start(ref, 60)[::3]:
        rejected(d, each)
    assert circuit(d) == "closed"


def test_the_last_row_of_a_run_ends_with_its_third_call(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d, jobs=2)
    assert [rejected(d, d.start_next(ref)).exhausted for _ in range(3)] == [0, 0, 1]
    assert circuit(d) == "closed"


def test_only_probes_of_a_lane_that_rejects_alike_may_be_controls(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d)
    calls = d.take(ref, 6)
    assert not any(claimed(d, each).control for each in calls)
    for each in calls:
        rejected(d, each)
    assert circuit(d) == "open"
    d.advance(2 * SECOND_MS)
    [probe] = d.take(ref, 1)
    assert claimed(d, probe).control


def test_a_probe_of_an_outage_is_no_control(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d)
    while circuit(d) != "open":
        d.defer(d.start_next(ref), signal="server_error", cost="unproven")
        d.advance(60)
    d.advance(5 * SECOND_MS)
    [probe] = d.take(ref, 1)
    assert not claimed(d, probe).control


def control(d: Deployment, attempt: Attempt, *, answered: bool) -> None:
    d.defer(attempt, signal="ok" if answered else "server_error", cost="control")


def opened_again(d: Deployment, ref: RunRef) -> int:
    """How many rows end, each by one call, until rejections open the circuit again."""
    ended = 0
    while circuit(d) == "closed":
        d.advance(SECOND_MS)
        attempt = d.start_next(ref)
        exhausted = rejected(d, attempt).exhausted
        if exhausted:
            ended += 1
            d.finish(attempt, signal="answered")
    return ended


def test_each_answered_control_doubles_the_rows_until_the_words_are_doubted_again(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d, jobs=600)
    for each in d.start(ref, ENOUGH):
        rejected(d, each)
    ended = []
    for _ in range(4):
        d.advance(10 * SECOND_MS)
        control(d, d.start_next(ref), answered=True)
        assert circuit(d) == "closed"
        ended.append(opened_again(d, ref))
    assert ended == sorted(ended)
    assert ended[-1] >= 3 * ended[0]
    d.advance(10 * SECOND_MS)
    control(d, d.start_next(ref), answered=False)
    assert circuit(d) == "open"
    d.advance(10 * SECOND_MS)
    control(d, d.start_next(ref), answered=True)
    assert opened_again(d, ref) <= ended[0] + ENOUGH
