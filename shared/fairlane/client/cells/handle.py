"""A handle on a run that several deployments execute: its parts' states and records, merged."""

import heapq
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from fairlane.client.deployment import LONGEST_WAIT_S, Pace, SystemWaiter, Waiter
from fairlane.client.following.records import Seen, require_spec
from fairlane.client.handles import check_timeout
from fairlane.client.outputs import Run
from fairlane.client.views.summary import Summary
from fairlane.client.views.tally import summarise
from fairlane.core.clock import SystemClock
from fairlane.core.errors import RunTimeout, StoreUnavailable
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.run import RunState, cell_of
from fairlane.model.run_status import RunStatus
from fairlane.model.tokens import Price

BUFFERED = 1024
"""Records that `CellsRun.stream` reads ahead of its reader, of all cells together."""

PUT_S = 0.5
"""Seconds after which a thread that cannot put a record checks whether the stream is still read."""


@dataclass(frozen=True, slots=True)
class CellsStatus:
    """A run at one moment, over all cells. ``cells`` has each part as it was seen last; ``None``: never.

    ``unreachable`` are the cells whose Redis does not answer now: their parts may have gone on.
    """

    state: RunState
    items: int
    items_done: int
    jobs: int
    jobs_done: int
    in_flight: int
    by_state: Mapping[JobState, int]
    cells: Mapping[str, RunStatus | None]
    unreachable: tuple[str, ...]

    @property
    def progress(self) -> float:
        """Share of jobs that ended, 0 to 1."""
        return self.jobs_done / self.jobs if self.jobs else float(self.state.finished)


class CellsRun:
    """A run in parts, one for each cell. It runs without this object; `Cells.run` finds it again by `ids`."""

    def __init__(self, parts: Mapping[str, Run]) -> None:
        """Made by `Cells`. ``parts`` in the order of the cells, which is that of the models."""
        self._parts = dict(parts)
        self._clock, self._waiter = SystemClock(), SystemWaiter()
        self._seen: dict[str, RunStatus] = {}

    @property
    def ids(self) -> dict[str, str]:
        """The id of each cell's part."""
        return {cell: run.id for cell, run in self._parts.items()}

    @property
    def parts(self) -> dict[str, Run]:
        """Each cell's part as a run of its own: for its sessions, its report, or `Run.why`."""
        return dict(self._parts)

    def status(self) -> CellsStatus:
        """How the run stands now, with the last known state of a cell that does not answer."""
        away = []
        for cell, run in self._parts.items():
            try:
                self._seen[cell] = run.status()
            except StoreUnavailable:
                away.append(cell)
        return _merged({cell: self._seen.get(cell) for cell in self._parts}, tuple(away))

    def wait(self, timeout: float | None = None) -> CellsStatus:
        """Block until every part has finished, however long a cell is away. Raises `RunTimeout`."""
        check_timeout(timeout)
        pace, started_ms = Pace(), self._clock.monotonic_ms()
        while not (status := self.status()).state.finished:
            pause = pace.next_s(LONGEST_WAIT_S)
            if timeout is not None:
                left = timeout - (self._clock.monotonic_ms() - started_ms) / 1000
                if left <= 0:
                    raise RunTimeout(", ".join(self.ids.values()), timeout)
                pause = min(pause, left)
            self._waiter.wait(pause)
        return status

    def cancel(self) -> None:
        """`Run.cancel` for each part. Raises `StoreUnavailable` for a cell that is away, after all others."""
        self._each(Run.cancel)

    def pause(self) -> None:
        """`Run.pause` for each part; raises like `cancel`."""
        self._each(Run.pause)

    def resume(self) -> None:
        """`Run.resume` for each part; raises like `cancel`."""
        self._each(Run.resume)

    def results(self) -> Iterator[Record]:
        """Every item's record, in item order. Waits for all parts to be over first; see `Run.results`."""
        self.wait()
        numbers = _Numbers(self._parts)
        streams = [numbers.applied(cell, run.results()) for cell, run in self._parts.items()]
        yield from heapq.merge(*streams, key=lambda record: record.item)

    def stream(self) -> Iterator[Record]:
        """Every item's record once, as they end in whichever cell; waits for cells that are away."""
        readers = _Readers(_Numbers(self._parts), self._waiter)
        for cell, run in self._parts.items():
            name = f"fairlane-cell-{cell}"
            threading.Thread(target=readers.read, args=(cell, run), name=name, daemon=True).start()
        reading = len(self._parts)
        try:
            while reading:
                record = readers.found.get()
                if isinstance(record, BaseException):
                    raise record
                if record is None:
                    reading -= 1
                else:
                    yield record
        finally:
            readers.stopped.set()

    def summary(self, prices: Mapping[str, Price] | None = None) -> Summary:
        """`Run.summary` over the records of all cells, without sessions. Default: the first cell's prices."""
        status, specs = self.wait(), [require_spec(run.id, run.spec) for run in self._parts.values()]
        models = tuple(model for spec in specs for model in spec.models)
        whole = specs[0].model_copy(update={"models": models, "session_evals": ()})
        first = next(iter(self._parts.values()))
        known = first._deployment.settings.prices if prices is None else prices
        return summarise(whole, status.state, self.results(), known)

    def _each(self, action: Callable[[Run], None]) -> None:
        away: StoreUnavailable | None = None
        for run in self._parts.values():
            try:
                action(run)
            except StoreUnavailable as error:
                away = error
        if away is not None:
            raise away


class _Numbers:
    """Numbers items in the whole run, whose models stand in the order of the cells."""

    def __init__(self, parts: Mapping[str, Run]) -> None:
        self._specs = {cell: require_spec(run.id, run.spec) for cell, run in parts.items()}
        self._before, self._models = dict[str, int](), 0
        for cell, spec in self._specs.items():
            self._before[cell] = self._models
            self._models += len(spec.models)

    def applied(self, cell: str, records: Iterable[Record]) -> Iterator[Record]:
        """The records of a cell's part with their items' numbers in the whole run."""
        spec = self._specs[cell]
        for record in records:
            at = cell_of(spec, record.item)
            group = at.row * len(spec.prompts) + at.prompt
            model = group * self._models + self._before[cell] + at.model
            yield replace(record, item=model * spec.repetitions + at.repetition)


class _Readers:
    """Read the parts' records, each on a thread of its own, into one queue until ``stopped`` is set."""

    def __init__(self, numbers: _Numbers, waiter: Waiter) -> None:
        self._numbers, self._waiter = numbers, waiter
        self.found: queue.Queue[Record | BaseException | None] = queue.Queue(BUFFERED)
        self.stopped = threading.Event()

    def read(self, cell: str, run: Run) -> None:
        """Put each record of a part once, then ``None`` or the error that ended it.

        Begins again after the cell was away.
        """
        end: BaseException | None = None
        seen = Seen()
        try:
            while not self._read_on(cell, run, seen):
                self._waiter.wait(LONGEST_WAIT_S)
        except BaseException as error:  # noqa: BLE001 - the reader of the stream raises it
            end = error
        self._put(end)

    def _read_on(self, cell: str, run: Run, seen: Seen) -> bool:
        """Put new records until the part is over; false if its cell went away."""
        try:
            for record in self._numbers.applied(cell, run.stream()):
                if seen.add(record.item) and not self._put(record):
                    return True
        except StoreUnavailable:
            return self.stopped.is_set()
        return True

    def _put(self, record: Record | BaseException | None) -> bool:
        """Put a record; false once the stream is no longer read."""
        while not self.stopped.is_set():
            with suppress(queue.Full):
                self.found.put(record, timeout=PUT_S)
                return True
        return False


def _merged(cells: Mapping[str, RunStatus | None], away: tuple[str, ...]) -> CellsStatus:
    seen = [status for status in cells.values() if status is not None]
    by_state = Counter[JobState]()
    for status in seen:
        by_state.update(status.by_state)
    return CellsStatus(
        state=_state([status.state if status else RunState.SUBMITTED for status in cells.values()]),
        items=sum(status.items for status in seen),
        items_done=sum(status.items_done for status in seen),
        jobs=sum(status.jobs for status in seen),
        jobs_done=sum(status.jobs_done for status in seen),
        in_flight=sum(status.in_flight for status in seen),
        by_state=dict(by_state),
        cells=cells,
        unreachable=away,
    )


def _state(states: list[RunState]) -> RunState:
    """Running until all parts are over; then completed only if all are, else as the first that is not."""
    if any(not state.finished for state in states):
        return RunState.SUBMITTED if set(states) == {RunState.SUBMITTED} else RunState.RUNNING
    return next((state for state in states if state is not RunState.COMPLETED), RunState.COMPLETED)
