"""Rates are exact: never a permit more than `rate × t + burst`, never one less than the rate earns."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.run import RunRef
from tests.support.deployment import Deployment
from tests.support.redis import emptied

MINUTE_MS = 60_000
on_real_redis = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])

thousandths = st.one_of(
    st.integers(500, 60_000_000), st.integers(500, 5_000), st.sampled_from([500, 1_001, 7_300, 60_000_000])
).map(lambda n: n / 1000)
rates = thousandths | st.floats(0.5, 60_000)
bursts = st.sampled_from([0.05, 0.1, 1.0, 10.0]) | st.floats(0.01, 60)


def _exact(per_minute: float) -> Fraction:
    """The rate that is kept to: thousandths; what is finer is dropped."""
    return Fraction(math.floor(Fraction(per_minute) * 1000 + Fraction(1, 10**6)), 1000)


def _most(per_minute: float, span_ms: int, burst_seconds: float) -> Fraction:
    """Permits that may be granted in a window of ``span_ms``."""
    rate = _exact(per_minute)
    return rate * span_ms / MINUTE_MS + max(Fraction(1), rate * Fraction(burst_seconds) / 60)


@on_real_redis
@given(
    rate=rates,
    burst=bursts,
    steps=st.lists(st.none() | st.integers(0, 100) | st.integers(0, 10_000), min_size=1, max_size=40),
    counts=st.lists(st.integers(1, 100), min_size=40, max_size=40),
)
@pytest.mark.slow
def test_no_period_has_more_starts_than_rate_and_burst(
    real_redis: Redis, rate: float, burst: float, steps: list[int | None], counts: list[int]
) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=3000, requests_per_minute=rate, burst_seconds=burst)
    history: list[tuple[int, int]] = []
    for step, count in zip(steps, counts, strict=False):
        grant = d.ask(ref, count=count)
        history.append((d.now_ms, len(grant.permits)))
        # None: asked again exactly at the time reported.
        d.advance(step if step is not None else min(max(grant.wait_ms, 0), 10**7))
    for first, (start, _) in enumerate(history):
        taken = 0
        for now, permits in history[first:]:
            taken += permits
            assert taken <= _most(rate, now - start, burst)


@pytest.mark.parametrize("rate", [0.5, 0.7, 1.001, 5, 7.3, 59.999, 60, 333.333, 600, 1000, 6000, 60_000])
@pytest.mark.slow
def test_a_lane_that_is_asked_without_pause_grants_all_that_its_rate_earns(
    real_redis: Redis, rate: float
) -> None:
    d = Deployment(real_redis)
    # A bucket that holds a single permit loses what it earns between its being full and the next question.
    ref = d.queued_lane(jobs=3000, requests_per_minute=rate, burst_seconds=max(1, 180 / rate))
    d.redis.hset(d.keys.lane("sim:fast"), mapping={"requests_level": 0, "requests_ms": d.now_ms})
    span_ms = max(1000, math.ceil(4 * MINUTE_MS / rate))
    pause_ms = max(1, span_ms // 1000)
    start_ms, taken = d.now_ms, 0
    for _ in range(0, span_ms, pause_ms):
        d.advance(pause_ms)
        taken += len(d.ask(ref).permits)
    span_ms = d.now_ms - start_ms
    assert rate * span_ms / MINUTE_MS - 1 <= taken <= rate * span_ms / MINUTE_MS


@on_real_redis
@given(rate=rates, burst=bursts, jobs=st.integers(1, 3), between=st.lists(st.floats(0, 1), max_size=3))
@example(rate=1.2, burst=0.05, jobs=1, between=[])
@example(rate=1.001, burst=1.0, jobs=1, between=[0.3, 0.999])
@example(rate=0.57, burst=1.0, jobs=1, between=[0.5])
@pytest.mark.slow
def test_the_time_reported_is_the_first_at_which_a_request_may_start(
    real_redis: Redis, rate: float, burst: float, jobs: int, between: list[float]
) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=2000, requests_per_minute=rate, burst_seconds=burst)
    shown = d.ask(ref)
    for _ in range(jobs):
        if shown.reason != "requests":
            return
        wait = shown.wait_ms
        # Whoever asks in between changes nothing: no fraction of a permit is lost on the way.
        for part in sorted(between):
            at = shown.now_ms + int(part * (wait - 1))
            d.advance(at - d.now_ms)
            assert (d.ask(ref).at_ms, d.ask(ref).permits) == (shown.at_ms, [])
        d.advance(shown.at_ms - 1 - d.now_ms)
        assert not d.ask(ref).permits
        d.advance(1)
        assert len(d.ask(ref, count=1).permits) == 1
        shown = d.ask(ref)


def test_an_unused_lane_starts_with_its_burst_less_the_reserve_for_late_calls(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100, requests_per_minute=600, burst_seconds=1.266)
    assert len(d.ask(ref).permits) == 9


def test_an_unlimited_lane_grants_everything_at_once(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    assert len(d.take(d.queued_lane(jobs=50))) == 50
    d.lanes.limit("sim:fast", {"requests_per_minute": 0, "tokens_per_minute": 0})
    assert len(d.take(d.queued_lane(jobs=50, run="r2"))) == 50


def test_a_new_limit_holds_from_the_next_permit(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    d.take(ref, 10)
    d.lanes.limit("sim:fast", {"requests_per_minute": 60, "burst_seconds": 2.35})
    assert len(d.take(ref)) == 1
    d.advance(1000)
    assert len(d.take(ref)) == 1
    d.lanes.limit("sim:fast", {"requests_per_minute": 600})
    d.advance(1000)
    assert len(d.take(ref)) == 10
    d.lanes.limit("sim:fast", {"requests_per_minute": 0, "burst_seconds": None})
    assert len(d.take(ref)) == 78


@on_real_redis
@given(
    gap=st.integers(1, 500),
    steps=st.lists(st.none() | st.integers(0, 700), min_size=1, max_size=30),
)
def test_starts_keep_their_minimum_gap(real_redis: Redis, gap: int, steps: list[int | None]) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=40, min_gap_ms=gap)
    starts = []
    for step in steps:
        grant = d.ask(ref)
        starts += [d.now_ms] * len(grant.permits)
        assert (grant.reason, grant.at_ms) == ("gap", starts[-1] + gap)
        d.advance(grant.wait_ms if step is None else step)
    assert all(later - earlier >= gap for earlier, later in pairwise(starts))
    assert len(starts) > sum(step is None for step in steps[:-1])


@on_real_redis
@given(
    window=st.none() | st.integers(1, 9),
    most=st.integers(1, 9),
    acts=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20),
)
def test_no_more_are_in_flight_than_window_cap_and_room_allow(
    real_redis: Redis, window: int | None, most: int, acts: list[tuple[int, int]]
) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=200)
    d.lanes.limit("sim:fast", {"max_concurrency": window})
    flying = []
    for room, ended in acts:
        grant = d.ask(ref, room=room, max_in_flight=most)
        flying += [(permit.job, permit.number) for permit in grant.permits]
        expected = min(room, most, window or most)
        assert len(grant.permits) <= expected
        assert len(flying) <= min(most, window or most)
        if len(flying) < min(most, window or most):
            assert len(grant.permits) == room
        assert grant.reason == ("window" if window and len(flying) >= window else "slots")
        for attempt in _attempts(ref, flying[:ended]):
            d.claim(attempt)
            d.finish(attempt)
        del flying[:ended]


def _attempts(ref: RunRef, jobs: list[tuple[int, int]]) -> list[Attempt]:
    return [Attempt(ref.run, ref.team, job, number, "sim:fast") for job, number in jobs]


@on_real_redis
@given(rate=rates, burst=bursts, jobs=st.integers(1, 60))
def test_no_more_permits_accumulate_than_the_bucket_holds_and_the_run_needs(
    real_redis: Redis, rate: float, burst: float, jobs: int
) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=jobs, requests_per_minute=rate, burst_seconds=burst)
    grant = d.ask(ref)
    if grant.reason != "requests":
        assert grant.gather_ms == 0
        return
    assert 0 <= grant.gather_ms <= 250
    left, full = jobs - len(grant.permits), max(1.0, rate * burst / 60)
    d.advance(max(grant.wait_ms, grant.gather_ms))
    gathered = len(d.ask(ref).permits)
    assert 1 <= gathered <= min(left, max(1, full / 2 + 1), max(1, 12, rate * 0.25 / 60 + 1))
