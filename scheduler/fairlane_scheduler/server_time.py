"""The time by which the scheduler decides: the Redis server's, or a manual clock's in a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fairlane.store.connect import RedisClient


class ServerTime(Protocol):
    """Where decisions take their time from: scripts and scheduler always from the same place."""

    def argument(self) -> str | int:
        """What scripts take as ``now_ms``."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...


class RedisTime:
    """The server's own clock: scripts read it themselves, so that a skewed machine does no harm."""

    def __init__(self, redis: RedisClient) -> None:
        self._redis = redis

    def argument(self) -> str:
        return ""

    def now_ms(self) -> int:
        seconds, micros = self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000


@dataclass(frozen=True, slots=True)
class Moment:
    """When one tick happens, and in which epoch. ``argument`` is what scripts take as ``now_ms``."""

    epoch: int
    monotonic_ms: int
    server_ms: int
    argument: str | int = ""
