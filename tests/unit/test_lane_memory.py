"""What the leader remembers of a lane is all that the lane's scripts need to go on from it."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.store.write.lanes.lane_memory import LaneMemory
from tests.support.deployment import Deployment


@pytest.mark.parametrize("found_by", ["refusals", "latency"])
def test_a_window_is_restored_with_its_source(redis: Redis, found_by: str) -> None:
    d = Deployment(redis)
    d.lane()
    learned = {"window": "6", "window_by": found_by, "window_age_ms": "100", "window_step": "2"}
    redis.hset(d.keys.lane("sim:fast"), mapping={"known_ms": d.now_ms, **learned})
    memory = LaneMemory(d.redis, d.keys)
    memory.refresh(["sim:fast"])

    redis.flushall()

    assert memory.restore(d.now_ms) == ["sim:fast"]
    assert redis.hmget(d.keys.lane("sim:fast"), *learned) == [value.encode() for value in learned.values()]


def test_the_plan_of_the_next_probe_is_restored(redis: Redis) -> None:
    d = Deployment(redis)
    d.lane()
    plan = {"back_ms": "45000", "slow": "0", "window": "0", "cost": "2.5", "put_off": "1.3", "steady": "1"}
    learned = {f"requests_{name}": value for name, value in plan.items()}
    known = {"known_ms": d.now_ms, "requests_est": "600", "requests_age_ms": "100", **learned}
    redis.hset(d.keys.lane("sim:fast"), mapping={**known})
    memory = LaneMemory(d.redis, d.keys)
    memory.refresh(["sim:fast"])

    redis.flushall()

    assert memory.restore(d.now_ms) == ["sim:fast"]
    assert redis.hmget(d.keys.lane("sim:fast"), *learned) == [value.encode() for value in learned.values()]
