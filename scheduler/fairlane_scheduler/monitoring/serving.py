"""Wires metrics, health checks and their HTTP server in a scheduler process."""

from __future__ import annotations

from collections.abc import Callable

from fairlane.config.settings import Settings
from fairlane.core.clock import Clock
from fairlane.store.connection.connect import open_store
from fairlane.store.connection.server_states import Refusal
from fairlane.store.keys import Keys
from fairlane.store.write.leader import Leader
from fairlane.telemetry.metrics_server import MetricsServer
from fairlane_scheduler.monitoring.deployment_metrics import DeploymentMetrics
from fairlane_scheduler.monitoring.deployment_sampler import DeploymentSampler
from fairlane_scheduler.monitoring.health import SchedulerHealth
from fairlane_scheduler.monitoring.metrics import scheduler_metrics


class Monitoring:
    """Serves nothing and samples nothing if metrics are disabled."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self.metrics = metrics = scheduler_metrics(settings)
        self.health = SchedulerHealth(
            clock, settings.scheduler.leader_lease_seconds, metrics.tick_seconds.observe, self._refusing
        )
        port = settings.metrics.scheduler_port
        self._server = MetricsServer(settings.metrics, port, metrics.registry, self.health)
        self._sampler: DeploymentSampler | None = None

    @property
    def url(self) -> str | None:
        """The server's URL; ``None`` if metrics are disabled."""
        return self._server.url

    def start(self, leader: Leader, unmoved: Callable[[], tuple[int, float]] = lambda: (0, 0.0)) -> None:
        """Serve metrics, and sample the deployment as long as ``leader`` leads.

        ``unmoved``: runs that wait for the archive, and the seconds for which the first has been due.
        """
        if not self._settings.metrics.enabled:
            return
        answer_s = self._settings.scheduler.leader_answer_s
        redis = open_store(self._settings.redis, retries=0, answer_s=answer_s)
        self._sampler = DeploymentSampler(
            redis,
            Keys(self._settings.redis.deployment),
            round(self._settings.scheduler.worker_timeout_seconds * 1000),
            self.metrics,
            self._clock,
            lambda: leader.leads,
        )
        self.metrics.registry.register(DeploymentMetrics(leader, self.metrics, self._sampler, unmoved))
        self._sampler.thread.start()
        self._server.start()

    def _refusing(self) -> Refusal | None:
        return None if self._sampler is None else self._sampler.refusing

    def stop(self) -> None:
        """Stop the server and the sampler."""
        self._server.stop()
        if self._sampler is not None:
            self._sampler.thread.stop()
