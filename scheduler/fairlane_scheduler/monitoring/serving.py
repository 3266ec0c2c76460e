"""Puts together what watches a scheduler process: its metrics, its health, and the server that tells both."""

from __future__ import annotations

from fairlane.clock import Clock
from fairlane.metrics_server import MetricsServer
from fairlane.settings import Settings
from fairlane.store.connect import open_store
from fairlane_scheduler.leader import Leader
from fairlane_scheduler.monitoring.health import SchedulerHealth
from fairlane_scheduler.monitoring.metrics import SchedulerMetrics
from fairlane_scheduler.monitoring.standing import Standing
from fairlane_scheduler.monitoring.survey import Survey


class Monitoring:
    """Counting goes on where nothing is served; nobody looks at the whole then."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self.metrics = metrics = SchedulerMetrics(settings)
        self.health = SchedulerHealth(
            clock, settings.scheduler.leader_lease_seconds, metrics.tick_seconds.observe
        )
        port = settings.metrics.scheduler_port
        self._server = MetricsServer(settings.metrics, port, metrics.registry, self.health)
        self._survey: Survey | None = None

    @property
    def url(self) -> str | None:
        """Where the process tells of itself; ``None`` where it does not."""
        return self._server.url

    def start(self, leader: Leader) -> None:
        """Serve, and look at the deployment as long as ``leader`` leads."""
        if not self._settings.metrics.enabled:
            return
        redis = open_store(self._settings.redis, retries=0)
        self._survey = Survey(redis, self._settings, self.metrics, self._clock, lambda: leader.leads)
        self.metrics.registry.register(Standing(leader, self.metrics, self._survey))
        self._survey.rounds.start()
        self._server.start()

    def stop(self) -> None:
        """End both."""
        self._server.stop()
        if self._survey is not None:
            self._survey.rounds.stop()
