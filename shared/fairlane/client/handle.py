"""A handle on a submitted run: status, wait, pause, resume, cancel, and records, some in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any

from fairlane.client.apps import load_app
from fairlane.client.deployment import LONGEST_WAIT_S, SHORTEST_WAIT_S, Deployment, Pace
from fairlane.client.progress import ProgressView, open_progress
from fairlane.client.standstill import Standstill
from fairlane.core.errors import FairlaneError, RunLost, RunTimeout, SubmissionError
from fairlane.model.results import Record
from fairlane.model.run import RunRef, RunSpec, RunState, RunStatus
from fairlane.model.sessions import BLOCK, SessionRecord
from fairlane.store.write.audit import operator
from fairlane.why.waiting import Waiting

if TYPE_CHECKING:
    from fairlane.client.chunks import Chunk
    from fairlane.client.summary import Summary
    from fairlane.export.formats import Format


RESULTS_AT_ONCE = 256
"""Stored results fetched in one round trip."""

ITEMS_LISTED_AT_ONCE = 1000

LOST_AFTER_MS = 5000
"""A submission waits for less, as a rule; from then on its request is looked for every five seconds."""


class Run:
    """A submitted run. It runs without this object, and `Client.run` finds it again."""

    def __init__(self, deployment: Deployment, ref: RunRef, spec: RunSpec | None) -> None:
        """Made by `Client`. ``spec`` is ``None`` where it cannot be read, as a refused run's may be."""
        self._deployment, self._ref, self._spec = deployment, ref, spec

    @property
    def id(self) -> str:
        """Names the run within its team; later runs have greater ids."""
        return self._ref.run

    @property
    def team(self) -> str:
        """The team that submitted the run."""
        return self._ref.team

    @property
    def name(self) -> str:
        """The name it was given, else its id."""
        return self._spec.name if self._spec else self.id

    @property
    def serial(self) -> bool:
        """Whether its items go one at a time, as they must where a prompt reads what came before."""
        return self._spec is not None and self._spec.order.serial

    def __repr__(self) -> str:
        return f"<Run {self.id} of team {self.team}: {self.name}>"

    def status(self) -> RunStatus:
        """How the run stands now. Raises `RunNotFound` once it has expired, `StoreUnavailable`."""
        with self._deployment.answering():
            return self._look()

    def wait(
        self, *, progress: bool = False, timeout: float | None = None, until_held: bool = False
    ) -> RunStatus:
        """Block until the run has finished (completed, cancelled or refused) and return its status.

        ``progress`` shows it on standard error, in a notebook below the cell; after two seconds without
        progress it also says why. With ``until_held`` it also
        returns when all that is left of a run with ``on_refusal="hold"`` waits to be resumed; its state is
        then "running". Raises `RunTimeout` after
        ``timeout`` seconds, and `StoreUnavailable` if Redis stays away for a minute: these do not stop the
        run. Raises `RunLost` if Redis has lost the submission, so that the run never starts.
        """
        with open_progress(self._deployment.clock) if progress else nullcontext() as view:
            return self._wait(view, timeout, Held(self) if until_held else None)

    def cancel(self) -> None:
        """Ask the scheduler to cancel the run, and return at once; `wait` returns once it is cancelled.

        Aborts calls in flight and keeps finished jobs. A finished run stays as it is.
        """
        with self._deployment.answering():
            self._deployment.outbox.cancel(self._ref)

    def pause(self) -> None:
        """Ask the scheduler to start no further call of the run, and return at once; `status` has the time.

        Calls in flight end normally, and no job fails. The run's ``max_duration`` keeps counting.
        `resume` resumes it, `cancel` also works meanwhile. A finished run stays as it is.
        """
        with self._deployment.answering():
            self._deployment.outbox.pause(self._ref, operator())

    def resume(self) -> None:
        """Ask the scheduler to resume the paused run, and return at once.

        Models that rejected the run's first calls alike are tried again with five more.
        """
        with self._deployment.answering():
            self._deployment.outbox.resume(self._ref, operator())

    def why(self, item: int | None = None, step: int | str | None = None) -> Waiting:
        """Explain what the run, one of its items or a step of an item waits for, and when it starts.

        Step 0 is the item's task, step k its k-th judge, by number or name; by default the first unfinished
        step. Raises `TargetNotFound`, also once the run has expired.
        """
        asked = [str(part) for part in (item, step) if part is not None]
        with self._deployment.answering():
            return self._deployment.asker(self.team).why("/".join([self.id, *asked]))

    def results(self) -> Iterator[Record]:
        """Every item's record, in item order. Waits for the run to be over first.

        Holds a few hundred records at a time. Raises `SubmissionError` with the reason if the run was
        refused.
        """
        status = self._wait()
        yield from self._records(status).in_item_order()

    def sessions(self) -> Iterator[SessionRecord]:
        """Every session's record, in the order in which sessions first appear. Waits for the run to be over.

        Yields none where the run has no session field. Raises what `results` does.
        """
        status = self._wait()
        yield from self._records(status).of_sessions()

    def stream(self) -> Iterator[Record]:
        """Every item's record once, in the order in which they end; waits for the next one.

        On a cancelled run the items that were not over come last, in item order. Raises `SubmissionError`
        with the reason if the run was refused.
        """
        yield from self._records(self.status()).as_they_finish()

    def export(self, path: str | PathLike[str], format: Format | None = None, *, raw: bool = False) -> int:
        """Write every record to a file, in item order, once the run is over; returns how many there are.

        ``format`` is "jsonl", "csv" or "parquet"; left out, the path's suffix says. The file is there whole
        or not at all. In a table, a text that a spreadsheet would run as a formula begins with ``'``, unless
        ``raw``. Raises `UnknownFormat`, `MissingExtra` (Parquet needs pyarrow) and ``OSError`` at once.
        """
        from fairlane.export.formats import export_records

        return export_records(self.results(), path, format, raw=raw)

    def to_pandas(self) -> Any:
        """Every record as a row of a ``pandas.DataFrame``, once the run is over; all in memory.

        Raises `MissingExtra` where pandas is not installed.
        """
        from fairlane.export.frame import to_frame

        return to_frame(self.results())

    def summary(self) -> Summary:
        """Scores, failures, tokens, cost and time over all records, once the run is over.

        Prices are those of the client's settings. Raises what `results` does.
        """
        from fairlane.client.summary import summarise

        status = self._wait()
        spec, records = self._readable(status), self._records(status)
        sessions = records.of_sessions() if spec.session_evals else ()
        prices = self._deployment.settings.prices
        summary = summarise(spec, status.state, records.in_item_order(), prices, sessions)
        return replace(summary, predict=status.predict, score=status.score)

    def report(self, path: str | PathLike[str], *, examples: int = 0) -> int:
        """Write a page of HTML that stands alone, once the run is over: scores and their distributions, cost,
        throughput against the limits, failures. Returns the number of records in it.

        It has texts of prompts, rows and outputs only for ``examples`` items. Prices are those of the
        client's settings. Raises what `results` does, and ``OSError``.
        """
        status = self._wait()
        spec, records = self._readable(status), self._records(status)
        written: int = load_app("report")(self._deployment, spec, status, records, path, examples)
        return written

    def chunks(self) -> Iterator[Chunk]:
        """Pieces of streamed output, from this call on, until the run is over.

        Each names its item and attempt. An attempt that is repeated starts its text again: a chunk that is
        ``void`` says to drop the earlier one's. For watching, not for keeping: what is published while Redis
        is away is lost. `results` and `stream` have the whole outputs.
        """
        from fairlane.client.chunks import listen

        steps = self._spec.steps if self._spec else 1
        return listen(self._deployment, self._ref, steps, lambda: self._look().state.finished)

    def _look(self) -> RunStatus:
        if self._spec is None:
            return self._deployment.runs.overview(self._ref).status
        return self._deployment.runs.status(self._ref, self._spec)

    def is_held(self) -> bool:
        """Whether all that is left of the run waits to be resumed, since refusals hold it."""
        if self._spec is None or self._spec.bounds.on_refusal != "hold":
            return False
        waiting = [part for part in self.why().lanes if part.waits or part.in_flight]
        return bool(waiting) and all(part.constraint == "request_refused" for part in waiting)

    def _wait(
        self,
        view: ProgressView | None = None,
        timeout: float | None = None,
        held: Held | None = None,
    ) -> RunStatus:
        clock, patience, pace = self._deployment.clock, self._deployment.patience(), Pace()
        started_ms, submission = clock.monotonic_ms(), _Submission(self._deployment, self._ref)
        standstill = Standstill(clock, self._ask_why)
        while True:
            status = patience.ask(self._look)
            submission.check(None if status is None else status.state)
            if view is not None:
                _draw(view, status, patience.silence_s, standstill)
            if status is not None and (status.state.finished or (held is not None and held.by(status))):
                return status
            pause = pace.next_s(_longest_pause(status))
            if timeout is not None:
                left = timeout - (clock.monotonic_ms() - started_ms) / 1000
                if left <= 0:
                    raise RunTimeout(self.id, timeout)
                pause = min(pause, left)
            self._deployment.waiter.wait(pause)

    def _ask_why(self) -> Waiting | None:
        """What the run waits for; ``None`` where that cannot be told now."""
        try:
            return self.why()
        except FairlaneError:
            return None

    def _records(self, status: RunStatus) -> Records:
        return Records(self._deployment, self._readable(status))

    def _readable(self, status: RunStatus) -> RunSpec:
        if status.state is RunState.REFUSED:
            raise refusal(status)
        if self._spec is None:
            raise FairlaneError(
                f"run {self.id} was submitted by a newer version of Fairlane: upgrade this one"
            )
        return self._spec


def _draw(view: ProgressView, status: RunStatus | None, silence_s: float, standstill: Standstill) -> None:
    if status is None:
        view.silent(silence_s)
    else:
        view.show(status, standstill.words(status))


def _longest_pause(status: RunStatus | None) -> float:
    """Look often when the run may end at any moment: everything that is left is in flight."""
    if status and status.state is RunState.RUNNING and status.in_flight >= status.jobs - status.jobs_done:
        return SHORTEST_WAIT_S
    return LONGEST_WAIT_S


class Records:
    """Iterates over the records of one run; rides out a restart of Redis."""

    def __init__(self, deployment: Deployment, spec: RunSpec) -> None:
        self._deployment, self._spec = deployment, spec
        self._ref = RunRef(spec.team, spec.run)
        self._patience = deployment.patience()
        self._reader = deployment.records(spec)
        self._session_reader = deployment.sessions(spec)

    def in_item_order(self) -> Iterator[Record]:
        """Yield all records of a finished run."""
        return self._of(range(self._items()))

    def as_they_finish(self) -> Iterator[Record]:
        """Yield each item's record when it finishes; unfinished items of a cancelled run last."""
        seen, listed, pace = _Seen(), 0, Pace()
        submission = _Submission(self._deployment, self._ref)
        while True:
            state, items = self._finished(listed)
            submission.check(state)
            listed += len(items)
            yield from self._of([item for item in items if seen.add(item)])
            if len(items) == ITEMS_LISTED_AT_ONCE:
                continue
            if state is RunState.REFUSED:
                raise refusal(
                    self._patience.insist(lambda: self._deployment.runs.status(self._ref, self._spec))
                )
            if state.finished:
                break
            if items:
                pace.restart()
            self._deployment.waiter.wait(pace.next_s())
        # Also what a Redis that lost its last second has listed at a place already read.
        yield from self._of(item for item in range(self._items()) if seen.add(item))

    def _items(self) -> int:
        """How many there are; of rows that came after the submission the spec says nothing."""
        if not (self._spec.open or self._spec.source):
            return self._spec.items
        return self._patience.insist(lambda: self._deployment.runs.status(self._ref, self._spec)).items

    def of_sessions(self) -> Iterator[SessionRecord]:
        """Yield all session records of a finished run, in the order in which sessions first appear."""
        spec = self._spec
        size = max(1, min(BLOCK, RESULTS_AT_ONCE // (spec.cells_per_row * max(1, len(spec.session_evals)))))
        for block in range(0, spec.sessions, BLOCK):
            end = min(block + BLOCK, spec.sessions)
            for first in range(block, end, size):
                yield from self._fetch_sessions(range(first, min(first + size, end)))

    def _fetch_sessions(self, sessions: Sequence[int]) -> list[SessionRecord]:
        return self._patience.insist(lambda: self._session_reader.records(sessions))

    def _finished(self, start: int) -> tuple[RunState, list[int]]:
        return self._patience.insist(
            lambda: self._deployment.runs.finished(self._ref, start, ITEMS_LISTED_AT_ONCE)
        )

    def _of(self, items: Iterable[int]) -> Iterator[Record]:
        remaining = iter(items)
        size = max(1, RESULTS_AT_ONCE // self._spec.steps)
        while batch := list(islice(remaining, size)):
            yield from self._fetch(batch)

    def _fetch(self, items: Sequence[int]) -> list[Record]:
        return self._patience.insist(lambda: self._reader.records(items))


def refusal(status: RunStatus) -> SubmissionError:
    """The error for reading the records of a refused run."""
    return SubmissionError(
        "run", status.run, f"was refused: {status.reason}", "Correct that and submit it again."
    )


class Held:
    """Notices that a run will not go on by itself: refusals hold it, and nothing of it is in flight."""

    def __init__(self, run: Run) -> None:
        self._run, self._seen = run, -1

    def by(self, status: RunStatus) -> bool:
        """Whether ``status`` is that of a held run; asks only where two looks in turn are alike."""
        still = bool(status.rejections) and status.paused is None and not status.in_flight
        before, self._seen = self._seen, status.jobs_done if still else -1
        return still and before == status.jobs_done and self._run.is_held()


class _Submission:
    """Notices that a submission was lost, so that nobody waits for it for ever."""

    def __init__(self, deployment: Deployment, ref: RunRef) -> None:
        self._deployment, self._ref = deployment, ref
        self._next_ms = deployment.clock.monotonic_ms() + LOST_AFTER_MS

    def check(self, state: RunState | None) -> None:
        """Raise `RunLost` if the run is still submitted after a while, and nothing asks for it."""
        if state is not RunState.SUBMITTED or self._deployment.clock.monotonic_ms() < self._next_ms:
            return
        self._next_ms = self._deployment.clock.monotonic_ms() + LOST_AFTER_MS
        if self._deployment.patience().ask(lambda: self._deployment.runs.is_lost(self._ref)):
            raise RunLost(self._ref.run, "the request to start it")


class _Seen:
    """Remembers which items were yielded, one bit each."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, item: int) -> bool:
        """Whether ``item`` is new."""
        byte, bit = item >> 3, 1 << (item & 7)
        if byte >= len(self._bits):
            self._bits.extend(bytes(max(byte + 1 - len(self._bits), len(self._bits))))
        if self._bits[byte] & bit:
            return False
        self._bits[byte] |= bit
        return True
