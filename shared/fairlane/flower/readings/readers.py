"""The readers that all pages of one Flower process share, with results cached for a second."""

import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

from fairlane.client.deployment import Deployment
from fairlane.core.lru import Lru
from fairlane.flower.readings.item_page import ItemPage
from fairlane.flower.readings.lane_board import LaneBoard
from fairlane.flower.readings.run_list import RunList
from fairlane.flower.readings.run_page import RunPage
from fairlane.flower.readings.tallies import Tallies
from fairlane.flower.readings.team_board import TeamBoard

T = TypeVar("T")

THREADS = 4
FRESH_S = 1.0
KEPT = 200
"""Most cached readings; the least recently used go."""


class SharedReading:
    """Runs blocking reads in a few threads, so that Flower's loop stays free."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._lock = now, Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="fairlane-reading")
        self._readings = Lru[Hashable, tuple[float, Future[Any]]](KEPT)

    def submit(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run ``work`` for this caller only, without the cache."""
        return self._threads.submit(work, *arguments)

    def read(self, work: Callable[..., T], *arguments: Hashable) -> Future[T]:
        """The result of ``work`` for these arguments, which runs at most once a second and never twice at
        once.
        """
        key = (work, *arguments)
        with self._lock:
            begun_s, reading = self._readings.get(key) or (0.0, None)
            if reading is None or (reading.done() and self._now() - begun_s >= FRESH_S):
                begun_s, reading = self._now(), self._threads.submit(work, *arguments)
            self._readings.put(key, (begun_s, reading))
        return reading

    def close(self) -> None:
        """End the threads once they are done."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Readers:
    """One reader for each page; `installing` makes them once."""

    def __init__(self, deployment: Deployment, *, show_text: bool) -> None:
        """``show_text`` allows rows and outputs on pages."""
        tallies = Tallies(deployment)
        self.deployment, self.readings = deployment, SharedReading()
        self.lanes = LaneBoard(deployment, show_text=show_text)
        self.runs = RunList(deployment, tallies, show_text=show_text)
        self.run = RunPage(deployment, self.runs, tallies, show_text=show_text)
        self.item = ItemPage(deployment, self.runs, show_text=show_text)
        self.teams = TeamBoard(deployment)
