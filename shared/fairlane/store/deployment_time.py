"""The deployment's time, which never goes back, outside of scripts: as lua/lib/core/time.lua has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlane.store.keys import Keys
from fairlane.store.redis_client import RedisClient

CATCH_UP = 100
"""While the deployment's time is ahead of Redis's, it runs slow by one part in so many."""

FIELDS = ("seen_ms", "ahead_ms", "from_ms")
"""Of the hash `Keys.clock`."""


class DeploymentTime(NamedTuple):
    """Milliseconds since the epoch; ``ahead_ms`` is how far ``now_ms`` is ahead of Redis's own clock."""

    now_ms: int
    ahead_ms: int = 0


def read_time(redis: RedisClient, keys: Keys) -> DeploymentTime:
    """The time now, in one round trip."""
    pipeline = redis.pipeline(transaction=False)
    pipeline.time()
    pipeline.hmget(keys.clock, *FIELDS)
    (seconds, micros), noted = pipeline.execute()
    return time_at(int(seconds) * 1000 + int(micros) // 1000, noted)


def time_at(redis_ms: int, noted: Sequence[bytes | None]) -> DeploymentTime:
    """The time when Redis's clock shows ``redis_ms``; ``noted`` has the values of `FIELDS`."""
    seen, ahead, since = (int(value or 0) for value in noted)
    if ahead:
        ahead = max(0, ahead - max(0, redis_ms - since) // CATCH_UP)
    now_ms = max(seen, redis_ms + ahead)
    return DeploymentTime(now_ms, now_ms - redis_ms)


def ahead_at(now_ms: int, noted: Sequence[bytes | None]) -> int:
    """How far the deployment's time ``now_ms`` is ahead of Redis's clock, whose are days of the calendar."""
    _, ahead, since = (int(value or 0) for value in noted)
    return max(0, (CATCH_UP * ahead - max(0, now_ms - since)) // (CATCH_UP - 1)) if ahead else 0
