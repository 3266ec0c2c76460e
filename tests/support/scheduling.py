"""A deployment in virtual time for tests: it starts with one worker, and tests can inspect it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from redis import Redis

from fairlane.lab.rehearsal.virtual import cluster
from fairlane.lab.rehearsal.virtual.simulated_workers import ref_of
from fairlane.model.job import Attempt, JobState
from fairlane.model.results import TaskResult
from fairlane.model.run import RunRef, RunState
from tests.support.stand_ins import FakeWorker, Provider, Start, answers

LANES = ("sim:fast", "sim:slow", "sim:judge")


class Cluster(cluster.Cluster):
    """Plays all events in order, each at its millisecond of virtual time.

    A lane without settings has no limit on requests. A lane with ``{"requests_per_minute": None}`` must
    detect its rate. Any number of a run's first calls start at once, unless ``bounds`` says else.
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
        options["bounds"] = {"first_calls": 0, **options.get("bounds", {})}
        super().__init__(redis, workers=crew, provider=provider, lanes={**(lanes or {}), **said}, **options)

    @property
    def provider(self) -> Any:
        return self.simulated.provider

    @provider.setter
    def provider(self, provider: Provider) -> None:
        self.simulated.provider = provider

    @property
    def workers(self) -> list[FakeWorker]:
        return self.simulated.workers

    @property
    def starts(self) -> list[Start]:
        return self.simulated.starts

    @property
    def late(self) -> list[Attempt]:
        return self.simulated.late

    @property
    def stale(self) -> int:
        return self.simulated.stale

    @property
    def short_of_slots(self) -> int:
        return self.simulated.short_of_slots

    @property
    def peak(self) -> dict[str, int]:
        return self.simulated.peak

    def cancel(self, ref: RunRef) -> None:
        """Request the cancellation of a run."""
        self.outbox.cancel(ref)
        self.announce(ref.team)

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Run an action ``seconds`` from now."""

        def act() -> None:
            self._send(self.simulated.take_calls())
            action()
            self._unseen = True

        self.events.after(round(seconds * 1000), act)

    def run_until_finished(self, *refs: RunRef, limit_s: float = 3600) -> float:
        """Let time pass until the runs have finished; returns how many seconds passed."""
        began, awaited = self.now_ms, set(refs or self.specs)
        for _ in self._moments(limit_s):
            active = self.redis.smembers(self.keys.active)
            awaited = {
                ref
                for ref in awaited
                if str(ref).encode() in active or not self.redis.exists(self.keys.state(ref))
            }
            if not awaited:
                return (self.now_ms - began) / 1000
        raise AssertionError(f"after {limit_s:g} s: {[self.status(ref) for ref in awaited]}")

    def moments(self, limit_s: float) -> Iterator[int]:
        """Each millisecond with an event, after it; the caller may act in between."""
        for now_ms in self._moments(limit_s):
            yield now_ms
            self._unseen = True

    def results(self, ref: RunRef) -> dict[int, TaskResult]:
        """The records of tasks, by item."""
        steps = self.specs[ref].steps
        stored = self.redis.hgetall(self.keys.results(ref))
        return {
            int(job) // steps: TaskResult.from_json(text)
            for job, text in stored.items()
            if int(job) % steps == 0
        }

    def started(self, lane: str | None = None, ref: RunRef | None = None) -> list[Start]:
        """The calls that have started, in order; of one lane or one run, if given."""
        return [
            start
            for start in self.starts
            if lane in (None, start.attempt.lane) and (ref is None or ref_of(start.attempt) == ref)
        ]

    def add_worker(self, worker: FakeWorker) -> None:
        self.simulated.add(worker)

    def beat(self, worker: FakeWorker, *, changed: bool) -> None:
        """Send a worker's heartbeat; ``changed`` wakes the scheduler."""
        self.simulated.beat(worker, changed=changed)

    def kill(self, worker: FakeWorker) -> None:
        """The worker dies without a message."""
        worker.alive = False


def assert_complete(cluster: Cluster, ref: RunRef, *states: JobState) -> None:
    """Fail unless the run has ended, each job has one record, and no work of it is left."""
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
