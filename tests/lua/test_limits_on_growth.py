"""A 429 for how fast a rate has grown shuts no lane, and its rate grows more gently from where it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.hints import Hints
from fairlane.model.job import Attempt, Feedback
from fairlane.model.run import RunRef
from tests.support.deployment import Deployment

LANE = "sim:fast"
WAIT_MS = 10_000


def reject(d: Deployment, attempt: Attempt, hints: Hints | None = None) -> None:
    said = hints or Hints(exhausted="growth")
    feedback = Feedback("limited", reason="too fast", retry_after_ms=WAIT_MS, hints=said)
    assert d.report(attempt, feedback, done=False) is not None


def number(d: Deployment, field: str) -> float:
    return float(d.redis.hget(d.keys.lane(LANE), field) or 0)


def busy(d: Deployment, ref: RunRef, seconds: int) -> None:
    """A call starts every 100 ms where the lane lets one, and is answered after that time."""
    for _ in range(seconds * 10):
        taken = d.take(ref, 1)
        for attempt in taken:
            assert d.claim(attempt) is not None
        d.advance(100)
        for attempt in taken:
            d.finish(attempt)


def test_the_lane_goes_on_during_the_wait_and_only_the_call_waits(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=500)
    busy(d, ref, 12)
    first = d.start_next(ref)
    reject(d, first)
    row = d.redis.hgetall(d.keys.lane(LANE))
    assert float(row.get(b"blocked_ms", b"0")) <= d.now_ms
    assert row.get(b"shut", b"") == b""
    assert real_redis.zscore(d.keys.delayed, real_redis.zrange(d.keys.delayed, 0, 0)[0]) == d.now_ms + WAIT_MS
    before = number(d, "granted")
    busy(d, ref, 5)
    assert number(d, "granted") > before + 5


def test_rejections_of_one_moment_are_one(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=500)
    busy(d, ref, 12)
    together = d.take(ref, 3)
    while len(together) < 3:
        d.advance(200)
        together += d.take(ref, 1)
    for attempt in together:
        assert d.claim(attempt) is not None
    reject(d, together[0])
    rate = number(d, "growth_rate")
    for attempt in together[1:]:
        reject(d, attempt)
    assert number(d, "growth_rate") == rate > 0


def test_little_growth_before_the_next_one_makes_the_exponent_gentler(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=500)
    busy(d, ref, 12)
    reject(d, d.start_next(ref))
    slope = number(d, "growth_slope")
    busy(d, ref, 10)
    reject(d, d.start_next(ref))
    assert 0 < number(d, "growth_slope") < slope


def test_a_rejection_of_the_first_call_after_the_wait_halves_the_rate(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=500)
    busy(d, ref, 12)
    reject(d, d.start_next(ref))
    d.advance(WAIT_MS)
    attempt = d.start_next(ref)
    rate = number(d, "requests_pace") / 1000
    reject(d, attempt)
    assert number(d, "growth_rate") == pytest.approx(rate / 2, rel=0.001)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(burst=st.integers(12, 45), passed=st.integers(0, 8))
def test_the_admitted_part_of_a_burst_bounds_the_rate_within_ten_seconds(
    real_redis: Redis, burst: int, passed: int
) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100, requests_per_minute=3000)
    d.advance(2000)
    together = d.start(ref, burst)
    d.advance(100)
    first, *others = together
    reject(d, first)
    for place, attempt in enumerate(others):
        if place < passed:
            d.finish(attempt)
        else:
            reject(d, attempt)
    d.advance(1000)
    reject(d, d.start_next(ref))
    assert 0 < number(d, "growth_rate") <= 2 * 6 * max(1, passed)


@pytest.mark.parametrize("limits", [{"requests_per_minute": 0}, {"requests_per_minute": 6000, "exact": True}])
def test_a_rate_set_only_by_its_operator_waits_out_retry_after(
    real_redis: Redis, limits: dict[str, Any]
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100, **limits)
    reject(d, d.start_next(ref))
    assert number(d, "growth_rate") == 0
    assert number(d, "blocked_ms") > d.now_ms


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(st.tuples(st.booleans(), st.integers(10, 3000)), min_size=1, max_size=40))
def test_rejections_at_any_time_keep_the_rate_within_its_bounds(
    real_redis: Redis, acts: list[tuple[bool, int]]
) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=300)
    for rejected, wait_ms in acts:
        for attempt in d.take(ref, 3):
            assert d.claim(attempt) is not None
            if rejected:
                reject(d, attempt)
            else:
                d.finish(attempt)
        d.advance(wait_ms)
        rate, slope = number(d, "growth_rate"), number(d, "growth_slope")
        assert rate == 0 or 0.1 <= rate <= 6e9
        assert rate == 0 or slope >= 0.35
        assert number(d, "blocked_ms") <= d.now_ms
