"""A lane that nobody asks while Redis or its leader stands still learns nothing from that time."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from tests.support.deployment import Deployment
from tests.support.hidden_limit import Bucket, HiddenLimit
from tests.support.redis import emptied

A_MINUTE = 1200
some = settings(max_examples=6, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _world(redis: Redis, seed: int = 1) -> HiddenLimit:
    d = Deployment(emptied(redis))
    rng = random.Random(seed)
    return HiddenLimit(
        d, d.unknown_lane(jobs=9000), Bucket(A_MINUTE, 5), latency_ms=lambda n: rng.randint(100, 200)
    )


def _held_its_rate(world: HiddenLimit, for_ms: int = 20_000) -> None:
    began = world.d.now_ms
    world.run(for_ms)
    assert world.admitted(began) >= 0.7 * A_MINUTE * for_ms / 60_000  # slow start may not be over
    assert world.refused(began) <= 0.1 * world.admitted(began) + 8


def test_a_lane_that_its_rate_limited_when_redis_stopped_keeps_its_rate(real_redis: Redis) -> None:
    world = _world(real_redis)
    world.run(3000)
    world.run(5000, until=lambda: world.d.lane_state("sim:fast").get("stop") == "requests")
    world.d.advance(123_000)
    _held_its_rate(world)


@pytest.mark.slow
def test_a_429_whose_report_waited_for_redis_does_not_slow_the_next_tries(real_redis: Redis) -> None:
    world = _world(real_redis)
    world.run(20_000, until=lambda: world.unreported() > 0)
    assert world.unreported() > 0
    world.d.advance(123_000)
    world.run(100)
    assert 0 < world.state("refusal_ms") < 2500
    _held_its_rate(world)


@pytest.mark.slow
def test_a_lane_that_was_rejected_when_redis_stopped_keeps_its_rate(real_redis: Redis) -> None:
    world = _world(real_redis)
    world.run(3000)
    world.run(20_000, until=lambda: world.d.lane_state("sim:fast").get("stop") == "blocked")
    assert world.d.lane_state("sim:fast")["stop"] == "blocked"
    world.d.advance(123_000)
    _held_its_rate(world)
    assert "requests_edges" not in world.d.lane_state("sim:fast")


@some
@given(
    early_ms=st.integers(300, 9000),
    stops_ms=st.lists(st.integers(1500, 200_000), min_size=1, max_size=3),
    apart_ms=st.integers(20, 2000),
    seed=st.integers(0, 1000),
)
@pytest.mark.slow
def test_a_lane_keeps_its_rate_whenever_and_however_long_redis_stops(
    real_redis: Redis, early_ms: int, stops_ms: list[int], apart_ms: int, seed: int
) -> None:
    world = _world(real_redis, seed)
    world.run(early_ms)
    for stop_ms in stops_ms:
        world.d.advance(stop_ms)
        world.run(apart_ms)
    world.run(3000)
    _held_its_rate(world)
