"""The metrics that a scheduler and a worker have, without a process."""

from __future__ import annotations

from typing import cast

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from fairlane.clock import Clock, ManualClock
from fairlane.settings import Settings
from fairlane.store.connect import RedisClient
from fairlane_scheduler.leader import Leader
from fairlane_scheduler.monitoring.metrics import SchedulerMetrics
from fairlane_scheduler.monitoring.standing import Standing
from fairlane_scheduler.monitoring.survey import Survey
from fairlane_workers.metrics import WorkerMetrics


class StandingLeader:
    """Leads as long as a test says so."""

    def __init__(self) -> None:
        self.epoch = 1

    @property
    def leads(self) -> bool:
        return self.epoch > 0


class ScheduledMetrics:
    """A scheduler's metrics with what it would look at."""

    def __init__(
        self, redis: RedisClient = None, settings: Settings | None = None, clock: Clock | None = None
    ) -> None:
        self.settings = settings or Settings()
        self.metrics, self.leader = SchedulerMetrics(self.settings), StandingLeader()
        clock = clock or ManualClock()
        self.survey = Survey(redis, self.settings, self.metrics, clock, lambda: self.leader.leads)
        standing = Standing(cast(Leader, self.leader), self.metrics, self.survey)
        self.metrics.registry.register(standing)

    def samples(self, family: str) -> dict[tuple[str, ...], float]:
        return samples(self.metrics.registry, family)


def samples(registry: CollectorRegistry, family: str) -> dict[tuple[str, ...], float]:
    """Values of a family by those of its labels, which are sorted by name; of a histogram, its sums."""
    return {
        tuple(value for _, value in sorted(each.labels.items())): each.value
        for metric in registry.collect()
        if metric.name == family
        for each in metric.samples
        if not each.name.endswith(("_created", "_bucket", "_count"))
    }


def families(role: str) -> dict[str, Metric]:
    """Every family that a role serves, by the name that queries use: counters end with ``_total``."""
    registry = (
        ScheduledMetrics().metrics.registry
        if role == "scheduler"
        else WorkerMetrics(Settings(), lambda: 0, lambda: 0).registry
    )
    return {
        f"{family.name}_total" if family.type == "counter" else family.name: family
        for family in registry.collect()
    }
