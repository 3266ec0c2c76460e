"""A heartbeat sends Redis few commands, however many calls its worker has in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from redis import Redis

from fairlane.store.write.workers import WorkerInfo
from tests.support.deployment import LEASE_MS, Deployment

INFO = WorkerInfo("w1", slots=4, lanes=("sim:fast",), version="1", pid=7, host="h", started_ms=1)


def sent(redis: Redis, act: Callable[[], object]) -> Counter[str]:
    """How often Redis ran each command while ``act`` ran."""

    def counts() -> Counter[str]:
        return Counter({name[8:]: int(each["calls"]) for name, each in redis.info("commandstats").items()})

    before = counts()
    act()
    return counts() - before


@pytest.mark.parametrize("held", [7, 1205])
def test_a_beat_keeps_a_thousand_leases_in_one_step(real_redis: Redis, held: int) -> None:
    d = Deployment(real_redis)
    attempts = [attempt.id for attempt in d.start(d.queued_lane(jobs=held), held)]
    beat = d.workers.beat("w1", INFO, [*attempts, "lost"], LEASE_MS, changed=False, now_ms=d.now_ms)
    steps = -(-(held + 1) // 1000)
    found = sent(real_redis, lambda: beat.run(real_redis) == [b"lost"])
    assert (found["zadd"], found["hget"]) == (steps, 0)
    assert beat.run(real_redis) == [b"lost"]
