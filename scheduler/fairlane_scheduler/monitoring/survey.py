"""Looks at the whole deployment every few seconds for the sake of its metrics, in a thread of its own.

Whoever scrapes reads what was seen last: a scrape asks Redis nothing, however many there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redis.exceptions import RedisError

from fairlane.admission.lanes import Lanes
from fairlane.admission.views import LaneView
from fairlane.clock import Clock
from fairlane.logs import get_logger
from fairlane.settings import Settings
from fairlane.store.connect import RedisClient
from fairlane.store.glances import Glances
from fairlane.store.keys import Keys
from fairlane.store.workers import Beat, Workers
from fairlane_scheduler.monitoring.metrics import SchedulerMetrics
from fairlane_scheduler.monitoring.run_tally import RunFigures, RunTally
from fairlane_scheduler.rounds import Rounds

LOOK_EVERY_S = 5.0

log = get_logger("survey")


@dataclass(frozen=True, slots=True)
class Picture:
    """A deployment as the leader saw it. ``workers`` are those alive."""

    lanes: Sequence[LaneView]
    workers: Sequence[Beat]
    runs: RunFigures


class Survey:
    """Standbys measure their way to Redis and see no more: ``picture`` is ``None`` then.

    A look costs a script for every hundred lanes and two commands for each of at most 500 runs.
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
        keys = Keys(settings.redis.deployment)
        self._lanes, self._workers = Lanes(redis, keys), Workers(keys)
        self._runs = RunTally(Glances(redis, keys), metrics, clock)
        self._timeout_ms = round(settings.scheduler.worker_timeout_seconds * 1000)
        self.picture: Picture | None = None
        self.reachable = False
        self.rounds = Rounds("survey", self._round, lambda: self._redis.close())

    def tick(self) -> None:
        """One look."""
        try:
            now_ms = self._measure()
            self.picture = self._look(now_ms) if self._leads() else None
            if self.picture is None:
                self._runs.forget_all()
            self.reachable = True
        except (RedisError, OSError):
            self._metrics.redis_errors.inc()
            self.picture, self.reachable = None, False

    def _measure(self) -> int:
        """The server's clock, for which it is asked to see how long that takes."""
        started = time.perf_counter()
        seconds, micros = self._redis.time()
        self._metrics.redis_seconds.observe(time.perf_counter() - started)
        return int(seconds) * 1000 + int(micros) // 1000

    def _look(self, now_ms: int) -> Picture:
        beats = self._workers.beats(self._redis)
        alive = [beat for beat in beats if beat.beat_ms + self._timeout_ms >= now_ms]
        return Picture(self._lanes.views(self._lanes.names()), alive, self._runs.look())

    def _round(self) -> float:
        try:
            self.tick()
        except Exception:
            # A defect. Work goes on without metrics of the whole, and the log says why.
            log.exception("survey_failed")
            self.picture = None
        return LOOK_EVERY_S
