"""Reads the records of a run's sessions, a bounded number at a time."""

from collections.abc import Sequence
from types import SimpleNamespace

from fairlane.core.errors import BrokenSessions
from fairlane.model.job import JobState
from fairlane.model.results import add_evaluations, parsed_results
from fairlane.model.run import RunRef, RunSpec, RunState, cell_of
from fairlane.model.sessions import BLOCK, SessionRecord, decode_members, members_field, session_job
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.read.lost_parts import ask_results, require_results
from fairlane.store.read.reading import RecordReader
from fairlane.store.run_queries import ended_early

_SESSION_UNFINISHED = {RunState.CANCELLED: JobState.CANCELLED, RunState.TIMED_OUT: JobState.TIMED_OUT}
"""The state of a session's evaluation without a record, by the state of its run; else it was skipped."""


class SessionReader:
    """Reads one run's sessions."""

    def __init__(self, redis: RedisClient, keys: Keys, spec: RunSpec) -> None:
        self._redis, self._keys, self._spec = redis, keys, spec
        self._ref = RunRef(spec.team, spec.run)
        self._rows = RecordReader(redis, keys, spec)

    def records(self, sessions: Sequence[int]) -> list[SessionRecord]:
        """The records of some sessions of one block, in each of their cells, for a run that has ended.

        Raises `RunArchived` if only a stub of the run is left, `BrokenSessions` if sessions are lost, and
        `ResultsLost` if results are.
        """
        if not sessions:
            return []
        spec, keys = self._spec, self._keys
        jobs = [
            session_job(spec, session, cell, step)
            for session in sessions
            for cell in range(spec.cells_per_row)
            for step in range(len(spec.session_evals))
        ]
        pipeline = self._redis.pipeline(transaction=True)
        ask_results(pipeline, keys, self._ref)
        pipeline.hget(keys.rows(self._ref), members_field(sessions[0]))
        for job in jobs:
            pipeline.hget(keys.results(self._ref), str(job))
        pipeline.hget(keys.state(self._ref), "reason")
        counted, there, members, *stored, reason = pipeline.execute()
        state = require_results(self._ref, counted, there)
        block = decode_members(members or b"", spec.rows)
        if sessions[-1] % BLOCK >= len(block):
            raise BrokenSessions(f"the rows of session {sessions[-1] + 1} are missing")
        results = iter(stored)
        missing = _SESSION_UNFINISHED.get(state, JobState.SKIPPED), ended_early(state, reason)
        return [
            self._record(block[session % BLOCK], cell, [next(results) for _ in spec.session_evals], *missing)
            for session in sessions
            for cell in range(spec.cells_per_row)
        ]

    def _record(
        self,
        rows: Sequence[int],
        cell: int,
        stored: Sequence[bytes | None],
        missing: JobState,
        why: str | None,
    ) -> SessionRecord:
        spec, place = self._spec, cell_of(self._spec, cell)
        found = SimpleNamespace(scores={}, score_errors={}, eval_usage={}, arguments={}, notes={}, unkept={})
        add_evaluations(found, spec.session_evals, parsed_results(stored), missing, why)
        return SessionRecord(
            session=self._rows.row(rows[0]).get(spec.session_field or ""),
            model=spec.models[place.model] if spec.models else "",
            prompt=place.prompt,
            repetition=place.repetition,
            items=tuple(row * spec.cells_per_row + cell for row in rows),
            **vars(found),
        )
