"""Health for probes: whether the loop runs, and whether this scheduler leads or could lead.

A scheduler is not ready while Redis takes no writes: it leads, and can start nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlane.core.clock import Clock
from fairlane.store.connection.server_states import Refusal
from fairlane.telemetry.metrics_server import Pulse

STUCK_S = 75.0
"""Far beyond the longest wait for Redis, so that a Redis that is away restarts no scheduler."""

SPARE_S = 5.0


class SchedulerHealth:
    """Notes each pass of the loop, and each that succeeded. ``refusing`` says why Redis takes no writes."""

    def __init__(
        self,
        clock: Clock,
        leader_lease_s: float,
        observe: Callable[[float], None],
        refusing: Callable[[], Refusal | None] = lambda: None,
    ) -> None:
        self._turned, self._ticked = Pulse(clock), Pulse(clock)
        self._patience_s = leader_lease_s + SPARE_S
        self._observe, self._refusing = observe, refusing
        self._trouble: str | None = None

    def turned(self) -> None:
        """The loop begins another pass, or waits for Redis."""
        self._turned.beat()

    def ticked(self, seconds: float) -> None:
        """A pass has succeeded: Redis answered, and this scheduler leads or stands by."""
        self._ticked.beat()
        self._trouble = None
        self._observe(seconds)

    def failed(self, why: str) -> None:
        """A pass has failed at Redis; ``why`` says so in words."""
        self._trouble = why

    def silent_s(self) -> float | None:
        """Seconds since the loop has turned; ``None`` before its first turn."""
        return self._turned.silent_s()

    def sick(self) -> str | None:
        """See `Health`."""
        silent_s = self.silent_s()
        if silent_s is None or silent_s <= STUCK_S:
            return None
        return f"the loop has not turned for {silent_s:.0f} s"

    def unready(self) -> str | None:
        """See `Health`."""
        silent_s = self._ticked.silent_s()
        if silent_s is None:
            return (
                f"no pass has succeeded yet: {self._trouble}"
                if self._trouble
                else "no pass has succeeded yet"
            )
        if silent_s > self._patience_s:
            return f"no pass has succeeded for {silent_s:.0f} s: {self._trouble or 'is Redis there?'}"
        refusing = self._refusing()
        return None if refusing is None else refusing.problem
