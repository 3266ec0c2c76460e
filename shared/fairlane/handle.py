"""A run as its user holds it: look, wait, pause, cancel, read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import Any

from fairlane.admission.waiting import Waiting
from fairlane.chunks import listen
from fairlane.errors import FairlaneError, RunTimeout
from fairlane.export import Format, export_records, to_frame
from fairlane.link import Link
from fairlane.polling import LONGEST_WAIT_S, SHORTEST_WAIT_S, Pace
from fairlane.progress import NoProgress, ProgressView, open_progress
from fairlane.records import Records, refusal
from fairlane.report import ReportSource, activity_of, write_report
from fairlane.run import Record, RunSpec, RunState, RunStatus
from fairlane.sessions import SessionRecord
from fairlane.store.audit import operator
from fairlane.store.keys import RunRef
from fairlane.summary import Summary, summarise


class Run:
    """A submitted run. It lives in Redis: it goes on without this object, and `Client.run` finds it again."""

    def __init__(self, link: Link, ref: RunRef, spec: RunSpec | None) -> None:
        """Made by `Client`. ``spec`` is ``None`` where it cannot be read, as a refused run's may be."""
        self._link, self._ref, self._spec = link, ref, spec

    @property
    def id(self) -> str:
        """Names the run within its team; later runs have greater ids."""
        return self._ref.run

    @property
    def team(self) -> str:
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
        with self._link.answering():
            return self._look()

    def wait(self, *, progress: bool = False, timeout: float | None = None) -> RunStatus:
        """Block until the run is over (completed, cancelled or refused) and return its last status.

        ``progress`` shows it on standard error, in a notebook below the cell. Raises `RunTimeout` after
        ``timeout`` seconds, and `StoreUnavailable` if Redis stays away for a minute; a shorter absence is
        waited out. The run itself goes on whatever happens here.
        """
        with self._view(progress) as view:
            return self._wait(view, timeout)

    def cancel(self) -> None:
        """Ask the scheduler to cancel the run, and return at once. `wait` tells when it has.

        Calls in flight are broken off; what is done stays. A run that is over is left as it is.
        """
        with self._link.answering():
            self._link.outbox.cancel(self._ref)

    def pause(self) -> None:
        """Ask the scheduler to start nothing more of the run, and return at once. `status` tells since when.

        Calls in flight end as they may, and nothing fails. The run's ``max_duration`` goes on counting.
        `unpause` lets it go on, `cancel` works meanwhile; a run that is over is left as it is.
        """
        with self._link.answering():
            self._link.outbox.pause(self._ref, operator())

    def unpause(self) -> None:
        """Ask the scheduler to let a paused run go on where it stopped, and return at once."""
        with self._link.answering():
            self._link.outbox.unpause(self._ref, operator())

    def why(self, item: int | None = None, step: int | str | None = None) -> Waiting:
        """Why the run waits, or one of its items, or a step of that: what limits it, and when it starts.

        Step 0 is the item's task, step k its k-th judge, which may be named; left out, the first that is not
        over. Raises `TargetNotFound`, also once the run has expired.
        """
        asked = [str(part) for part in (item, step) if part is not None]
        with self._link.answering():
            return self._link.asker(self.team).why("/".join([self.id, *asked]))

    def results(self) -> Iterator[Record]:
        """Every item's record, in item order. Waits for the run to be over first.

        Holds a few hundred records at a time. Raises `SubmissionError` with the reason if the run was
        refused.
        """
        status = self._wait(NoProgress(), None)
        yield from self._records(status).in_item_order()

    def sessions(self) -> Iterator[SessionRecord]:
        """Every session's record, in the order in which sessions first appear. Waits for the run to be over.

        None where the run was not told what its sessions are. Raises what `results` does.
        """
        status = self._wait(NoProgress(), None)
        yield from self._records(status).of_sessions()

    def stream(self) -> Iterator[Record]:
        """Every item's record once, in the order in which they end; waits for the next one.

        On a cancelled run the items that were not over come last, in item order. Raises `SubmissionError`
        with the reason if the run was refused.
        """
        yield from self._records(self.status()).as_they_finish()

    def export(self, path: str | PathLike[str], format: Format | None = None) -> int:
        """Write every record to a file, in item order, once the run is over; returns how many there are.

        ``format`` is "jsonl", "csv" or "parquet"; left out, the path's suffix says. The file is there whole
        or not at all. Raises `UnknownFormat`, `MissingExtra` (Parquet needs pyarrow) and ``OSError`` at once.
        """
        return export_records(self.results(), path, format)

    def to_pandas(self) -> Any:
        """Every record as a row of a ``pandas.DataFrame``, once the run is over; all in memory.

        Raises `MissingExtra` where pandas is not installed.
        """
        return to_frame(self.results())

    def summary(self) -> Summary:
        """Scores, failures, tokens and cost over all records, once the run is over.

        Prices are those of the client's settings. Raises what `results` does.
        """
        status = self._wait(NoProgress(), None)
        spec, records = self._readable(status), self._records(status)
        sessions = records.of_sessions() if spec.session_evals else ()
        return summarise(spec, status.state, records.in_item_order(), self._link.prices, sessions)

    def report(self, path: str | PathLike[str], *, examples: int = 0) -> int:
        """Write a page of HTML that stands alone, once the run is over: scores and their distributions, cost,
        throughput against the limits, failures. Returns how many records it tells of.

        Texts of prompts, rows and outputs are in it only of so many ``examples``. Prices are those of the
        client's settings. Raises what `results` does, and ``OSError``.
        """
        status = self._wait(NoProgress(), None)
        spec, records = self._readable(status), self._records(status)
        with self._link.answering():
            now_ms = self._link.runs.now_ms()
            activity = activity_of(self._link.redis, self._link.keys, status, now_ms)
        source = ReportSource(
            spec, status, records.in_item_order(), records.of_sessions(), self._link.prices, activity, now_ms
        )
        return write_report(path, source, examples)

    def chunks(self) -> Iterator[tuple[int, str]]:
        """Pieces of streamed output as ``(item, text)``, from this call on, until the run is over.

        For watching, not for keeping: an attempt that is repeated starts its text again, and what is
        published while Redis is away is lost. `results` and `stream` have the whole outputs.
        """
        steps = self._spec.steps if self._spec else 1
        return listen(self._link, self._ref, steps, lambda: self._look().state.finished)

    def _look(self) -> RunStatus:
        if self._spec is None:
            return self._link.runs.overview(self._ref).status
        return self._link.runs.status(self._ref, self._spec)

    def _wait(self, view: ProgressView, timeout: float | None) -> RunStatus:
        clock, patience, pace = self._link.clock, self._link.patience(), Pace()
        started_ms = clock.monotonic_ms()
        while True:
            status = patience.ask(self._look)
            if status is None:
                view.silent(patience.silence_s)
            else:
                view.show(status)
                if status.state.finished:
                    return status
            pause = pace.next_s(_longest_pause(status))
            if timeout is not None:
                left = timeout - (clock.monotonic_ms() - started_ms) / 1000
                if left <= 0:
                    raise RunTimeout(self.id, timeout)
                pause = min(pause, left)
            self._link.waiter.wait(pause)

    def _records(self, status: RunStatus) -> Records:
        return Records(self._link, self._readable(status))

    def _readable(self, status: RunStatus) -> RunSpec:
        if status.state is RunState.REFUSED:
            raise refusal(status)
        if self._spec is None:
            raise FairlaneError(
                f"run {self.id} was submitted by a newer version of Fairlane: upgrade this one"
            )
        return self._spec

    def _view(self, progress: bool) -> AbstractContextManager[ProgressView]:
        return open_progress(self._link.clock) if progress else nullcontext(NoProgress())


def _longest_pause(status: RunStatus | None) -> float:
    """Look often when the run may end at any moment: everything that is left is in flight."""
    if status and status.state is RunState.RUNNING and status.in_flight >= status.jobs - status.jobs_done:
        return SHORTEST_WAIT_S
    return LONGEST_WAIT_S
