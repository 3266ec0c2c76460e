"""Runs a function periodically in a background thread, so that the scheduler loop never waits for it."""

import threading
from collections.abc import Callable

STOP_S = 5.0


class PeriodicThread:
    """Calls ``work`` until `stop`; each call returns how many seconds to wait before the next.

    Calls ``close`` after the thread has ended, to close what ``work`` used. ``work`` must raise nothing.
    """

    def __init__(self, name: str, work: Callable[[], float], close: Callable[[], None]) -> None:
        self._work = work
        self._close = close
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"fairlane-{name}", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread has started and not ended."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits at most `STOP_S` for a call that waits for a server."""
        self._stopping.set()
        if self.alive:
            self._thread.join(STOP_S)
        if not self.alive:
            self._close()

    def ends_within(self, seconds: float) -> bool:
        """Wait at most so long; whether `stop` was called."""
        return self._stopping.wait(seconds)

    def _run(self) -> None:
        pause_s = 0.0
        while not self.ends_within(pause_s):
            pause_s = self._work()
