"""The metrics of a scheduler and of a worker, without their processes."""

from __future__ import annotations

from typing import cast

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from fairlane.config.settings import Settings
from fairlane.core.clock import Clock, ManualClock
from fairlane.store.connection.connect import RedisClient
from fairlane.store.write.leader import Leader
from fairlane_scheduler.monitoring.deployment_metrics import DeploymentMetrics
from fairlane_scheduler.monitoring.deployment_sampler import DeploymentSampler
from fairlane_scheduler.monitoring.metrics import SchedulerMetrics
from tests.support.worker_parts import metrics_of


class StandingLeader:
    """An election that a test decides."""

    def __init__(self) -> None:
        self.epoch = 1

    @property
    def leads(self) -> bool:
        return self.epoch > 0


class ScheduledMetrics:
    """A scheduler's metrics, with the state that they read."""

    def __init__(
        self, redis: RedisClient | None = None, settings: Settings | None = None, clock: Clock | None = None
    ) -> None:
        self.settings = settings or Settings()
        self.metrics, self.leader = SchedulerMetrics(self.settings), StandingLeader()
        clock = clock or ManualClock()
        self.sampler = DeploymentSampler(redis, self.settings, self.metrics, clock, lambda: self.leader.leads)
        standing = DeploymentMetrics(cast(Leader, self.leader), self.metrics, self.sampler)
        self.metrics.registry.register(standing)

    def samples(self, family: str) -> dict[tuple[str, ...], float]:
        return samples(self.metrics.registry, family)


def samples(registry: CollectorRegistry, family: str) -> dict[tuple[str, ...], float]:
    """A metric's values (a histogram's sums), keyed by the values of its labels in order of their names."""
    return {
        tuple(value for _, value in sorted(each.labels.items())): each.value
        for metric in registry.collect()
        if metric.name == family
        for each in metric.samples
        if not each.name.endswith(("_created", "_bucket", "_count"))
    }


def families(role: str) -> dict[str, Metric]:
    """All metrics of a role, by the name that queries use: counters end with ``_total``."""
    registry = ScheduledMetrics().metrics.registry if role == "scheduler" else metrics_of(Settings()).registry
    return {
        f"{family.name}_total" if family.type == "counter" else family.name: family
        for family in registry.collect()
    }
