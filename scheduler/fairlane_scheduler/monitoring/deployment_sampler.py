"""Samples the whole deployment every few seconds for its metrics, in a background thread.

A scrape reads the last sample and sends Redis no command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redis.exceptions import RedisError

from fairlane.core.clock import Clock
from fairlane.core.events import Event
from fairlane.store.connection.connect import RedisClient
from fairlane.store.connection.server_states import Refusal, refusing_state
from fairlane.store.keys import Keys
from fairlane.store.read.overview import DeploymentReader, ServerView
from fairlane.store.run_queries import RunStates, read_time
from fairlane.store.write.lanes.lane_view import LaneView
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.workers import Beat, Workers
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.monitoring.metrics import SchedulerMetrics
from fairlane_scheduler.monitoring.run_tally import RunTally, RunTotals
from fairlane_scheduler.state.periodic_thread import PeriodicThread

LOOK_EVERY_S = 5.0

log = get_logger("sampler")


@dataclass(frozen=True, slots=True)
class DeploymentSample:
    """A deployment as the leader saw it; ``workers`` are the live ones."""

    lanes: Sequence[LaneView]
    workers: Sequence[Beat]
    runs: RunTotals


class DeploymentSampler:
    """Standbys look at the server and measure the round trip to it only; their ``sample`` is ``None``.

    ``refusing`` is why the server takes no writes, ``None`` where it takes them. An idle scheduler makes no
    write that would tell it so. A sample costs a script per hundred lanes, and two commands per run, of at
    most 500 runs.
    """

    def __init__(
        self,
        redis: RedisClient,
        keys: Keys,
        worker_timeout_ms: int,
        metrics: SchedulerMetrics,
        clock: Clock,
        leads: Callable[[], bool],
    ) -> None:
        self._redis, self._keys, self._metrics, self._leads = redis, keys, metrics, leads
        self._deployment = DeploymentReader(redis, keys)
        self._lanes, self._workers = Lanes(redis, keys), Workers(keys)
        self._runs = RunTally(RunStates(redis, keys), metrics, clock)
        self._timeout_ms = worker_timeout_ms
        self.sample: DeploymentSample | None = None
        self.reachable = False
        self.refusing: Refusal | None = None
        self.evicts: bool | None = None
        """Whether the server would delete parts of runs; ``None`` where it does not say."""
        self.ahead_s: float | None = None
        """How far the deployment's time is ahead of the server's clock, which has stepped back."""
        self._eviction_noted = False
        self.thread = PeriodicThread("sampler", self._look_and_log, lambda: self._redis.close())

    def tick(self) -> None:
        """Take one sample."""
        try:
            now_ms = self._measure()
            server = self._deployment.server()
            self.refusing = None if server is None else server.refusing
            self._note_eviction(server)
            self.sample = self._look(now_ms) if self._leads() else None
            if self.sample is None:
                self._runs.forget_all()
            self.reachable = True
        except (RedisError, OSError) as error:
            self._metrics.redis_errors.inc()
            self.refusing = refusing_state(error)
            self.sample, self.reachable = None, False
            self.evicts = self.ahead_s = None

    def _note_eviction(self, server: ServerView | None) -> None:
        """Warn once that Redis may evict keys of runs, and again if it may after it might not."""
        noted = False
        self.evicts = None if server is None else server.evicts and server.memory_limit > 0
        if server is not None and self.evicts and self._leads():
            noted = True
            if not self._eviction_noted:
                log.error(
                    Event.STORE_EVICTS, policy=server.eviction, remedy="set maxmemory-policy noeviction"
                )
        self._eviction_noted = noted

    def _measure(self) -> int:
        """Read the time, and how long that round trip takes."""
        started = time.perf_counter()
        now_ms, ahead_ms = read_time(self._redis, self._keys)
        self.ahead_s = ahead_ms / 1000
        self._metrics.redis_seconds.observe(time.perf_counter() - started)
        return now_ms

    def _look(self, now_ms: int) -> DeploymentSample:
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
