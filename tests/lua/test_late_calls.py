"""Calls that a deadline ended: whether the lane's queue made them late."""

from __future__ import annotations

from redis import Redis

from fairlane.model.job import Attempt, Feedback, JobState, Reported
from fairlane.model.run import RunRef
from tests.support.deployment import Deployment, payload

LANE = "sim:fast"
DEADLINE_MS = 1000


def crowd(redis: Redis) -> tuple[Deployment, RunRef, list[Attempt]]:
    """Ten calls that start at once, one of which is answered within a second."""
    d = Deployment(redis)
    ref = d.queued_lane(jobs=40, max_concurrency=10)
    started = d.take(ref)
    for attempt in started:
        d.claim(attempt)
    d.clock.advance(0.5)
    assert d.finish(started[0]) is not None
    d.clock.advance(0.5)
    return d, ref, started[1:]


def deferred(d: Deployment, attempt: Attempt, feedback: Feedback) -> Reported | None:
    call = d.attempts.defer(attempt, "w1", feedback, cost="unproven", max_attempts=3, now_ms=d.now_ms)
    return Reported.of(call.run(d.redis))


def lane(d: Deployment, *names: str) -> list[str]:
    return [(value or b"").decode() for value in d.redis.hmget(d.keys.lane(LANE), list(names))]


def test_a_proxy_that_gives_up_while_others_queue_narrows_the_window(redis: Redis) -> None:
    d, _, late = crowd(redis)
    for attempt in late:
        assert deferred(d, attempt, Feedback("broken", reason="504", proxy_ms=DEADLINE_MS))
    assert lane(d, "window", "window_by", "late_ms") == ["1", "deadline", str(DEADLINE_MS)]
    assert lane(d, "fails", "circuit") in (["", ""], ["0", "closed"], ["0", ""])


def test_a_504_at_once_is_a_failure(redis: Redis) -> None:
    d, _, late = crowd(redis)
    for attempt in late:
        assert deferred(d, attempt, Feedback("broken", reason="504", proxy_ms=20))
    assert lane(d, "window") == [""]
    assert int(lane(d, "fails")[0]) > 0


def test_a_job_whose_last_deadline_passed_ends_while_deadlines_narrow_nothing(redis: Redis) -> None:
    d, _, late = crowd(redis)
    d.redis.hset(d.keys.lane(LANE), "late_off_ms", str(d.now_ms + 600_000))
    feedback = Feedback("broken", reason="no answer within 1 s", deadline_ms=DEADLINE_MS)
    call = d.attempts.finish(
        late[0], "w1", feedback, JobState.FAILED, payload(JobState.FAILED), now_ms=d.now_ms
    )
    assert Reported.of(call.run(d.redis)) is not None
