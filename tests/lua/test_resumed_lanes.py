"""What an operator resumes is open, or says what is left of it, whatever had shut it."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Feedback, Signal
from fairlane.model.tokens import Usage
from tests.support.deployment import Deployment

LANE = "sim:fast"
SIGNALS: list[Signal] = ["limited", "overloaded", "server_error", "broken", "refused"]
SHUT = st.tuples(
    st.sampled_from(SIGNALS),
    st.sampled_from([None, 1, 5_000, 3_600_000, 900_000_000_000, 251_606_933_765_000]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(announced=st.lists(SHUT, max_size=6), paused=st.booleans(), later_ms=st.integers(0, 10_000))
def test_a_resumed_lane_is_open_or_says_what_still_limits_it(
    real_redis: Redis, announced: list[tuple[Signal, int | None]], paused: bool, later_ms: int
) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=20, requests_per_minute=600)
    for attempt, (signal, wait_ms) in zip(
        d.start(ref, len(announced)) if announced else [], announced, strict=False
    ):
        d.report(attempt, Feedback(signal, Usage(), wait_ms), done=False)
    if paused:
        d.lanes.pause(LANE)
    d.advance(later_ms)
    d.lanes.resume(LANE, d.now_ms)
    view = d.lanes.view(LANE, d.now_ms)
    assert view.state != "paused"
    assert view.parked is None
    assert view.held_until_ms is None
    if not paused:
        assert view.state in ("active", "probing")
    d.lanes.resume(LANE, d.now_ms)
    view = d.lanes.view(LANE, d.now_ms)
    assert view.state in ("active", "probing")
    d.advance(3000)
    assert d.take(ref), "a job starts"
