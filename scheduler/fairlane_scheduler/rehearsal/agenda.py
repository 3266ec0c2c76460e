"""What is going to happen, and when: the order of a simulation's events."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from fairlane.clock import ManualClock


class Agenda:
    """Events by the millisecond; those of one millisecond happen in the order in which they were entered."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    @property
    def next_ms(self) -> int | None:
        """When the next event is, ``None`` where there is none."""
        return self._events[0][0] if self._events else None

    def at(self, at_ms: int, action: Callable[[], None]) -> None:
        """Let something happen at that moment, or now if it is over."""
        heapq.heappush(self._events, (at_ms, next(self._order), action))

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Let something happen ``delay_ms`` from now."""
        self.at(self._clock.now_ms() + delay_ms, action)

    def happen(self) -> None:
        """Everything that is due, in order, and what it brings about at once."""
        now_ms = self._clock.now_ms()
        while self._events and self._events[0][0] <= now_ms:
            heapq.heappop(self._events)[2]()
