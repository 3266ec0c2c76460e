"""Waiting for what a real process does: the one place in the tests where anything sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(predicate: Callable[[], T], timeout: float = 60.0, interval: float = 0.02) -> T:
    """What ``predicate`` returns once that is true; after ``timeout`` seconds the test fails."""
    deadline = time.monotonic() + timeout
    while not (result := predicate()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still {result!r} after {timeout:g} s: {predicate}")
        time.sleep(interval)  # noqa: TID251
    return result
