"""Waits in the foreground while a local stack is up: a signal ends it, and what died is started again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

LOOK_EVERY_S = 0.1


class Ticking(Protocol):
    """What is to be looked after meanwhile; `fairlane.local.keeper.Keeper` is one."""

    def tick(self) -> bool: ...


class WatchfulWaiter:
    """A client's waiter that goes on asking ``check``, which raises to end the wait, and ticks the keeper."""

    def __init__(self, check: Callable[[], None], keeper: Ticking) -> None:
        self._check, self._keeper = check, keeper
        self._pause = threading.Event()

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``; whatever ``check`` raises comes within `LOOK_EVERY_S`."""
        until = time.monotonic() + seconds
        while True:
            self._check()
            self._keeper.tick()
            left = until - time.monotonic()
            if left <= 0:
                return
            self._pause.wait(min(left, LOOK_EVERY_S))
