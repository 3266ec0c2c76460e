"""429s that come by chance lower no rate for long, and those of a limit are not taken for them."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from tests.support.deployment import Deployment
from tests.support.hidden_limit import Bucket, HiddenLimit, Limit, Sliding, Window
from tests.support.redis import emptied

MINUTE_MS = 60_000
some = settings(max_examples=6, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])


class ByChance:
    """Rejects ``share`` of all calls, and then what the limit behind it rejects."""

    def __init__(self, share: float, limit: Limit, seed: int) -> None:
        self.share, self._limit, self._rng = share, limit, random.Random(seed)

    def admit(self, now_ms: int, in_flight: int) -> bool:
        return self._rng.random() >= self.share and self._limit.admit(now_ms, in_flight)


def _world(redis: Redis, limit: Limit, seed: int) -> HiddenLimit:
    d = Deployment(emptied(redis))
    rng = random.Random(seed)
    return HiddenLimit(d, d.unknown_lane(jobs=12_000), limit, latency_ms=lambda n: rng.randrange(100, 1500))


@some
@given(
    share=st.sampled_from([0.02, 0.05, 0.1, 0.2]),
    per_minute=st.integers(300, 1200),
    seed=st.integers(0, 1000),
)
@pytest.mark.slow(seconds=30)
def test_random_429s_leave_a_lane_in_use(real_redis: Redis, share: float, per_minute: int, seed: int) -> None:
    world = _world(real_redis, ByChance(share, Bucket(per_minute, per_minute / 60), seed), seed)
    world.run(6 * MINUTE_MS)
    last = world.d.now_ms
    world.run(2 * MINUTE_MS)
    assert world.admitted(last) >= 0.5 * 2 * per_minute
    assert world.refused(last) <= (share + 0.3) * (world.admitted(last) + world.refused(last))


@some
@given(
    per_minute=st.integers(20, 600),
    shape=st.sampled_from(["shallow", "deep", "window", "sliding"]),
    seed=st.integers(0, 1000),
)
@pytest.mark.slow(seconds=30)
def test_a_limit_is_not_mistaken_for_random_429s(
    real_redis: Redis, per_minute: int, shape: str, seed: int
) -> None:
    limits = {
        "shallow": Bucket(per_minute, 1),
        "deep": Bucket(per_minute, max(2, per_minute // 4)),
        "window": Window(per_minute, seed * 50),
        "sliding": Sliding(per_minute),
    }
    world = _world(real_redis, limits[shape], seed)
    for _ in range(8):
        world.run(MINUTE_MS)
        assert not world.state("chance")


@pytest.mark.slow(seconds=20)
def test_a_limit_that_falls_amid_random_429s_is_found(real_redis: Redis) -> None:
    limit = Bucket(900, 15)
    world = _world(real_redis, ByChance(0.05, limit, 3), 3)
    world.run(5 * MINUTE_MS)
    assert world.state("chance")
    limit.per_minute = 300
    world.run(2 * MINUTE_MS)
    last = world.d.now_ms
    world.run(2 * MINUTE_MS)
    assert world.refused(last) <= 0.3 * (world.admitted(last) + world.refused(last))
    assert world.admitted(last) >= 0.5 * 2 * 300


@pytest.mark.slow(seconds=20)
def test_random_429s_that_end_are_forgotten(real_redis: Redis) -> None:
    behind = ByChance(0.05, Bucket(600, 10), 5)
    world = _world(real_redis, behind, 5)
    world.run(5 * MINUTE_MS)
    assert world.state("chance")
    behind.share = 0.0
    world.run(6 * MINUTE_MS)
    last = world.d.now_ms
    world.run(2 * MINUTE_MS)
    assert world.refused(last) <= 0.1 * world.admitted(last)
    assert world.admitted(last) >= 0.9 * 2 * 600


def test_early_429s_on_days_of_little_use_slow_nothing_down(real_redis: Redis) -> None:
    world = _world(real_redis, ByChance(0.05, Bucket(300, 5), 7), 7)
    world.run(MINUTE_MS)
    lane = world.d.keys.lane(world.lane)
    for _ in range(20):
        granted = int(world.state("granted"))
        days_ago = {"early": 4, "early_ms": world.d.now_ms - 3 * 24 * 60 * MINUTE_MS, "early_n": granted - 50}
        real_redis.hset(lane, mapping=days_ago | {"early_admitted": world.admitted() - 46, "chance": ""})
        world.run(10_000)
        assert world.state("check_rate", 300) >= 10
