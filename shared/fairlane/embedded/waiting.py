"""Waiting for what other processes do, which no clock of ours can bring about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_until(predicate: Callable[[], bool], timeout: float, interval: float = 0.02) -> bool:
    """Call ``predicate`` every ``interval`` seconds until it is true or ``timeout`` passed; return which."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            return False
        pause.wait(interval)
    return True
