"""A deployment in virtual time, as tests use it: it starts with one worker, and can be looked into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from redis import Redis

from fairlane.job import Attempt, JobState
from fairlane.results import TaskResult
from fairlane.run import RunState
from fairlane.store.keys import RunRef
from fairlane_scheduler.rehearsal import cluster
from fairlane_scheduler.rehearsal.workforce import ref_of
from tests.support.stand_ins import FakeWorker, Provider, Start, answers

LANES = ("sim:fast", "sim:slow", "sim:judge")


class Cluster(cluster.Cluster):
    """Everything that happens, in order, at the milliseconds at which it would.

    Requests are not limited on a lane of which nothing is said; ``{"requests_per_minute": None}`` is a lane
    whose rate nobody knows.
    """

    def __init__(
        self,
        redis: Redis,
        *,
        workers: Iterable[FakeWorker] | None = None,
        provider: Provider = answers,
        lanes: Mapping[str, Mapping[str, float | None]] | None = None,
        **options: Any,
    ) -> None:
        crew = [FakeWorker("w1", 100)] if workers is None else workers
        said: dict[str, Any] = {
            lane: {"requests_per_minute": 0} | dict((lanes or {}).get(lane, {})) for lane in LANES
        }
        super().__init__(redis, workers=crew, provider=provider, lanes={**(lanes or {}), **said}, **options)

    @property
    def provider(self) -> Any:
        return self.crew.provider

    @provider.setter
    def provider(self, provider: Provider) -> None:
        self.crew.provider = provider

    @property
    def workers(self) -> list[FakeWorker]:
        return self.crew.workers

    @property
    def starts(self) -> list[Start]:
        return self.crew.starts

    @property
    def late(self) -> list[Attempt]:
        return self.crew.late

    @property
    def stale(self) -> int:
        return self.crew.stale

    @property
    def crowded(self) -> int:
        return self.crew.crowded

    @property
    def peak(self) -> dict[str, int]:
        return self.crew.peak

    def results(self, ref: RunRef) -> dict[int, TaskResult]:
        """The tasks' records, by item."""
        steps = self.specs[ref].steps
        stored = self.redis.hgetall(self.keys.results(ref))
        return {
            int(job) // steps: TaskResult.from_json(text)
            for job, text in stored.items()
            if int(job) % steps == 0
        }

    def started(self, lane: str | None = None, ref: RunRef | None = None) -> list[Start]:
        """Calls begun, in order, on one lane, or of one run."""
        return [
            start
            for start in self.starts
            if lane in (None, start.attempt.lane) and (ref is None or ref_of(start.attempt) == ref)
        ]

    def add_worker(self, worker: FakeWorker) -> None:
        self.crew.hire(worker)

    def beat(self, worker: FakeWorker, *, changed: bool) -> None:
        """Let a worker say how it is; ``changed`` wakes the scheduler."""
        self.crew.beat(worker, changed=changed)

    def kill(self, worker: FakeWorker) -> None:
        """It is gone, and says nothing."""
        worker.alive = False


def assert_complete(cluster: Cluster, ref: RunRef, *states: JobState) -> None:
    """The run is over, each of its jobs has one record, and nothing of it is left anywhere."""
    spec, status = cluster.specs[ref], cluster.status(ref)
    assert status.state is RunState.COMPLETED
    assert (status.progress, status.jobs_done, status.items_done) == (1.0, spec.jobs, spec.items)
    assert sum(status.by_state.values()) == spec.jobs
    assert set(status.by_state) <= set(states or JobState)
    stored = {int(job) for job in cluster.redis.hkeys(cluster.keys.results(ref))}
    assert stored == set(range(spec.jobs))
    items = [int(item) for item in cluster.redis.lrange(cluster.keys.finished(ref), 0, -1)]
    assert sorted(items) == list(range(spec.items))
    assert cluster.redis.zcard(cluster.keys.leases) == cluster.redis.hlen(cluster.keys.leased)
    numbers = Counter((start.attempt.job, start.attempt.number) for start in cluster.started(ref=ref))
    assert max(numbers.values()) == 1, "an attempt was executed twice"
