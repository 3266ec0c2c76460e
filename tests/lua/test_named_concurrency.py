"""429s that name how many calls a provider takes at once: that many start, and seldom one more."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from fairlane.model.run import RunRef
from tests.support.deployment import Deployment
from tests.support.hidden_limit import HiddenLimit, Places, hints
from tests.support.redis import emptied


def _named(d: Deployment, ref: RunRef, limit: Places) -> HiddenLimit:
    """A lane whose 429s name the limit of calls at once that is in force."""

    def announced(_: int, admitted: bool) -> dict[str, Any]:
        if admitted:
            return {}
        return {"hints": hints(concurrency=(limit.at_once, None, None), exhausted="concurrency")}

    return HiddenLimit(d, ref, limit, latency_ms=lambda _: 1000, announced=announced)


@pytest.mark.parametrize("at_once", [1, 3, 20])
@pytest.mark.slow(seconds=6)
def test_a_named_limit_of_calls_at_once_is_kept_and_rarely_tried(real_redis: Redis, at_once: int) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=6000, requests_per_minute=None)
    world = _named(d, ref, Places(at_once))
    world.run(10_000)
    early, since_ms = world.refused(), d.now_ms
    world.run(240_000)
    assert world.admitted(since_ms) >= 0.95 * 240 * at_once
    assert (early <= 40, world.refused(since_ms)) == (True, 0)


@pytest.mark.slow(seconds=8)
def test_a_named_limit_of_calls_at_once_that_rises_is_found(real_redis: Redis) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=9000, requests_per_minute=None)
    limit = Places(2)
    world = _named(d, ref, limit)
    world.run(60_000)
    limit.at_once = 12
    world.run(400_000)
    refused, since_ms = world.refused(), d.now_ms
    world.run(100_000)
    assert world.admitted(since_ms) >= 0.95 * 100 * 12
    assert world.refused() - refused <= 3
