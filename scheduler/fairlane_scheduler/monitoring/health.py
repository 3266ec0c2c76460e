"""Whether this scheduler's loop turns, and whether it could lead or does: what probes ask."""

from __future__ import annotations

from collections.abc import Callable

from fairlane.clock import Clock
from fairlane.metrics_server import Pulse

STUCK_S = 75.0
"""Twice as long as a call to Redis may take (35 s), so that a Redis which is away makes nobody restart."""

SPARE_S = 5.0


class SchedulerHealth:
    """Hears of each pass of the loop, and of each that succeeded."""

    def __init__(self, clock: Clock, leader_lease_s: float, observe: Callable[[float], None]) -> None:
        self._turned, self._ticked = Pulse(clock), Pulse(clock)
        self._patience_s = leader_lease_s + SPARE_S
        self._observe = observe

    def turned(self) -> None:
        """The loop begins another pass, or waits for Redis to come back."""
        self._turned.beat()

    def ticked(self, seconds: float) -> None:
        """A pass has succeeded: Redis answered, and this scheduler leads or stands by."""
        self._ticked.beat()
        self._observe(seconds)

    def sick(self) -> str | None:
        """See `Health`."""
        silent_s = self._turned.silent_s()
        if silent_s is None or silent_s <= STUCK_S:
            return None
        return f"the loop has not turned for {silent_s:.0f} s"

    def unready(self) -> str | None:
        """See `Health`."""
        silent_s = self._ticked.silent_s()
        if silent_s is None:
            return "no pass has succeeded yet"
        if silent_s > self._patience_s:
            return f"no pass has succeeded for {silent_s:.0f} s: is Redis there?"
        return None
