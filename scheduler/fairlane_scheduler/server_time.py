"""The time by which the scheduler decides: the Redis server's, or a manual clock's in a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fairlane.clock import Clock
from fairlane.store.connect import RedisClient

ASK_AGAIN_MS = 1000


class ServerTime(Protocol):
    """Where decisions take their time from: scripts and scheduler always from the same place."""

    def argument(self) -> str | int:
        """What scripts take as ``now_ms``."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...


class RedisTime:
    """The server's own clock: scripts read it themselves, so that a skewed machine does no harm.

    What is read here only says when to look; it is asked for once a second and carried on in between.
    """

    def __init__(self, redis: RedisClient, clock: Clock) -> None:
        self._redis, self._clock = redis, clock
        self._asked_ms: int | None = None
        self._answer_ms = 0

    def argument(self) -> str:
        return ""

    def now_ms(self) -> int:
        local = self._clock.monotonic_ms()
        if self._asked_ms is None or local - self._asked_ms >= ASK_AGAIN_MS:
            seconds, micros = self._redis.time()
            self._asked_ms, self._answer_ms = local, int(seconds) * 1000 + int(micros) // 1000
        return self._answer_ms + local - self._asked_ms


@dataclass(frozen=True, slots=True)
class Moment:
    """When one tick happens, and in which epoch. ``argument`` is what scripts take as ``now_ms``."""

    epoch: int
    monotonic_ms: int
    server_ms: int
    argument: str | int = ""
