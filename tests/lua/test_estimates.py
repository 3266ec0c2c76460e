"""What refusals teach: a bucket's rate within a call, a window's count exactly, and when to try again."""

from __future__ import annotations

import random
from copy import deepcopy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.tokens import Estimate
from tests.support.deployment import Deployment
from tests.support.hidden_limit import Bucket, HiddenLimit, Limit, Window, hints
from tests.support.redis import emptied

MINUTE_MS = 60_000
some = settings(max_examples=6, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _world(redis: Redis, limit: Limit, mean_ms: int = 700, seed: int = 1, jobs: int = 12_000) -> HiddenLimit:
    d = Deployment(emptied(redis))
    rng = random.Random(seed)
    return HiddenLimit(
        d, d.unknown_lane(jobs=jobs), limit, latency_ms=lambda n: int(mean_ms * rng.uniform(0.3, 2.5))
    )


@pytest.mark.parametrize("mean_ms", [300, 4000])
@pytest.mark.parametrize(("rate", "depth", "minutes"), [(60, 5, 6), (300, 5, 4)])
@pytest.mark.slow
def test_the_estimate_becomes_the_rate_of_a_bucket_within_one_call(
    real_redis: Redis, rate: float, depth: int, minutes: int, mean_ms: int
) -> None:
    world = _world(real_redis, Bucket(rate, depth), mean_ms)
    world.run(minutes * MINUTE_MS)
    # Between two openings, at least twenty seconds apart, one call more or less is three a minute.
    assert world.state("requests_est") == pytest.approx(rate, abs=3)
    last = world.d.now_ms
    world.run(2 * MINUTE_MS)
    assert world.admitted(last) >= 2 * rate * 0.95
    assert world.refused(last) <= 0.02 * world.admitted(last) + 4


@pytest.mark.parametrize("rate", [12, 60])
@pytest.mark.slow
def test_a_bucket_without_burst_is_used_to_nine_tenths(real_redis: Redis, rate: float) -> None:
    world = _world(real_redis, Bucket(rate, 1), 1000)
    world.run(5 * MINUTE_MS)
    last = world.d.now_ms
    world.run(10 * MINUTE_MS)
    assert world.admitted(last) >= 0.9 * rate * 10


@pytest.mark.parametrize("mean_ms", [300, 4000])
@pytest.mark.parametrize(("count", "offset_ms"), [(20, 5000), (120, 17_000), (300, 30_000)])
@pytest.mark.slow(seconds=10)
def test_the_estimate_is_what_a_window_holds_exactly_once_two_boundaries_agree(
    real_redis: Redis, count: int, offset_ms: int, mean_ms: int
) -> None:
    world = _world(real_redis, Window(count, offset_ms), mean_ms)
    world.run(8 * MINUTE_MS)
    last = world.d.now_ms
    world.run(4 * MINUTE_MS)
    exactly = world.state("requests_edges") >= 2
    assert world.state("requests_est") == pytest.approx(count, abs=1 if exactly else 0.1 * count)
    assert world.admitted(last) >= 0.93 * 4 * count


@pytest.mark.slow
def test_a_lane_waits_for_a_windows_boundary_without_probing(real_redis: Redis) -> None:
    world = _world(real_redis, Window(120, 17_000), 1000)
    world.run(
        10 * MINUTE_MS,
        until=lambda: world.state("requests_edges") >= 2 and world.state("requests_age_ms") > 0,
    )
    refused = world.refused()
    world.run(5 * MINUTE_MS)
    # A refusal a window at most: what follows it waits for the next one.
    assert world.refused() - refused <= 5
    shut = [call for call in world.calls[-600:] if not call.admitted]
    for call in shut:
        boundary = call.at_ms + MINUTE_MS - (call.at_ms - 17_000) % MINUTE_MS
        between = [c for c in world.calls if call.at_ms + 100 < c.at_ms < boundary]
        assert between == []


@pytest.mark.parametrize(
    ("limit", "axis", "by_requests"),
    [
        (Bucket(300, 5), "tokens", None),
        (Bucket(300, 5), "output", 0),
        (Bucket(120, 3), "tokens", 0),
        (Bucket(120, 3), "output", None),
        (Window(120, 17_000), "tokens", None),
        (Window(120, 17_000), "output", 0),
    ],
)
@pytest.mark.slow(seconds=8)
def test_a_limit_of_tokens_that_429s_name_is_measured_although_nothing_else_ever_limits_jobs(
    real_redis: Redis, axis: str, limit: Limit, by_requests: float | None
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=3000, tokens=Estimate(0, 10), requests_per_minute=by_requests)
    world = HiddenLimit(
        d,
        ref,
        deepcopy(limit),
        announced=lambda _, admitted: {} if admitted else {"hints": hints(exhausted=axis)},
    )
    world.run(6 * MINUTE_MS)
    last = d.now_ms
    world.run(2 * MINUTE_MS)
    assert world.admitted(last) >= 0.9 * 2 * limit.per_minute
    assert world.refused(last) <= 0.04 * world.admitted(last) + 4


@some
@given(
    rate=st.integers(40, 300),
    depth=st.integers(3, 10),
    mean_ms=st.integers(100, 5000),
    seed=st.integers(0, 1000),
)
@pytest.mark.slow(seconds=30)
def test_a_bucket_of_any_rate_is_used_with_few_rejections(
    real_redis: Redis, rate: int, depth: int, mean_ms: int, seed: int
) -> None:
    world = _world(real_redis, Bucket(rate, depth), mean_ms, seed)
    world.run(4 * MINUTE_MS)
    last = world.d.now_ms
    world.run(2 * MINUTE_MS)
    assert world.admitted(last) >= 2 * rate * 0.9
    assert world.refused(last) <= 0.05 * world.admitted(last) + 4


@pytest.mark.parametrize(
    ("share", "stated", "seed"), [(0.02, None, 3), (0.02, 1200, 5), (0.1, None, 11), (0.1, 1200, 3)]
)
@pytest.mark.slow(seconds=12)
def test_random_refusals_do_not_stop_a_lane(
    real_redis: Redis, share: float, stated: float | None, seed: int
) -> None:
    class AtRandom:
        rng = random.Random(seed)

        def admit(self, now_ms: int, in_flight: int) -> bool:
            return self.rng.random() >= share

    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=12_000, requests_per_minute=stated)
    rng = random.Random(1)
    world = HiddenLimit(d, ref, AtRandom(), latency_ms=lambda n: rng.randrange(10, 2000))
    world.run(6 * MINUTE_MS)
    last = d.now_ms
    world.run(3 * MINUTE_MS)
    assert world.admitted(last) >= 3 * 10 or world.admitted(0) == 12_000


@pytest.mark.slow(seconds=11)
def test_a_limit_that_doubles_is_found_within_minutes(real_redis: Redis) -> None:
    limit = Bucket(200, 5)
    world = _world(real_redis, limit, 1000)
    world.run(4 * MINUTE_MS)
    limit.per_minute = 400
    world.run(5 * MINUTE_MS)
    last = world.d.now_ms
    world.run(MINUTE_MS)
    assert world.admitted(last) >= 0.9 * 400


@pytest.mark.slow
def test_a_limit_that_halves_is_found_within_a_minute(real_redis: Redis) -> None:
    limit = Bucket(600, 5)
    world = _world(real_redis, limit, 1000)
    world.run(4 * MINUTE_MS)
    limit.per_minute = 300
    world.run(MINUTE_MS)
    last = world.d.now_ms
    world.run(MINUTE_MS)
    assert world.admitted(last) >= 0.9 * 300
    assert world.refused(last) <= 15
