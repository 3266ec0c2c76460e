"""Calls in flight: a window is learned where places are what is limited or calls queue, and nowhere else."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.ending import Completion
from fairlane.model.job import Feedback, JobState
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from tests.support.deployment import Deployment, payload
from tests.support.hidden_limit import Bucket, Everything, HiddenLimit, Limit, Places, Window
from tests.support.redis import emptied

MINUTE_MS = 60_000


def _widest_since(world: HiddenLimit, since_ms: int) -> int:
    return max(call.in_flight for call in world.calls if call.at_ms >= since_ms)


@pytest.mark.parametrize(("places", "mean_ms"), [(5, 1000), (10, 2000), (30, 4000)])
@pytest.mark.slow(seconds=5)
def test_refusals_at_the_same_number_in_flight_become_a_window(
    real_redis: Redis, places: int, mean_ms: int
) -> None:
    d = Deployment(real_redis)
    rng = random.Random(1)
    ref = d.unknown_lane(jobs=10_000)
    world = HiddenLimit(d, ref, Places(places), latency_ms=lambda n: int(mean_ms * rng.uniform(0.3, 1.7)))
    world.run(4 * MINUTE_MS)
    assert places - 1 <= world.state("window") <= places + 1
    last = d.now_ms
    world.run(2 * MINUTE_MS)
    assert world.admitted(last) >= 0.9 * 2 * MINUTE_MS * places / mean_ms
    assert world.refused(last) <= 8


@settings(max_examples=4, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rate=st.sampled_from([60, 240, 360]),
    windowed=st.booleans(),
    mean_ms=st.sampled_from([100, 700, 3000]),
    shape=st.sampled_from(["constant", "uniform", "exponential"]),
    seed=st.integers(0, 100),
)
@pytest.mark.slow(seconds=15)
def test_a_rate_limit_leaves_no_window(
    real_redis: Redis, rate: int, windowed: bool, mean_ms: int, shape: str, seed: int
) -> None:
    d = Deployment(emptied(real_redis))
    rng = random.Random(seed)

    def latency_ms(in_flight: int) -> int:
        if shape == "constant":
            return mean_ms
        return (
            int(mean_ms * rng.uniform(0.2, 1.8))
            if shape == "uniform"
            else int(rng.expovariate(1 / mean_ms)) + 1
        )

    limit: Limit = Window(rate, 7000) if windowed else Bucket(rate, 5)
    world = HiddenLimit(d, d.unknown_lane(jobs=6000), limit, latency_ms=latency_ms)
    with_window = 0
    for _ in range(12):
        world.run(MINUTE_MS // 2)
        # What the lane needs at its rate, by Little's law; a window above that holds nothing back.
        with_window += 0 < world.state("window") < 1.5 * rate * mean_ms / MINUTE_MS + 2
    assert with_window <= 2


@pytest.mark.slow
def test_calls_that_go_through_beyond_a_window_refute_it(real_redis: Redis) -> None:
    """At a constant latency a rate looks like so many calls at once, until a wider window is tried."""
    d = Deployment(real_redis)
    world = HiddenLimit(d, d.unknown_lane(jobs=4000), Bucket(450, 5), latency_ms=lambda n: 500)
    world.run(MINUTE_MS)
    since = d.now_ms
    world.run(MINUTE_MS)
    assert world.state("window") == 0
    assert world.admitted(since) >= 0.99 * 450
    assert world.refused(since) <= 5


@pytest.mark.slow
def test_a_window_that_serves_less_than_the_rate_before_it_goes(real_redis: Redis) -> None:
    """A bucket of one call takes no two at once, which looks like a single call at once."""
    d = Deployment(real_redis)
    world = HiddenLimit(
        d,
        d.unknown_lane(jobs=4000),
        Bucket(450, 1),
        announced=lambda now_ms, admitted: {} if admitted else {"retry_after_ms": 3000},
    )
    world.run(2 * MINUTE_MS)
    since = d.now_ms
    world.run(MINUTE_MS)
    assert world.admitted(since) >= 0.5 * 450


@pytest.mark.slow(seconds=12)
@pytest.mark.parametrize("unanswered", [False, True])
def test_calls_that_queue_narrow_the_window_to_what_keeps_the_provider_busy(
    real_redis: Redis, unanswered: bool
) -> None:
    """``unanswered``: most calls that were to be measured have failed, or were the first of their run."""
    d = Deployment(real_redis)
    if unanswered:
        d.redis.hset(
            d.keys.lane("sim:fast"), mapping={"lat_from": -1000, "lat_n": 3, "lat_sum": 3, "lat_places": 9}
        )
    # Eight at a time, half a second each: 16 a second.
    world = HiddenLimit(
        d, d.unknown_lane(jobs=6000), Everything(), latency_ms=lambda n: 500 * max(1, -(-n // 8))
    )
    world.run(MINUTE_MS)
    last = d.now_ms
    world.run(2 * MINUTE_MS)
    assert _widest_since(world, last) <= 32
    assert world.admitted(last) >= 0.7 * 16 * 120


@pytest.mark.parametrize(("by", "after_ms"), [("overload", 4000), ("refusals", 30_000)])
def test_a_window_is_widened_in_time_while_its_only_call_goes_on(
    real_redis: Redis, by: str, after_ms: int
) -> None:
    """A call may take ten minutes: the leader is told when to ask again, as no answer wakes it."""
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=20, requests_per_minute=6000)
    state = {"window": 1, "window_by": by, "window_age_ms": 0, "window_step": 1, "widen_ms": 4000}
    d.redis.hset(d.keys.lane("sim:fast"), mapping=state)
    assert len(d.ask(ref).permits) == 1
    began_ms = d.now_ms
    for number in (1, 2):  # one call more, then two more
        grant = d.ask(ref)
        while not grant.permits and d.now_ms < began_ms + 10 * after_ms:
            assert grant.reason == "window"
            assert d.now_ms < grant.at_ms <= d.now_ms + after_ms
            d.advance(grant.at_ms - d.now_ms)
            grant = d.ask(ref)
        assert len(grant.permits) == number
    assert d.now_ms == began_ms + 2 * after_ms


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [4, 7])
def test_a_window_that_latency_has_narrowed_in_vain_is_wide_again_within_seconds(
    real_redis: Redis, narrow: int
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2000, requests_per_minute=2400)  # 40 a second, so 20 in flight
    world = HiddenLimit(d, ref, Everything(), latency_ms=lambda n: 500)
    world.run(5000)
    d.redis.hset(d.keys.lane("sim:fast"), mapping={"search_window": narrow, "search_by": "latency"})
    world.run(10_000)
    since = d.now_ms
    world.run(5000)
    assert world.admitted(since) >= 0.95 * 40 * 5


@pytest.mark.slow
def test_a_slowdown_without_queueing_is_forgotten_and_costs_little(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    rng, began_ms = random.Random(3), d.now_ms
    ref = d.queued_lane(jobs=6000, requests_per_minute=600)

    def latency_ms(in_flight: int) -> int:
        slow = 60_000 <= d.now_ms - began_ms < 180_000
        return int((3000 if slow else 500) * rng.uniform(0.8, 1.2))

    world = HiddenLimit(d, ref, Everything(), latency_ms=latency_ms)
    world.run(100_000)
    last = d.now_ms
    world.run(60_000)
    assert world.state("search_window") == 0
    assert world.admitted(last) >= 575


@pytest.mark.slow
def test_the_length_of_answers_does_not_look_like_queueing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    rng = random.Random(4)
    lengths: list[int] = []

    def latency_ms(in_flight: int) -> int:
        # First mostly 20 tokens, later mostly 800; 10 ms each, 200 ms before the first.
        long = rng.random() < (0.1 if len(lengths) < 600 else 0.9)
        lengths.append(800 if long else 20)
        return 200 + 10 * lengths[-1]

    world = HiddenLimit(
        d,
        d.queued_lane(jobs=5000, requests_per_minute=600),
        Everything(),
        latency_ms=latency_ms,
        tokens_of=lambda call: lengths[call],
    )
    for _ in range(10):
        world.run(20_000)
        assert world.state("search_window") == 0
    assert world.admitted() >= 1990


def _answered(d: Deployment, ref: RunRef, count: int, before_claim_ms: int = 0, after_ms: int = 500) -> None:
    for _ in range(count // 32):
        taken = d.take(ref)  # 32, and more would be wanted
        d.advance(before_claim_ms)
        for attempt in taken:
            d.claim(attempt)
        d.advance(after_ms)
        for attempt in taken:
            d.finish(attempt, used=10)


def test_a_broker_failure_does_not_look_like_queueing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2000, requests_per_minute=0, max_concurrency=32)
    _answered(d, ref, 320)
    _answered(d, ref, 32, before_claim_ms=10_000)
    assert float(d.lane_state().get("window") or 0) == 0


def test_a_redis_failure_does_not_look_like_queueing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2000, requests_per_minute=0, max_concurrency=32)
    _answered(d, ref, 320)
    flying = d.start(ref, 32)
    assert d.take(ref) == []
    d.advance(10_000)
    d.lanes.drain("sim:fast", d.now_ms)
    for attempt in flying:
        d.finish(attempt, used=10)
    assert float(d.lane_state().get("window") or 0) == 0


def test_a_stated_window_is_a_ceiling_and_an_exact_one_is_kept(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100, max_concurrency=20)
    d.redis.hset(d.keys.lane("sim:fast"), mapping={"window": 8, "window_age_ms": 0, "window_step": 1})
    assert len(d.take(ref)) == 8
    d.redis.hset(d.keys.lane("sim:fast"), "window", 50)
    assert len(d.take(ref)) == 12
    d.redis.hset(d.keys.lane("sim:fast"), "window", 3)
    d.lanes.limit("sim:fast", {"max_concurrency": 25, "exact": True})
    assert len(d.take(ref)) == 5


def test_a_window_that_holds_jobs_back_is_widened_again_and_an_idle_one_is_not(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    d.redis.hset(d.keys.lane("sim:fast"), mapping={"window": 4, "window_age_ms": 0, "window_step": 1})
    assert len(d.take(ref)) == 4
    for _ in range(31):
        d.advance(1000)
        d.ask(ref)
    assert d.lane_state()["window"] == "5"
    assert d.lane_state()["granted"] == "5"
    for _ in range(3):
        d.lanes.pause("sim:fast")
        d.ask(ref)
        d.advance(600_000)
    d.lanes.resume("sim:fast", d.now_ms)
    d.ask(ref)
    assert int(d.lane_state()["window"]) <= 6


@pytest.mark.slow
def test_concurrency_is_detected_where_the_rate_is_never_limited(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    rng = random.Random(1)
    ref = d.queued_lane(jobs=5000, requests_per_minute=0, max_concurrency=40)
    world = HiddenLimit(d, ref, Places(10), latency_ms=lambda n: rng.randrange(500, 1500))
    world.run(15_000)
    last = d.now_ms
    world.run(15_000)
    assert world.refused(last) <= 0.1 * world.admitted(last)
    assert world.admitted(last) >= 0.8 * 15 * 10


def test_latency_is_measured_by_the_worker_and_not_between_scripts(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100, requests_per_minute=0, max_concurrency=32)
    flying = d.start(ref, 20)
    d.advance(7500)  # Redis stood still for seven seconds
    for attempt in flying:
        feedback = Feedback("ok", Usage(10, 10))
        done, record = JobState.SUCCEEDED, payload(JobState.SUCCEEDED)
        d.attempts.finish(attempt, "w1", feedback, Completion(done, record), d.now_ms, took_ms=500).run(
            d.redis
        )
    state = d.lane_state()
    assert float(state["usual_ms"]) == 500
    assert float(state["token_ms"]) * (20 + 10) == pytest.approx(500)
