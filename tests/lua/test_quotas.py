"""A quota says how many calls are left until when: a lane keeps to it, and forgets one that says nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis import Redis

from tests.support.deployment import Deployment
from tests.support.hidden_limit import Everything, HiddenLimit, Limit, Sliding, Window, hints
from tests.support.redis import emptied

MINUTE_MS = 60_000
COUNT = 120
Announced = Callable[[int, bool], Mapping[str, Any]]
on_real_redis = settings(
    max_examples=6,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=set(Phase) - {Phase.explain},
)


def _world(redis: Redis, limit: Limit, announced: Announced, **more: Any) -> HiddenLimit:
    d = Deployment(emptied(redis))
    return HiddenLimit(d, d.unknown_lane(jobs=12_000), limit, announced=announced, **more)


def _quota(left: float, reset_ms: float, admitted: bool) -> Mapping[str, Any]:
    named = {} if admitted else {"exhausted": "unnamed"}
    return {"hints": hints(unnamed=(None, max(0.0, left), max(1, round(reset_ms))), **named)}


def _of_window(window: Window, *, rounded: bool = False) -> Announced:
    """What a fixed window's answers report: what is left of it, until when it ends."""

    def announced(now_ms: int, admitted: bool) -> Mapping[str, Any]:
        minute, gone_ms = divmod(now_ms - window.offset_ms, MINUTE_MS)
        reset_ms = MINUTE_MS - gone_ms
        shown_ms = -(-reset_ms // 1000) * 1000 if rounded else reset_ms
        return _quota(window.per_minute - window.taken.get(minute, 0), shown_ms, admitted)

    return announced


@pytest.mark.slow(seconds=10)
@on_real_redis
@given(
    offset_ms=st.integers(0, MINUTE_MS - 1),
    rounded=st.booleans(),
    latency_ms=st.sampled_from([50, 300, 2000]),
    unsent=st.sampled_from([0.0, 0.05]),
    seed=st.integers(0, 1000),
)
def test_each_quota_window_is_used_up_with_hardly_any_rejection(
    real_redis: Redis, offset_ms: int, rounded: bool, latency_ms: int, unsent: float, seed: int
) -> None:
    window, rng = Window(COUNT, offset_ms), random.Random(seed)
    world = _world(
        real_redis,
        window,
        _of_window(window, rounded=rounded),
        latency_ms=lambda n: round(latency_ms * rng.uniform(0.7, 1.4)),
        is_sent=lambda: rng.random() >= unsent,
    )
    world.run(4 * MINUTE_MS)
    whole = [taken for minute, taken in sorted(window.taken.items())][1:-1]
    assert min(whole) >= 0.97 * COUNT
    # One call proves the quota; a few overtake those that were to be the last.
    assert world.refused() <= 1 + 0.02 * world.admitted()


def test_calls_that_overtake_each_other_do_not_refute_a_quota(real_redis: Redis) -> None:
    """A server counts them as they arrive: a later permit may report that more is left."""
    window, shown, worlds = Window(COUNT), random.Random(5), list[HiddenLimit]()

    def announced(now_ms: int, admitted: bool) -> Mapping[str, Any]:
        ends = dict(_of_window(window)(now_ms, admitted))
        _, left, reset_ms = ends["hints"].axes["unnamed"]
        before = shown.randint(0, worlds[0].inside) if left else 0
        return _quota(left + before, reset_ms, admitted) if admitted else ends

    world = _world(real_redis, window, announced)
    worlds.append(world)
    world.run(MINUTE_MS)
    assert world.state("quota_proved") == 1
    assert world.refused() <= 12


def test_calls_of_others_count_as_well(real_redis: Redis) -> None:
    window = Window(COUNT)
    others = random.Random(3)

    def announced(now_ms: int, admitted: bool) -> Mapping[str, Any]:
        if others.random() < 0.3:
            window.admit(now_ms, 0)
        return _of_window(window)(now_ms, admitted)

    world = _world(real_redis, window, announced)
    world.run(3 * MINUTE_MS)
    assert world.refused() <= 8


LIES: dict[str, Announced] = {
    "nothing is ever left": lambda now_ms, admitted: _quota(0, 30_000, admitted),
    "as many are always left": lambda now_ms, admitted: _quota(3, MINUTE_MS - now_ms % MINUTE_MS, admitted),
    "a bucket that refills in a minute": lambda now_ms, admitted: _quota(2, 60_000, admitted),
    "an end that is long past": lambda now_ms, admitted: _quota(0, 1, admitted),
    "an end in a year": lambda now_ms, admitted: _quota(0, 31_000_000_000, admitted),
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
def test_a_reported_quota_that_never_falls_slows_nothing_down(real_redis: Redis, lie: str) -> None:
    without = _world(real_redis, Everything(), lambda now_ms, admitted: {})
    without.run(3000)
    world = _world(real_redis, Everything(), LIES[lie])
    world.run(3000)
    assert world.admitted() >= 0.9 * without.admitted()


def test_a_quota_that_nobody_enforces_costs_two_waits(real_redis: Redis) -> None:
    """It falls with each call, as a soft limit does: two calls beyond it are answered, and that is all."""
    window = Window(20)

    def announced(now_ms: int, admitted: bool) -> Mapping[str, Any]:
        window.admit(now_ms, 0)
        return _of_window(window)(now_ms, admitted)

    world = _world(real_redis, Everything(), announced)
    world.run(3000)
    assert world.state("quota_proved") == -1
    assert world.admitted() > 100


@pytest.mark.slow
def test_a_sliding_window_that_reports_its_oldest_call_is_used(real_redis: Redis) -> None:
    sliding = Sliding(COUNT)

    def announced(now_ms: int, admitted: bool) -> Mapping[str, Any]:
        oldest_ms = sliding.taken[0] if sliding.taken else now_ms
        return _quota(COUNT - len(sliding.taken), oldest_ms + MINUTE_MS - now_ms, admitted)

    world = _world(real_redis, sliding, announced)
    world.run(5 * MINUTE_MS)
    assert world.admitted(world.d.now_ms - 3 * MINUTE_MS) >= 0.9 * 3 * COUNT
    assert world.refused() <= 0.2 * world.admitted()
