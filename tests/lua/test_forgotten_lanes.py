"""A lane that nobody uses is forgotten whole; one in use, paused, limited or awaited never is."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from tests.support.deployment import Deployment

LANE = "sim:once"
HOUR_MS = 3_600_000


def used(redis: Redis) -> Deployment:
    """A lane that made one call, which has ended."""
    d = Deployment(redis)
    ref = d.queued_lane(1, LANE, max_concurrency=5)
    d.lanes.note_opener(LANE, "flood")
    (attempt,) = d.start(ref, lane=LANE)
    assert d.finish(attempt) is not None
    return d


def forget(d: Deployment, unused_ms: int = HOUR_MS) -> bool | None:
    return d.lanes.forget(LANE, d.epoch, unused_ms, d.now_ms)


def keys_of_lane(redis: Redis) -> set[bytes]:
    return {key for key in redis.scan_iter("*:lane:[^:]*") if b":history:" not in key}


def test_a_lane_without_use_leaves_nothing(real_redis: Redis) -> None:
    d = used(real_redis)
    assert not forget(d), "it was used just now"
    d.advance(HOUR_MS)
    assert forget(d)
    assert (d.lanes.names(), d.lanes.openers(), keys_of_lane(real_redis)) == ([], {}, set())
    assert not real_redis.hexists(d.keys.configured, LANE)


def test_a_forgotten_lane_starts_as_a_new_one(real_redis: Redis) -> None:
    d = used(real_redis)
    d.advance(HOUR_MS)
    forget(d)
    d.lane(LANE, max_concurrency=5)
    assert d.lanes.view(LANE).limits.max_concurrency == 5


def test_only_the_leader_forgets(real_redis: Redis) -> None:
    d = used(real_redis)
    d.advance(HOUR_MS)
    assert d.lanes.forget(LANE, d.epoch - 1, HOUR_MS, d.now_ms) is None
    assert d.lanes.names() == [LANE]


def test_a_lane_with_a_call_in_flight_stays(real_redis: Redis) -> None:
    d = used(real_redis)
    d.start(d.queued_lane(1, LANE, run="r2", max_concurrency=5), lane=LANE)
    d.advance(HOUR_MS)
    assert not forget(d)


@pytest.mark.parametrize("act", ["pause", "limit", "unlimit", "block", "day"])
def test_a_lane_with_an_operators_or_providers_limits_is_kept(real_redis: Redis, act: str) -> None:
    d = used(real_redis)
    d.advance(HOUR_MS)
    match act:
        case "pause":
            d.lanes.pause(LANE)
        case "limit":
            d.lanes.limit(LANE, {"requests_per_minute": 3})
        case "unlimit":
            d.lanes.limit(LANE, {"max_concurrency": None, "requests_per_minute": 3})
        case "block":
            real_redis.hset(d.keys.lane(LANE), "blocked_ms", d.now_ms + 1000)
        case _:
            real_redis.hset(
                d.keys.lane(LANE), mapping={"day_rate": 10, "day_used": 3, "day_until_ms": d.now_ms + 1000}
            )
    assert not forget(d)
    assert d.lanes.names() == [LANE]


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["call", "wait", "forget", "pause", "resume"]), st.integers(0, 90)),
        max_size=12,
    )
)
def test_a_lane_is_forgotten_only_when_it_was_unused_for_that_long(
    real_redis: Redis, steps: list[tuple[str, int]]
) -> None:
    real_redis.flushall()
    d = Deployment(real_redis)
    there = paused = False
    last_ms = 0
    for number, (step, minutes) in enumerate(steps):
        match step:
            case "call" if not paused:
                d.ask(d.queued_lane(1, LANE, run=f"r{number}"), LANE, room=0)
                there, last_ms = True, d.now_ms
            case "wait":
                d.advance(minutes * 60_000)
            case "pause" if there:
                d.lanes.pause(LANE)
                paused = True
            case "resume" if there:
                d.lanes.resume(LANE, d.now_ms)
                paused = False
            case "forget" if there:
                due = not paused and d.now_ms - last_ms >= HOUR_MS
                assert bool(forget(d)) == due
                there = not due
        assert (LANE in d.lanes.names()) == there
