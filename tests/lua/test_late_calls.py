"""Calls that a deadline ended: whether the lane's queue made them late."""

from __future__ import annotations

from redis import Redis

from fairlane.cli.lanes.lane_views import LaneReport
from fairlane.cli.operate.checks import check_lanes
from fairlane.cli.operate.findings import Grade
from fairlane.config.settings import Settings
from fairlane.model.decision import Defer
from fairlane.model.ending import Completion
from fairlane.model.job import Attempt, Feedback, JobState, Reported
from fairlane.model.run import RunRef
from fairlane.store.write.lanes.lane_view import LateCalls
from fairlane.store.write.workers import WorkerInfo
from fairlane.why.explaining import explain_lane
from fairlane.why.reasons import used_up_in_words
from tests.support.deployment import Deployment, payload

LANE = "sim:fast"
DEADLINE_MS = 1000


def crowd(redis: Redis, jobs: int = 40) -> tuple[Deployment, RunRef, list[Attempt]]:
    """Ten calls that start at once, one of which is answered within a second."""
    d = Deployment(redis)
    ref = d.queued_lane(jobs=jobs, max_concurrency=10)
    started = d.take(ref)
    for attempt in started:
        d.claim(attempt)
    d.clock.advance(0.5)
    assert d.finish(started[0]) is not None
    d.clock.advance(0.5)
    return d, ref, started[1:]


def deferred(d: Deployment, attempt: Attempt, feedback: Feedback) -> Reported | None:
    call = d.attempts.defer(attempt, "w1", Defer(feedback, cost="unproven", max_attempts=3), now_ms=d.now_ms)
    return Reported.of(call.run(d.redis))


def lane(d: Deployment, *names: str) -> list[str]:
    return [(value or b"").decode() for value in d.redis.hmget(d.keys.lane(LANE), list(names))]


def test_a_proxy_that_gives_up_while_others_queue_narrows_the_window(redis: Redis) -> None:
    d, _, late = crowd(redis)
    for attempt in late:
        assert deferred(d, attempt, Feedback("broken", reason="504", proxy_ms=DEADLINE_MS))
    assert lane(d, "window", "window_by", "late_ms") == ["1", "deadline", str(DEADLINE_MS)]
    assert lane(d, "fails", "circuit") in (["", ""], ["0", "closed"], ["0", ""])


def test_the_lane_says_how_many_calls_deadlines_have_ended(redis: Redis) -> None:
    d, _, late = crowd(redis)
    for attempt in late:
        assert deferred(d, attempt, Feedback("broken", reason="504", proxy_ms=DEADLINE_MS))
    view = d.lanes.view(LANE, d.now_ms)
    assert view.late == LateCalls(9, DEADLINE_MS, 9)
    assert (view.places.most, view.places.source) == (1, "deadlines")
    words = "9 calls got no answer within 1 s while 9 were in flight"
    assert words in used_up_in_words(view, "window", 10)
    finding = next(iter(check_lanes([LaneReport(view, 3)], Settings())))
    assert (finding.grade, words in finding.detail) == (Grade.WARN, True)


def test_why_reports_calls_ended_by_deadlines_although_only_their_retries_wait(redis: Redis) -> None:
    d, _, late = crowd(redis, jobs=10)
    call = d.attempts.defer(
        late[0],
        "w1",
        Defer(
            Feedback("broken", reason="504", proxy_ms=DEADLINE_MS),
            delay_ms=60_000,
            cost="unproven",
            max_attempts=3,
        ),
        now_ms=d.now_ms,
    )
    call.run(d.redis)
    worker = WorkerInfo("w1", 100, (LANE,), "1", 1, "box", 0)
    d.workers.beat("w1", worker, [], 1000, changed=True, now_ms=d.now_ms).run(d.redis)
    assert explain_lane(d.redis, d.keys, LANE, d.now_ms).sentence == (
        "1 to be tried again, the first in 1 min; 1 call got no answer within 1 s while 9 were in flight"
    )


def test_a_window_that_an_earlier_version_narrowed_names_no_calls(redis: Redis) -> None:
    d, _, _ = crowd(redis)
    d.redis.hset(d.keys.lane(LANE), mapping={"window": "3", "window_by": "deadline", "late_ms": "1000"})
    view = d.lanes.view(LANE, d.now_ms)
    assert (view.late, view.places.source) == (None, "deadlines")


def test_how_long_calls_take_is_known_from_the_first_answer(redis: Redis) -> None:
    d, _, _ = crowd(redis)
    d.redis.hdel(d.keys.lane(LANE), "token_ms")
    assert d.lanes.view(LANE, d.now_ms).latency_ms == 500


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
        late[0], "w1", feedback, Completion(JobState.FAILED, payload(JobState.FAILED)), d.now_ms
    )
    assert Reported.of(call.run(d.redis)) is not None
