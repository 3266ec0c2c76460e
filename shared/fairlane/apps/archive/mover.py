"""Moves finished runs into the archive: copy, commit, and only then leave a stub."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from pydantic import ValidationError

from fairlane.apps.archive.access import Access
from fairlane.apps.archive.rows import Entry, Finished, SessionEntry
from fairlane.client.archive import Moved
from fairlane.client.deployment import Deployment
from fairlane.client.following.records import Records
from fairlane.core.errors import FairlaneError, RunArchived
from fairlane.model.record import Record
from fairlane.model.run import Plan, RunRef, RunState
from fairlane.model.sessions import SessionRecord, first_session_job
from fairlane.store.read.reading import RESULTS_AT_ONCE
from fairlane.store.write.audit import UNNAMED, Auditor
from fairlane.store.write.runs.archive_stub import ArchiveStubs, StubOutcome
from fairlane.store.write.runs.runs import Runs


class RunMover:
    """Moves runs from a deployment into an archive. An interrupted move can be repeated."""

    def __init__(
        self,
        deployment: Deployment,
        archive: Access,
        checkpoint: Callable[[], None] = lambda: None,
        auditor: Auditor = UNNAMED,
    ) -> None:
        """``checkpoint`` is called before each portion, and raises to stop; ``auditor`` signs the move."""
        # Copies come from Redis, never from the archive.
        self._deployment, self._archive, self._keep_on = (
            replace(deployment, archive=None),
            archive,
            checkpoint,
        )
        self._stubs = ArchiveStubs(deployment.redis, deployment.keys, auditor)
        self._runs = Runs(deployment.redis, deployment.keys, 0)
        self._done: dict[str, set[RunRef]] = {}

    def move(self, ref: RunRef) -> Moved:
        """Copy a finished run and leave its stub; other runs stay as they are.

        Raises `RunNotFound`, `ArchiveUnavailable`, `ArchiveTooNew`, `StoreUnavailable`.
        """
        with self._deployment.answering():
            state, plan = self._stubs.remains(ref)
            if not state:
                self._archive.stored.overview(ref)  # raises where the archive lacks it, too
                return Moved.MOVED_BEFORE
            if "archived" in state:
                return Moved.MOVED_BEFORE
            if not RunState(state["state"]).finished:
                return Moved.RUNNING
            if plan is None:
                return Moved.REFUSED
            if ref in self._needed():
                return Moved.NEEDED
            run = _finished(ref, plan, state)
            try:
                if self._archive.stored.begin(run):
                    self._copy(run)
            except RunArchived:
                return Moved.MOVED_BEFORE  # another process was faster
            if ref in self._needed():  # a copy may take minutes
                return Moved.NEEDED
            return _moved(ref, self._stubs.leave(ref, int(state["finished_ms"])))

    def due(self, team: str, finished_by_ms: int) -> Iterator[RunRef]:
        """The team's runs to move that finished by then (server milliseconds), the oldest first."""
        listed = self._stubs.listed(team)
        done = self._done[team] = self._done.get(team, set()).intersection(listed)
        for brief in self._stubs.briefs([ref for ref in listed if ref not in done]):
            if brief.state is None:
                continue
            if brief.archived or brief.state == RunState.REFUSED:
                done.add(brief.ref)
            elif RunState(brief.state).finished and brief.finished_ms <= finished_by_ms:
                yield brief.ref

    def _needed(self) -> set[RunRef]:
        """Runs that active runs continue."""
        found = set()
        for ref in self._runs.active():
            plan = self._runs.plan(ref)
            if plan is not None and plan.spec.continued is not None:
                found.add(plan.spec.continued)
        return found

    def _copy(self, run: Finished) -> None:
        writer, place = self._archive.stored, 0
        records = Records(self._deployment, run.spec)
        items, sessions = records.as_they_finish(), enumerate(records.of_sessions())
        while batch := list(islice(items, max(1, RESULTS_AT_ONCE // run.spec.steps))):
            self._keep_on()
            writer.add(run.ref, place, self._entries(run, batch))
            place += len(batch)
        while numbered := list(islice(sessions, RESULTS_AT_ONCE)):
            self._keep_on()
            writer.add_sessions(run.ref, self._session_entries(run, numbered))
        writer.finish(run, self._deployment.runs.now_ms())

    def _entries(self, run: Finished, batch: list[Record]) -> list[Entry]:
        steps = run.spec.steps
        jobs = [range(record.item * steps + 1, (record.item + 1) * steps) for record in batch]
        return list(map(Entry, batch, self._results(run, jobs)))

    def _session_entries(
        self, run: Finished, numbered: list[tuple[int, SessionRecord]]
    ) -> list[SessionEntry]:
        """Sessions are numbered cell by cell, and so are their jobs."""
        count, cells, first = len(run.spec.session_evals), run.spec.cells_per_row, first_session_job(run.spec)
        jobs = [range(first + number * count, first + (number + 1) * count) for number, _ in numbered]
        stored = self._results(run, jobs)
        return [
            SessionEntry(*divmod(number, cells), record, results)
            for (number, record), results in zip(numbered, stored, strict=True)
        ]

    def _results(self, run: Finished, jobs: Sequence[range]) -> list[list[bytes | None]]:
        """The stored results of jobs. Read them after the records: if they still exist, the records were
        complete.
        """
        stored = self._stubs.results(run.ref, [job for stretch in jobs for job in stretch])
        rest = iter(stored)
        return [list(islice(rest, len(stretch))) for stretch in jobs]


def _finished(ref: RunRef, plan: str, state: Mapping[str, str]) -> Finished:
    try:
        return Finished(Plan.read(plan).spec, plan, state)
    except ValidationError:
        raise FairlaneError(f"run {ref.run} was submitted by a newer version of Fairlane") from None


def _moved(ref: RunRef, left: StubOutcome) -> Moved:
    match left:
        case StubOutcome.STUB:
            return Moved.MOVED
        case StubOutcome.STUB_BEFORE:
            return Moved.MOVED_BEFORE
        case StubOutcome.NO_RUN:
            return Moved.MOVED  # it has expired since, but the archive has it
        case StubOutcome.NOT_FINISHED:
            raise FairlaneError(f"run {ref.run} has changed while it was copied; it will be copied again")
