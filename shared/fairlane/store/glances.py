"""A few numbers of many runs at once, for those who count and do not ask about one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlane.job import TERMINAL, JobState
from fairlane.run import RunState
from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys, RunRef

_ENDED = sorted(TERMINAL)
_FIELDS = ("jobs", "jobs_done", "in_flight", "paused_ms", *(f"n:{state}" for state in _ENDED))


@dataclass(frozen=True, slots=True)
class Glance:
    """How far an active run has come. ``ended``: jobs that are over, by state."""

    jobs: int
    jobs_done: int
    in_flight: int
    paused: bool
    ended: Mapping[JobState, int]

    @property
    def waiting(self) -> int:
        """Jobs that are neither over nor leased, handed out or not."""
        return max(0, self.jobs - self.jobs_done - self.in_flight)


class Glances:
    """Reads; one round trip each."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def active(self) -> list[RunRef]:
        """Runs that are not finished."""
        return [RunRef.parse(ref.decode()) for ref in self._redis.smembers(self._keys.active)]

    def of(self, refs: Sequence[RunRef]) -> dict[RunRef, Glance]:
        """How these runs stand; those that are gone are left out."""
        pipeline = self._redis.pipeline(transaction=False)
        for ref in refs:
            pipeline.hmget(self._keys.state(ref), *_FIELDS)
        found: dict[RunRef, Glance] = {}
        for ref, (jobs, done, in_flight, paused, *ended) in zip(refs, pipeline.execute(), strict=True):
            if jobs is not None:
                counts = {state: int(count or 0) for state, count in zip(_ENDED, ended, strict=True)}
                found[ref] = Glance(
                    int(jobs), int(done or 0), int(in_flight or 0), paused is not None, counts
                )
        return found

    def states(self, refs: Sequence[RunRef]) -> list[RunState | None]:
        """The states of these runs; ``None`` for those that are gone."""
        pipeline = self._redis.pipeline(transaction=False)
        for ref in refs:
            pipeline.hget(self._keys.state(ref), "state")
        return [None if state is None else RunState(state.decode()) for state in pipeline.execute()]
