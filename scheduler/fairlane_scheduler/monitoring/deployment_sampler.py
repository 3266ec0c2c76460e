"""Samples the whole deployment every few seconds for its metrics, in a background thread.

A scrape reads the last sample and sends Redis no command.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from fairlane.config.settings import Settings
from fairlane.core.clock import Clock
from fairlane.core.events import Event
from fairlane.model.job import JobState
from fairlane.model.run import RunRef
from fairlane.store.connection.connect import RedisClient
from fairlane.store.connection.server_states import Refusal, refusing_state
from fairlane.store.keys import Keys
from fairlane.store.read.overview import DeploymentReader, ServerView
from fairlane.store.run_queries import RunProgress, RunStates, read_time
from fairlane.store.write.lanes.lane_view import LaneView
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.workers import Beat, Workers
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.monitoring.metrics import SchedulerMetrics
from fairlane_scheduler.state.periodic_thread import PeriodicThread

LOOK_EVERY_S = 5.0

LOOKED_AT_ONCE = 500
"""Most runs that one sample reads. More take turns, and the others count as they were read last."""

log = get_logger("sampler")


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Totals of all active runs. ``jobs``: all their jobs by state; ``progress``: the share that has ended.

    ``standstill_s``: the longest time in which no job of a run has ended. Time in which the run is paused, or
    waits on purpose (`waiting_on_purpose`), does not count.
    """

    running: int = 0
    paused: int = 0
    progress: float = 1.0
    standstill_s: float = 0.0
    jobs: Mapping[JobState, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Last:
    run: RunProgress
    moved_ms: int
    waits_on_purpose: bool


class RunTally:
    """Sums up all active runs, and counts ended runs by state, without a label for any run.

    It remembers the runs that were active: one that is not active any more has ended.
    """

    def __init__(self, run_states: RunStates, metrics: SchedulerMetrics, clock: Clock) -> None:
        self._run_states, self._metrics, self._clock = run_states, metrics, clock
        self._seen: dict[RunRef, _Last] = {}
        self._known: set[RunRef] = set()

    def forget_all(self) -> None:
        """Start over: another scheduler leads, and counts from now on."""
        self._seen.clear()
        self._known.clear()
        self._metrics.admitted.clear()

    def look(self) -> RunTotals:
        """Read the runs that are due, count ended runs, and return the totals."""
        while self._metrics.admitted:
            self._known.add(self._metrics.admitted.popleft())
        active = set(self._run_states.active())
        self._count_ended(self._known - active)
        self._known = active
        self._seen = {ref: seen for ref, seen in self._seen.items() if ref in active}
        # Those that were never read come first, then those whose turn is longest ago.
        unread = sorted(active - self._seen.keys(), key=str)
        due = [*unread, *self._seen][:LOOKED_AT_ONCE]
        for ref, run in self._run_states.of(due).items():
            self._note(ref, run)
        return self._figures()

    def _count_ended(self, refs: set[RunRef]) -> None:
        for state in self._run_states.states(sorted(refs, key=str)) if refs else ():
            if state is not None and state.finished:
                self._metrics.runs_ended.labels(state).inc()

    def _note(self, ref: RunRef, run: RunProgress) -> None:
        before, now = self._seen.pop(ref, None), self._clock.monotonic_ms()
        on_purpose = run.paused or (
            ref in self._metrics.leader_sample.waiting_on_purpose and not run.in_flight
        )
        still = before is not None and not on_purpose and before.run.jobs_done == run.jobs_done
        self._seen[ref] = _Last(run, before.moved_ms if before is not None and still else now, on_purpose)

    def _figures(self) -> RunTotals:
        jobs, progress = Counter[JobState](), [seen.run for seen in self._seen.values()]
        for run in progress:
            jobs.update(run.ended)
            jobs[JobState.WAITING] += run.waiting
            jobs[JobState.LEASED] += run.in_flight
        total, done = sum(each.jobs for each in progress), sum(each.jobs_done for each in progress)
        paused = sum(run.paused for run in progress)
        moved = [seen.moved_ms for seen in self._seen.values() if not seen.waits_on_purpose]
        now = self._clock.monotonic_ms()
        return RunTotals(
            running=len(self._known) - paused,
            paused=paused,
            progress=done / total if total else 1.0,
            standstill_s=max((now - each for each in moved), default=0) / 1000,
            jobs=jobs,
        )


@dataclass(frozen=True, slots=True)
class DeploymentSample:
    """A deployment as the leader sampled it; ``workers`` are the live ones."""

    lanes: Sequence[LaneView]
    workers: Sequence[Beat]
    runs: RunTotals


class DeploymentSampler:
    """Samples the deployment. A standby only checks Redis and measures the round trip (``sample``: ``None``).

    ``refusing``: why the server takes no writes; ``None`` if it does. An idle scheduler writes nothing, so it
    needs this. A sample costs a script per hundred lanes, and two commands per run, of at most 500 runs.
    """

    def __init__(
        self,
        redis: RedisClient,
        settings: Settings,
        metrics: SchedulerMetrics,
        clock: Clock,
        leads: Callable[[], bool],
    ) -> None:
        self._redis, self._metrics, self._leads = redis, metrics, leads
        self._keys = keys = Keys(settings.redis.deployment)
        self._deployment = DeploymentReader(redis, keys)
        self._lanes, self._workers = Lanes(redis, keys), Workers(keys)
        self._runs = RunTally(RunStates(redis, keys), metrics, clock)
        self._timeout_ms = round(settings.scheduler.worker_timeout_seconds * 1000)
        self.sample: DeploymentSample | None = None
        self.reachable = False
        self.refusing: Refusal | None = None
        self.evicts: bool | None = None
        """Whether the server may evict keys of runs; ``None`` if it does not report its policy."""
        self.ahead_s: float | None = None
        """By how many seconds the server's clock has stepped back behind the deployment's time."""
        self._eviction_noted = False
        self.thread = PeriodicThread("sampler", self._look_and_log, lambda: self._redis.close())

    def tick(self) -> None:
        """Take one sample."""
        try:
            now_ms = self._measure()
            server = self._deployment.server()
            self.refusing = None if server is None else server.refusing
            self._note_eviction(server)
            self.sample = self._take_sample(now_ms) if self._leads() else None
            if self.sample is None:
                self._runs.forget_all()
            self.reachable = True
        except (RedisError, OSError) as error:
            self._metrics.redis_errors.inc()
            self.refusing = refusing_state(error)
            self.sample, self.reachable = None, False
            self.evicts = self.ahead_s = None

    def _note_eviction(self, server: ServerView | None) -> None:
        """Log that Redis may evict keys of runs, each time that this begins."""
        self.evicts = None if server is None else server.evicts and server.memory_limit > 0
        before, self._eviction_noted = self._eviction_noted, bool(self.evicts) and self._leads()
        if server is not None and self._eviction_noted and not before:
            log.error(Event.STORE_EVICTS, policy=server.eviction, remedy="set maxmemory-policy noeviction")

    def _measure(self) -> int:
        """Read the time, and how long that round trip takes."""
        started = time.perf_counter()
        now_ms, ahead_ms = read_time(self._redis, self._keys)
        self.ahead_s = ahead_ms / 1000
        self._metrics.redis_seconds.observe(time.perf_counter() - started)
        return now_ms

    def _take_sample(self, now_ms: int) -> DeploymentSample:
        beats = self._workers.beats(self._redis)
        alive = [beat for beat in beats if beat.beat_ms + self._timeout_ms >= now_ms]
        return DeploymentSample(self._lanes.views(self._lanes.names()), alive, self._runs.look())

    def _look_and_log(self) -> float:
        try:
            self.tick()
        except Exception:
            # A bug. The scheduler works on without these metrics; the log has the reason.
            log.exception(Event.SURVEY_FAILED)
            self.sample = None
        return LOOK_EVERY_S
