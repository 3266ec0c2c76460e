"""Finds finished runs, and reduces archived ones to stubs: their state and their plan."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from fairlane.model.run import RunRef, RunState
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.run_queries import RunFields, RunStates, require_here
from fairlane.store.write.attempts import bound, named_keys, run_keys
from fairlane.store.write.audit import UNNAMED, Act, Auditor

AT_ONCE = 1000


class StubOutcome(IntEnum):
    """The outcome of an attempt to stub a run: made now, made before, or not made."""

    NOT_FINISHED = -1
    NO_RUN = 0
    STUB = 1
    STUB_BEFORE = 2


class StoredRun(NamedTuple):
    """A run's state as Redis has it, by field, and its plan as JSON."""

    state: Mapping[str, str]
    plan: str | None


class ArchiveFields(NamedTuple):
    """The fields that decide whether a run is archived. ``state`` is ``None`` if it has expired."""

    ref: RunRef
    state: str | None
    finished_ms: int
    archived: bool

    @property
    def unmoved(self) -> bool:
        """Whether the run has ended with results that are not in the archive."""
        if self.state is None or self.archived or self.state == RunState.REFUSED:
            return False
        return RunState(self.state).finished


class ArchiveStubs:
    """Finds finished runs, and turns those that have been copied into stubs."""

    def __init__(self, redis: RedisClient, keys: Keys, auditor: Auditor = UNNAMED) -> None:
        self._redis, self._keys, self._auditor = redis, keys, auditor

    def remains(self, ref: RunRef) -> StoredRun:
        """A run's state and plan in Redis; the state is empty if there is no such run."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hgetall(self._keys.state(ref))
        pipeline.get(self._keys.plan(ref))
        state, plan = pipeline.execute()
        return StoredRun(RunFields(state).texts, plan.decode() if plan else None)

    def listed(self, team: str) -> list[RunRef]:
        """The team's runs, the oldest first; some may have expired."""
        return [RunRef(team, run.decode()) for run in self._redis.zrange(self._keys.runs(team), 0, -1)]

    def briefs(self, refs: Sequence[RunRef]) -> list[ArchiveFields]:
        """The fields of these runs that decide on archiving, in that order."""
        states, found = RunStates(self._redis, self._keys), list[ArchiveFields]()
        for first in range(0, len(refs), AT_ONCE):
            some = refs[first : first + AT_ONCE]
            runs = states.read(some, "state", "finished_ms", "archived")
            found += [
                ArchiveFields(ref, run.state, run.count("finished_ms"), run.archived)
                for ref, run in zip(some, runs, strict=True)
            ]
        return found

    def prolong(self, refs: Sequence[RunRef], least_ms: int, to_ms: int, ended_after_ms: int) -> int | None:
        """Let runs that would expire within ``least_ms`` expire in ``to_ms``, if they ended after
        ``ended_after_ms``.

        Returns when the first of all ended (server milliseconds); ``None`` without any.
        """
        oldest_ms = None
        for first in range(0, len(refs), AT_ONCE):
            some = refs[first : first + AT_ONCE]
            pipeline = self._redis.pipeline(transaction=False)
            for ref in some:
                pipeline.pttl(self._keys.state(ref))
                pipeline.hget(self._keys.state(ref), "finished_ms")
            found = pipeline.execute()
            for ref, left_ms, ended in zip(some, found[::2], found[1::2], strict=True):
                if ended is None:
                    continue
                ended_ms = int(float(ended))
                oldest_ms = ended_ms if oldest_ms is None else min(oldest_ms, ended_ms)
                if 0 <= left_ms < least_ms and ended_ms > ended_after_ms:
                    for key in run_keys(self._keys, ref).values():
                        pipeline.pexpire(key, to_ms)
            pipeline.execute()
        return oldest_ms

    def results(self, ref: RunRef, jobs: Sequence[int]) -> list[bytes | None]:
        """Stored results of a run that still holds them all. Raises `RunNotFound` and `RunArchived`."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hmget(self._keys.state(ref), "state", "archived")
        if jobs:
            pipeline.hmget(self._keys.results(ref), [str(job) for job in jobs])
        counted, *stored = pipeline.execute()
        require_here(ref, *counted)
        return stored[0] if stored else []

    def leave(self, ref: RunRef, finished_ms: int, now_ms: str | int = "") -> StubOutcome:
        """Reduce a run that finished at ``finished_ms`` to a stub; a stub stays as it is."""
        audited = self._auditor.entry(Act.ARCHIVED, ref.run, ref.team)
        keys = named_keys(self._keys, ref)
        call = bound("run_archive", keys, now_ms=now_ms, finished_ms=finished_ms, audit=audited)
        return StubOutcome(call.run(self._redis))
