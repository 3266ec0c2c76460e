"""Waiting for what other processes do, which no clock of ours can bring about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_until(predicate: Callable[[], bool], timeout: float, interval: float = 0.02) -> bool:
    """Ask ``predicate`` every ``interval`` seconds, for ``timeout`` at most; whether it came to say yes."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            return False
        pause.wait(interval)
    return True
