"""Reports that nobody awaits: only those may wait for others at their worker."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.ending import Completion
from fairlane.model.job import Attempt, Feedback, JobState, Reported
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from tests.support.deployment import Deployment, payload
from tests.support.redis import emptied

ANSWERED = Feedback("ok", Usage(10, 5))


def begun(d: Deployment, ref: RunRef) -> list[Attempt]:
    """Claimed attempts, as many as the lane grants now."""
    taken = d.take(ref)
    for attempt in taken:
        assert d.claim(attempt) is not None
    return taken


def reported(d: Deployment, attempt: Attempt) -> Reported:
    call = d.attempts.finish(
        attempt, "w1", ANSWERED, Completion(JobState.SUCCEEDED, payload(JobState.SUCCEEDED)), d.now_ms
    )
    reply = Reported.of(call.run(d.redis))
    assert reply is not None
    return reply


def test_a_lane_that_waits_for_its_rate_awaits_no_report(redis: Redis) -> None:
    d = Deployment(redis)
    ref = d.queued_lane(jobs=100, requests_per_minute=600, burst_seconds=1)
    started = begun(d, ref)
    assert len(started) < 100
    assert reported(d, started[0]).unawaited


def test_a_lane_without_waiting_jobs_awaits_its_reports(redis: Redis) -> None:
    d = Deployment(redis)
    ref = d.queued_lane(jobs=2, requests_per_minute=600, burst_seconds=1)
    assert not reported(d, begun(d, ref)[0]).unawaited


def test_a_lane_that_waits_for_the_end_of_a_call_awaits_its_report(redis: Redis) -> None:
    d = Deployment(redis)
    ref = d.queued_lane(jobs=100, max_concurrency=2)
    assert not reported(d, begun(d, ref)[0]).unawaited


def test_a_lane_that_waits_for_a_workers_slot_awaits_its_reports(redis: Redis) -> None:
    d = Deployment(redis)
    ref = d.queued_lane(jobs=100, requests_per_minute=600, burst_seconds=1)
    started = begun(d, ref)
    d.lanes.await_slots(["sim:fast"], ["sim:fast"])
    assert not reported(d, started[0]).unawaited
    assert reported(d, started[1]).unawaited  # the first one woke it


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    jobs=st.integers(1, 60),
    per_minute=st.sampled_from([0, 60, 600]),
    window=st.sampled_from([None, 1, 3, 50]),
    starved=st.booleans(),
    waits_ms=st.lists(st.sampled_from([0, 1, 50, 3000]), min_size=1, max_size=12),
)
@pytest.mark.slow
def test_an_unawaited_report_wakes_nobody(
    redis: Redis,
    jobs: int,
    per_minute: int,
    window: int | None,
    starved: bool,
    waits_ms: list[int],
) -> None:
    d = Deployment(emptied(redis))
    limits = {"requests_per_minute": per_minute, "max_concurrency": window}
    ref = d.queued_lane(jobs=jobs, **{name: value for name, value in limits.items() if value is not None})
    started = begun(d, ref)
    for wait_ms in waits_ms:
        d.advance(wait_ms)
        started += begun(d, ref)
        if starved:
            d.lanes.await_slots(["sim:fast"], ["sim:fast"])
        if not started:
            break
        d.dirty()
        before = redis.smembers(d.keys.dirty)
        reply = reported(d, started.pop(0))
        woken = redis.smembers(d.keys.dirty) != before
        assert not (reply.unawaited and woken)
        assert not (reply.unawaited and not per_minute)
