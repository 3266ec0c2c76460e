"""Datasets that runs name and the scheduler reads: a page at a time, in the background, a little ahead of
need.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fairlane.choices import Source
from fairlane.datasets import encode_page, pages
from fairlane.datasets.references import open_reference
from fairlane.errors import FairlaneError
from fairlane.events import Event
from fairlane.job import JobState
from fairlane.logs import get_logger
from fairlane.run import RunSpec, RunState
from fairlane.store.keys import RunRef
from fairlane.store.runs import Ending, Runs
from fairlane_scheduler.backlog import ActiveRun, Backlog
from fairlane_scheduler.extension import check_rows, extend
from fairlane_scheduler.server_time import Moment

PAGES_AHEAD = 4
LOOK_MS = 20  # while a page is being read
READERS = 4

log = get_logger("sources")


def check_source(spec: RunSpec, allowed: Sequence[str]) -> None:
    """Raises ``ValueError`` where a run names a dataset that does not lie where the operator allows it."""
    if spec.source is None:
        return
    if not spec.open:
        raise ValueError("source: a run whose rows the scheduler reads is open at first")
    url = spec.source.url
    if not any(_lies_in(url, place) for place in allowed):
        remedy = "the operator names the places in scheduler.datasets"
        raise ValueError(f"dataset: {url!r} does not lie where this deployment reads datasets; {remedy}")


def _lies_in(url: str, place: str) -> bool:
    there, here = urlsplit(url), urlsplit(place)
    if there.scheme not in ("", "file"):
        inside = url.startswith(place if place.endswith("/") else f"{place}/")
        return inside and ".." not in unquote(there.path).split("/")
    # Whole, as it is opened: what looks like a host, a query or a fragment is part of a plain path.
    path = Path(there.path if there.scheme else url)
    return here.scheme in ("", "file") and path.resolve().is_relative_to(
        Path(here.path if here.scheme else place).resolve()
    )


@dataclass(slots=True)
class _Reading:
    """One run's dataset: what is being read, and the pages that Redis still has."""

    pages: Iterator[list[dict[str, Any]]]
    count: int
    next: Future[list[dict[str, Any]] | None] | None = None
    kept: deque[int] = field(default_factory=deque)


class Sources:
    """Keeps runs supplied whose rows come from elsewhere; forgets pages whose items are over."""

    def __init__(self, runs: Runs, backlog: Backlog) -> None:
        self._runs, self._backlog = runs, backlog
        self._readings: dict[RunRef, _Reading] = {}
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="fairlane-source")

    def tick(self, moment: Moment, lanes: Callable[[], Sequence[str]]) -> int | None:
        """Take what was read and ask for more; milliseconds until it is to be looked again.

        ``lanes`` are all there are, should a run have to end.
        """
        waiting = False
        for run in self._backlog.runs():
            if run.plan.spec.source is None:
                continue
            try:
                waiting |= self._supply(run, run.plan.spec.source, moment)
                self._forget_pages(run)
            except (FairlaneError, OSError, ValueError) as error:
                self._give_up(run, f"dataset: {error}"[:500], lanes(), moment)
            if run.over:
                self._backlog.drop_run(run.ref)
        for ref in [ref for ref in self._readings if self._backlog.get(ref) is None]:
            del self._readings[ref]
        return LOOK_MS if waiting else None

    def forget_all(self) -> None:
        """Another may have led."""
        self._readings.clear()

    def _give_up(self, run: ActiveRun, reason: str, lanes: Sequence[str], moment: Moment) -> None:
        ending = Ending(RunState.STOPPED, JobState.SKIPPED, reason)
        left = self._runs.end(run.ref, lanes, ending, moment.epoch, moment.argument)
        told = {"run": run.ref.run, "team": run.ref.team, "jobs": left, "reason": reason}
        log.warning(Event.RUN_ENDED_EARLY, **told)
        run.over = True

    def _supply(self, run: ActiveRun, source: Source, moment: Moment) -> bool:
        """True while a page is being read."""
        if not run.open:
            return False
        reading = self._readings.get(run.ref) or self._begin(run, source)
        if reading.next is None:
            ahead = run.rows - run.cursor // run.plan.spec.cells_per_row
            if ahead >= PAGES_AHEAD * run.plan.spec.page_rows:
                return False
            reading.next = self._pool.submit(next, reading.pages, None)
        if not reading.next.done():
            return True
        page, reading.next = reading.next.result(), None
        if page is not None:
            check_rows(run.plan.spec, run.rows + len(page))
            self._runs.append(run.ref, reading.count, encode_page(page))
            reading.kept.append(reading.count)
            reading.count += 1
        extend(self._runs, run, run.rows + len(page or ()), moment, last=page is None)
        return run.open

    def _begin(self, run: ActiveRun, source: Source) -> _Reading:
        """Read from where the run is: whoever led before may have read some."""
        size = run.plan.spec.page_rows
        done = run.rows // size
        rows = islice(open_reference(source), done * size, None)
        reading = _Reading(pages(rows, size), done, kept=deque(range(done)))
        self._readings[run.ref] = reading
        return reading

    def _forget_pages(self, run: ActiveRun) -> None:
        """Whole pages of items that are over, from the first on; their rows can be read again."""
        reading, spec = self._readings.get(run.ref), run.plan.spec
        bits = spec.page_rows * spec.cells_per_row * spec.steps
        while reading and len(reading.kept) > 1:
            number = reading.kept[0]
            if self._runs.over_within(run.ref, number * bits // 8, (number + 1) * bits // 8 - 1) < bits:
                return
            self._runs.drop_page(run.ref, reading.kept.popleft())
