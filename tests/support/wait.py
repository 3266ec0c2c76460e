"""Waits for real processes. Only this file of the tests may sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(predicate: Callable[[], T], timeout: float = 60.0, interval: float = 0.02) -> T:
    """Wait until ``predicate`` returns a true value, and return it. Fails after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not (result := predicate()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still {result!r} after {timeout:g} s: {predicate}")
        time.sleep(interval)  # noqa: TID251
    return result
