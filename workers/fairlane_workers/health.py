"""Whether this worker's event loop turns, and whether it beats and consumes: what probes ask."""

from __future__ import annotations

import time
from collections.abc import Callable

from fairlane.clock import Clock
from fairlane.metrics_server import Pulse
from fairlane_workers.pause import Pause, sleep

TURN_S = 1.0
STUCK_S = 30.0
"""Nothing that runs on the loop may take a second; what takes this long will not end."""


class WorkerHealth:
    """``consumes`` says whether the lanes' queues are being listened to."""

    def __init__(
        self,
        clock: Clock,
        worker_timeout_s: float,
        consumes: Callable[[], bool],
        observe: Callable[[float], None],
        pause: Pause = sleep,
    ) -> None:
        self._turned, self._beaten = Pulse(clock), Pulse(clock)
        self._timeout_s, self._consumes = worker_timeout_s, consumes
        self._observe, self._pause = observe, pause
        self.stopping = False

    async def turn(self) -> None:
        """Turn with the loop until cancelled, and tell how late it is each time."""
        while True:
            self._turned.beat()
            started = time.perf_counter()
            await self._pause(TURN_S)
            self._observe(max(0.0, time.perf_counter() - started - TURN_S))

    def beaten(self) -> None:
        """Redis has taken a heartbeat."""
        self._beaten.beat()

    def sick(self) -> str | None:
        """See `Health`."""
        silent_s = self._turned.silent_s()
        if silent_s is None or silent_s <= STUCK_S:
            return None
        return f"the event loop has not turned for {silent_s:.0f} s"

    def unready(self) -> str | None:
        """See `Health`."""
        if self.stopping:
            return "it stops"
        silent_s = self._beaten.silent_s()
        if silent_s is None:
            return "no heartbeat has reached Redis yet"
        if silent_s > self._timeout_s:
            return f"no heartbeat has reached Redis for {silent_s:.0f} s"
        return None if self._consumes() else "it does not consume: is the broker there?"
