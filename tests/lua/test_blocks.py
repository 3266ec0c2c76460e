"""Retry-After and back-off shut a lane for a while; nobody starts before, and nobody waits for more."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from tests.support.deployment import Deployment
from tests.support.redis import emptied


def _announced(*signals: str) -> st.SearchStrategy[list[Any]]:
    waits = st.tuples(st.integers(0, 3000), st.sampled_from(signals), st.integers(1, 20_000))
    return st.lists(waits, min_size=1, max_size=4)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(announced=_announced("ok", "answered", "broken") | _announced("limited", "overloaded", "broken"))
def test_any_retry_after_is_a_lower_bound(real_redis: Redis, announced: list[Any]) -> None:
    """A wait of a rejected call is one until the lane has answered: then a call tries (test_named_waits)."""
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=10)
    latest = 0
    for attempt, (wait_ms, signal, retry_after_ms) in zip(
        d.start(ref, len(announced)), announced, strict=True
    ):
        d.advance(wait_ms)
        d.defer(attempt, signal=signal, retry_after_ms=retry_after_ms)
        latest = max(latest, d.now_ms + retry_after_ms)
    while d.now_ms < latest:
        grant = d.ask(ref)
        assert (grant.permits, grant.reason) == ([], "blocked")
        assert grant.at_ms >= latest
        d.advance((grant.at_ms - d.now_ms + 1) // 2)
    d.advance(5000)
    assert d.ask(ref).permits


def test_retry_after_opens_the_lane_to_the_millisecond(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane()
    d.defer(d.start(ref)[0], signal="limited", retry_after_ms=2000)
    assert d.ask(ref).wait_ms == 2000
    d.advance(1999)
    assert not d.ask(ref).permits
    d.advance(1)
    assert d.ask(ref).permits


def test_a_shorter_retry_after_does_not_shorten_a_longer_one(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane()
    first, second = d.start(ref, 2)
    d.defer(first, signal="limited", retry_after_ms=9000)
    d.defer(second, signal="limited", retry_after_ms=10)
    assert d.ask(ref).wait_ms == 9000


def test_back_off_doubles_once_for_all_429s_of_a_burst(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    waits = []
    for _ in range(8):
        burst = d.start(ref, 5)
        d.advance(10)
        for attempt in burst:
            d.defer(attempt, signal="limited")
        waits.append(d.ask(ref).wait_ms)
        d.advance(waits[-1])
    assert waits == [100, 200, 400, 800, 1600, 3200, 5000, 5000]


def test_each_answer_shortens_the_streak_until_it_ends(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    d.defer(d.start(ref)[0], signal="overloaded")
    d.advance(100)
    d.defer(d.start(ref)[0], signal="overloaded")
    assert d.ask(ref).wait_ms == 200
    d.advance(200)
    for _ in range(4):
        d.finish(d.start(ref)[0])
    d.defer(d.start(ref)[0], signal="overloaded")
    assert d.ask(ref).wait_ms == 200, "four answers outweigh one of two signs"
    d.advance(200)
    for _ in range(9):
        d.finish(d.start(ref)[0])
    d.defer(d.start(ref)[0], signal="overloaded")
    assert d.ask(ref).wait_ms == 100


def test_a_block_outlasts_a_pause(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane()
    d.defer(d.start(ref)[0], signal="limited", retry_after_ms=5000)
    d.lanes.pause("sim:fast")
    assert (d.ask(ref).reason, d.ask(ref).at_ms) == ("paused", 0)
    d.lanes.resume("sim:fast", d.now_ms)
    assert (d.ask(ref).reason, d.ask(ref).wait_ms) == ("blocked", 5000)


def test_one_lane_that_is_blocked_slows_no_other(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    slow = d.queued_lane()
    fast = d.queued_lane(lane="sim:other", run="r2")
    d.defer(d.start(slow)[0], signal="limited", retry_after_ms=60_000)
    assert not d.ask(slow).permits
    assert len(d.ask(fast, lane="sim:other").permits) == 10
