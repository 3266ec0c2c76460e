"""Time as a value that is passed in, so that logic runs under a manual clock in tests."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the code may ask about time. Durations are milliseconds inside, seconds in the public API."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch; for records and logs, never for admission decisions."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never run backwards; for deadlines inside one process."""
        ...

    def worked_ms(self) -> float:
        """How long this thread has worked so far, without what it has waited for."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def worked_ms(self) -> float:
        return time.thread_time() * 1000


class ManualClock:
    """A clock that stands still until it is advanced: deterministic time for tests and simulation."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def worked_ms(self) -> float:
        """No work takes any time."""
        return 0.0

    def advance(self, seconds: float) -> None:
        """Move time forward by ``seconds``; raises ``ValueError`` for a negative amount."""
        if seconds < 0:
            raise ValueError(f"time only moves forward, got {seconds} s")
        self._now_ms += round(seconds * 1000)
