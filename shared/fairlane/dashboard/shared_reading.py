"""Readings that are shared: whatever number of browsers look, one answer serves all of them for a moment."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")

THREADS = 4
FRESH_S = 1.0
KEPT = 200
"""Readings that are kept at most; those asked for least lately go."""


class SharedReading:
    """Runs what blocks in a few threads of its own, so that Flower's loop and its other work go on."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._lock = now, Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="fairlane-reading")
        self._readings: OrderedDict[Hashable, tuple[float, Future[Any]]] = OrderedDict()

    def submit(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run it once, for this caller alone."""
        return self._threads.submit(work, *arguments)

    def read(self, work: Callable[..., T], *arguments: Hashable) -> Future[T]:
        """What ``work`` returns for these arguments: one call a second at most, and never two at once."""
        key = (work, *arguments)
        with self._lock:
            begun_s, reading = self._readings.get(key, (0.0, None))
            if reading is None or (reading.done() and self._now() - begun_s >= FRESH_S):
                begun_s, reading = self._now(), self._threads.submit(work, *arguments)
            self._readings[key] = begun_s, reading
            self._readings.move_to_end(key)
            while len(self._readings) > KEPT:
                self._readings.popitem(last=False)
        return reading

    def close(self) -> None:
        """End the threads once they are done."""
        self._threads.shutdown(wait=False, cancel_futures=True)
