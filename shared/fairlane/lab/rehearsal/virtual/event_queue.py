"""Orders the events of a simulation by time."""

import heapq
from collections.abc import Callable
from itertools import count

from fairlane.core.clock import ManualClock


class EventQueue:
    """Events by millisecond; those of one millisecond run in the order in which they were added."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    @property
    def now_ms(self) -> int:
        """The simulation's time."""
        return self._clock.now_ms()

    @property
    def next_ms(self) -> int | None:
        """The time of the next event; ``None`` without one."""
        return self._events[0][0] if self._events else None

    def at(self, at_ms: int, action: Callable[[], None]) -> None:
        """Run an action at this time, or now if that is past."""
        heapq.heappush(self._events, (at_ms, next(self._order), action))

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run an action ``delay_ms`` from now."""
        self.at(self._clock.now_ms() + delay_ms, action)

    def run_due(self) -> None:
        """Run all due events in order, with the ones that they add for now."""
        now_ms = self._clock.now_ms()
        while self._events and self._events[0][0] <= now_ms:
            heapq.heappop(self._events)[2]()
