"""Reads datasets that runs refer to: a page at a time, in background threads, a few pages ahead."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fairlane.core.daemon_threads import DaemonThreads, NoThread
from fairlane.core.errors import FairlaneError
from fairlane.core.events import Event
from fairlane.datasets.references import SourcePages, digest_of
from fairlane.datasets.rows import MAX_ROW_BYTES, encode_page
from fairlane.model.choices import Source
from fairlane.model.ending import Ending
from fairlane.model.job import JobState
from fairlane.model.run import RunRef, RunState
from fairlane.store.write.runs.runs import ReadPage, Runs
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.intake.admission import check_jobs, check_pages
from fairlane_scheduler.intake.run_requests import extend
from fairlane_scheduler.state.backlog import ActiveRun, Backlog
from fairlane_scheduler.state.server_time import Moment

PAGES_AHEAD = 4
LOOK_MS = 20  # until the next look while a page is being read
READERS = 4

log = get_logger("sources")


@dataclass(slots=True)
class _Reading:
    """One run's dataset: the page being read, and the pages that Redis still has."""

    pages: Iterator[list[dict[str, Any]]]
    count: int
    next: Future[tuple[Any, BaseException | None]] | None = None
    kept: deque[int] = field(default_factory=deque)


class Sources:
    """Adds rows to runs that read a dataset; deletes pages whose items have finished.

    ``readings``: open datasets, by run. While there are none, and no run reads one, `tick` has nothing to do.
    """

    def __init__(self, runs: Runs, backlog: Backlog, row_bytes: int = MAX_ROW_BYTES) -> None:
        """``row_bytes``: size of the largest row that is accepted, as JSON."""
        self._runs, self._backlog, self._row_bytes = runs, backlog, row_bytes
        self.readings: dict[RunRef, _Reading] = {}
        self._threads = DaemonThreads(READERS, "fairlane-source")  # a dataset may never answer

    def tick(self, moment: Moment, lanes: Callable[[], Sequence[str]]) -> int | None:
        """Store the pages that were read, and start to read more. Returns milliseconds until the next call.

        ``lanes`` returns all lanes, which are needed if a run has to end.
        """
        waiting = False
        for run, source in list(self._backlog.sourced.values()):
            try:
                waiting |= self._supply(run, source, moment)
                self._forget_pages(run)
            except (FairlaneError, OSError, ValueError) as error:
                self._give_up(run, f"dataset: {str(error).removeprefix('dataset: ')}"[:500], lanes(), moment)
            if run.ended:
                self._backlog.drop_run(run.ref)
        for ref in [ref for ref in self.readings if ref not in self._backlog.sourced]:
            del self.readings[ref]
        return LOOK_MS if waiting else None

    def forget_all(self) -> None:
        """Drop all open datasets: another scheduler may have led."""
        self.readings.clear()

    def _give_up(self, run: ActiveRun, reason: str, lanes: Sequence[str], moment: Moment) -> None:
        ending = Ending(RunState.STOPPED, JobState.SKIPPED, reason)
        left = self._runs.end(run.ref, lanes, ending, moment.epoch, moment.argument)
        log.warning(Event.RUN_ENDED_EARLY, run=run.ref.run, team=run.ref.team, jobs=left, reason=reason)
        run.ended = True

    def _supply(self, run: ActiveRun, source: Source, moment: Moment) -> bool:
        """Start to read a page, or store it; true while a page is being read."""
        if not run.open:
            return False
        reading = self.readings.get(run.ref) or self._begin(run, source)
        if reading.next is None:
            if run.rows_ahead >= PAGES_AHEAD * run.plan.spec.page_rows:
                return False
            reading.next = self._threads.submit(partial(next, reading.pages, [])).ended
        if not reading.next.done():
            return True
        (page, error), reading.next = reading.next.result(), None
        if isinstance(error, NoThread):
            return True
        if error is not None:
            del self.readings[run.ref]  # a generator that raised looks like a dataset's end
            raise error
        self._store(run, reading, page, moment)
        return run.open

    def _store(self, run: ActiveRun, reading: _Reading, page: list[dict[str, Any]], moment: Moment) -> None:
        """Store a page and count its rows. A page that is not full, or empty, is the last."""
        rows, last = run.rows + len(page), len(page) < run.plan.spec.page_rows
        check_jobs(run.plan.spec, rows)
        check_pages(run.plan.spec, rows)
        stored = ReadPage(reading.count, encode_page(page), digest_of(page)) if page else None
        if not extend(self._runs, run, rows, moment, last=last, page=stored):
            del self.readings[run.ref]  # the next reading begins after the rows that Redis has
        elif page:
            reading.kept.append(reading.count)
            reading.count += 1

    def _begin(self, run: ActiveRun, source: Source) -> _Reading:
        """Read on after the run's rows so far, which an earlier leader may have read.

        If their last page is not full, that leader had found the dataset's end.
        """
        size = run.plan.spec.page_rows
        full, more = divmod(run.rows, size)
        done = full + bool(more)
        following = _following(
            source, size, partial(self._runs.digest, run.ref), done, self._row_bytes, more > 0
        )
        reading = _Reading(following, done, kept=deque(range(done)))
        self.readings[run.ref] = reading
        return reading

    def _forget_pages(self, run: ActiveRun) -> None:
        """Delete full pages whose items have finished, from the first on; the dataset still has the rows."""
        reading, spec = self.readings.get(run.ref), run.plan.spec
        bits = spec.page_rows * spec.cells_per_row * spec.steps
        while reading and len(reading.kept) > 1:
            first = reading.kept[0] * bits
            if self._runs.over_within(run.ref, first, first + bits) < bits:
                return
            self._runs.drop_page(run.ref, reading.kept.popleft())


def _following(
    source: Source, size: int, digest: Callable[[int], str | None], done: int, row_bytes: int, ended: bool
) -> Iterator[list[dict[str, Any]]]:
    """The pages behind the first ``done``; none if the dataset had ``ended`` with those.

    It runs in a thread, which also reads each ``digest``: for a long dataset that takes longer than the
    leader's lease. Raises `DatasetChanged` where one of the first pages has other rows.
    """
    dataset = SourcePages(source, size, lambda number: digest(number) if number < done else None, row_bytes)
    for number in range(done):
        dataset.page(number)
    number = done
    while not ended and (page := dataset.page(number)):
        yield page
        number += 1
