"""Health of this worker for probes: its event loop turns, it sends heartbeats, it consumes its queues."""

import time
from collections.abc import Callable

from fairlane.core.clock import Clock
from fairlane.telemetry.metrics_server import Pulse
from fairlane_workers.transport.pause import Pause, sleep

TURN_S = 1.0
STUCK_S = 30.0
"""Nothing on the loop may take a second, so a loop that is silent for this long is stuck."""


class WorkerHealth:
    """Answers `/healthz` and `/readyz`. ``consumes`` says whether the lanes' queues are being consumed,
    ``trouble`` why Redis takes no commands, ``drained`` whether an operator asked for no new calls.
    """

    def __init__(
        self,
        clock: Clock,
        worker_timeout_s: float,
        consumes: Callable[[], bool],
        observe: Callable[[float], None],
        pause: Pause = sleep,
        trouble: Callable[[], str | None] = lambda: None,
        drained: Callable[[], bool] = lambda: False,
    ) -> None:
        self._turned, self._beaten = Pulse(clock), Pulse(clock)
        self._timeout_s, self._consumes = worker_timeout_s, consumes
        self._observe, self._pause, self._trouble = observe, pause, trouble
        self._drained = drained
        self.stopping = False

    async def turn(self) -> None:
        """Turn with the loop until cancelled; pass its lateness in seconds to ``observe`` each time."""
        while True:
            self._turned.beat()
            started = time.perf_counter()
            await self._pause(TURN_S)
            self._observe(max(0.0, time.perf_counter() - started - TURN_S))

    def beaten(self) -> None:
        """Note that Redis has accepted a heartbeat."""
        self._beaten.beat()

    def silent_s(self) -> float | None:
        """Seconds since the loop has turned; ``None`` before its first turn."""
        return self._turned.silent_s()

    def sick(self) -> str | None:
        """See `Health`."""
        silent_s = self.silent_s()
        if silent_s is None or silent_s <= STUCK_S:
            return None
        return f"the event loop has not turned for {silent_s:.0f} s"

    @property
    def lost(self) -> bool:
        """Whether the loop has not turned for so long that the scheduler counts this worker as lost."""
        silent_s = self._turned.silent_s()
        return silent_s is not None and silent_s > self._timeout_s

    def unready(self) -> str | None:
        """See `Health`."""
        if self.stopping:
            return "it stops"
        silent_s = self._beaten.silent_s()
        trouble = self._trouble()
        why = f": {trouble}" if trouble else ""
        if silent_s is None:
            return f"no heartbeat has reached Redis yet{why}"
        if silent_s > self._timeout_s:
            return f"no heartbeat has reached Redis for {silent_s:.0f} s{why}"
        if self._drained():
            return "an operator drains it: `fairlane drain --undo` with its name has it take work again"
        return None if self._consumes() else f"it does not consume{why or ': is the broker there?'}"
