"""Clocks that code receives as an argument, so that tests run it under a manual one; and times in words.

The deployment's time never goes back. lua/lib/core/time.lua computes it in the same way.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


CATCH_UP = 100
"""While the deployment's time is ahead of Redis's clock, it runs slow by one part in so many."""

TIME_FIELDS = ("seen_ms", "ahead_ms", "from_ms")
"""Fields of the hash that keeps the deployment's time (`Keys.clock`)."""


class Clock(Protocol):
    """Reads the time. Durations are milliseconds inside Fairlane, seconds in its public API."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch; for records and logs, never for admission decisions."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never run backwards; for deadlines inside one process."""
        ...

    def cpu_ms(self) -> float:
        """CPU time of this thread so far, in milliseconds; waiting does not count."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def cpu_ms(self) -> float:
        """CPU time of this thread, in milliseconds."""
        return time.thread_time() * 1000


class ManualClock:
    """A clock that stands still until it is advanced: deterministic time for tests and simulation."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        """The time it was advanced to."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """The same time."""
        return self._now_ms

    def cpu_ms(self) -> float:
        """Always 0: work takes no time."""
        return 0.0

    def advance(self, seconds: float) -> None:
        """Move time forward by ``seconds``; raises ``ValueError`` for a negative amount."""
        if seconds < 0:
            raise ValueError(f"time only moves forward, got {seconds} s")
        self._now_ms += round(seconds * 1000)


def timestamp() -> str:
    """Now, as a log line has it: ISO 8601, for a line about an earlier event."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def span(milliseconds: float) -> str:
    """A duration in its largest unit, rounded down: ``"850 ms"``, ``"12 s"``, ``"3 min"``, ``"2 d"``."""
    whole = max(0, int(milliseconds))
    for unit_ms, unit in _UNITS:
        if whole >= unit_ms:
            return f"{whole // unit_ms} {unit}"
    return f"{whole} ms"


def until(at_ms: int, now_ms: int) -> str:
    """``"in 59 min"``; ``"now"`` for a moment in the past or less than a second away."""
    return f"in {span(at_ms - now_ms)}" if at_ms - now_ms >= 1000 else "now"


class DeploymentTime(NamedTuple):
    """Milliseconds since the epoch; ``ahead_ms`` is how far ``now_ms`` is ahead of Redis's own clock."""

    now_ms: int
    ahead_ms: int = 0


def time_at(redis_ms: int, noted: Sequence[bytes | None]) -> DeploymentTime:
    """The time when Redis's clock shows ``redis_ms``; ``noted`` has the values of `TIME_FIELDS`."""
    seen, ahead, since = (int(value or 0) for value in noted)
    if ahead:
        ahead = max(0, ahead - max(0, redis_ms - since) // CATCH_UP)
    now_ms = max(seen, redis_ms + ahead)
    return DeploymentTime(now_ms, now_ms - redis_ms)


def ahead_at(now_ms: int, noted: Sequence[bytes | None]) -> int:
    """Milliseconds by which the deployment's time ``now_ms`` is ahead of Redis's clock, which dates days."""
    _, ahead, since = (int(value or 0) for value in noted)
    return max(0, (CATCH_UP * ahead - max(0, now_ms - since)) // (CATCH_UP - 1)) if ahead else 0
