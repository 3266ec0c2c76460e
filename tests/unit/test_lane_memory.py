"""What the leader remembers of a lane is all that the lane's scripts need to go on from it."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.admission.memory import LaneMemory
from tests.support.deployment import Deployment


@pytest.mark.parametrize("found_by", ["refusals", "latency"])
def test_a_window_comes_back_with_what_it_was_found_by(redis: Redis, found_by: str) -> None:
    d = Deployment(redis)
    d.lane()
    learned = {"window": "6", "window_by": found_by, "window_age_ms": "100", "window_step": "2"}
    redis.hset(d.keys.lane("sim:fast"), mapping={"known_ms": d.now_ms, **learned})
    memory = LaneMemory(d.redis, d.keys)
    memory.refresh(["sim:fast"])

    redis.flushall()

    assert memory.restore(d.now_ms) == ["sim:fast"]
    assert redis.hmget(d.keys.lane("sim:fast"), *learned) == [value.encode() for value in learned.values()]
