"""What is done again and again in a thread of its own, so that no tick waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

STOP_S = 5.0


class Rounds:
    """Calls ``once`` until it is stopped, each time after as many seconds as the last one returned.

    ``close`` is called when the thread has ended: what it used may be closed then. ``once`` raises nothing.
    """

    def __init__(self, name: str, once: Callable[[], float], close: Callable[[], None]) -> None:
        self._once, self._close = once, close
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name=f"fairlane-{name}", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread has begun and not ended."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """End soon; a round that waits for a server is not waited for."""
        self._stopping.set()
        if self.alive:
            self._thread.join(STOP_S)
        if not self.alive:
            self._close()

    def ends_within(self, seconds: float) -> bool:
        """Wait so long at most; whether it is time to end."""
        return self._stopping.wait(seconds)

    def _go_on(self) -> None:
        pause_s = 0.0
        while not self.ends_within(pause_s):
            pause_s = self._once()
