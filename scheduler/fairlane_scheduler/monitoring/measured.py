"""The scheduler's ways to Redis with a measure on them: they do what their plain kinds do, and count."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from fairlane.admission.lanes import Grant, Lanes, Offer
from fairlane.run import Plan, RunState
from fairlane.store.audit import Auditor
from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys, RunRef
from fairlane.store.runs import Runs
from fairlane.store.script import Call
from fairlane.store.workers import Workers
from fairlane_scheduler.monitoring.metrics import SchedulerMetrics


class MeasuredLanes(Lanes):
    """Tells how long a lane's answer takes, what it gave to whom, and what held it back."""

    def __init__(self, redis: RedisClient, keys: Keys, auditor: Auditor, metrics: SchedulerMetrics) -> None:
        super().__init__(redis, keys, auditor)
        self._metrics = metrics

    def grant(self, lane: str, epoch: int, offers: Sequence[Offer], **options: Any) -> Grant | None:
        """See `Lanes.grant`."""
        started = time.perf_counter()
        grant = super().grant(lane, epoch, offers, **options)
        if grant is not None:
            self._metrics.asked(lane, offers, grant, time.perf_counter() - started)
        return grant


class MeasuredRuns(Runs):
    """Tells which runs were admitted, so that their ends are looked for, and counts those refused."""

    def __init__(
        self, redis: RedisClient, keys: Keys, ttl_ms: int, auditor: Auditor, metrics: SchedulerMetrics
    ) -> None:
        super().__init__(redis, keys, ttl_ms, auditor)
        self._metrics = metrics

    def admit(self, plan: Plan, epoch: int, now_ms: str | int = "", **options: Any) -> int:
        """See `Runs.admit`."""
        admitted = super().admit(plan, epoch, now_ms, **options)
        if admitted:
            self._metrics.admitted.append(RunRef(plan.spec.team, plan.spec.run))
        return admitted

    def refuse(self, ref: RunRef, reason: str, submitted_ms: int, epoch: int, now_ms: str | int = "") -> bool:
        """See `Runs.refuse`."""
        refused = super().refuse(ref, reason, submitted_ms, epoch, now_ms)
        if refused:
            self._metrics.runs_ended.labels(RunState.REFUSED).inc()
        return refused


class MeasuredWorkers(Workers):
    """Counts workers that fell silent: a scheduler takes no other one off the list."""

    def __init__(self, keys: Keys, metrics: SchedulerMetrics) -> None:
        super().__init__(keys)
        self._metrics = metrics

    def leave(self, worker: str) -> Call:
        """See `Workers.leave`."""
        self._metrics.workers_lost.inc()
        return super().leave(worker)
