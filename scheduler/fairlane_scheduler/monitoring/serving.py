"""Wires metrics, health checks and their HTTP server in a scheduler process."""

from collections.abc import Callable

from fairlane.config.settings import Settings
from fairlane.core.clock import Clock
from fairlane.store.connection.connect import open_store
from fairlane.store.connection.server_states import Refusal
from fairlane.store.write.leader import Leader
from fairlane.telemetry.metrics_server import MetricsServer, Pulse
from fairlane_scheduler.monitoring.deployment_metrics import DeploymentMetrics
from fairlane_scheduler.monitoring.deployment_sampler import DeploymentSampler
from fairlane_scheduler.monitoring.metrics import SchedulerMetrics


class Monitoring:
    """A scheduler's metrics, health and HTTP server. Does nothing if metrics are disabled."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self.metrics = metrics = SchedulerMetrics(settings)
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

        ``unmoved`` returns how many runs wait for the archive, and for how many seconds the first is overdue.
        """
        if not self._settings.metrics.enabled:
            return
        answer_s = self._settings.scheduler.leader_answer_s
        redis = open_store(self._settings.redis, retries=0, answer_s=answer_s)
        self._sampler = DeploymentSampler(
            redis, self._settings, self.metrics, self._clock, lambda: leader.leads
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


STUCK_S = 75.0
"""A loop without a pass for so long is stuck. Waits for Redis are far shorter: its loss restarts nobody."""

SPARE_S = 5.0


class SchedulerHealth:
    """Notes each pass of the scheduler's loop, and each that succeeded, for health probes and metrics.

    ``refusing`` returns why Redis takes no writes, or ``None``.
    """

    def __init__(
        self,
        clock: Clock,
        leader_lease_s: float,
        observe: Callable[[float], None],
        refusing: Callable[[], Refusal | None] = lambda: None,
    ) -> None:
        self._pass_began, self._pass_succeeded = Pulse(clock), Pulse(clock)
        self._patience_s = leader_lease_s + SPARE_S
        self._observe, self._refusing = observe, refusing
        self._trouble: str | None = None

    def pass_began(self) -> None:
        """Note that the loop begins another pass, or waits for Redis."""
        self._pass_began.beat()

    def pass_succeeded(self, seconds: float) -> None:
        """Note a successful pass: Redis answered, and this scheduler leads or stands by."""
        self._pass_succeeded.beat()
        self._trouble = None
        self._observe(seconds)

    def pass_failed(self, why: str) -> None:
        """Note that a pass failed; ``why``: the error in words."""
        self._trouble = why

    def silent_s(self) -> float | None:
        """Seconds since the last pass began; ``None`` before the first."""
        return self._pass_began.silent_s()

    def sick(self) -> str | None:
        """See `Health`."""
        silent_s = self.silent_s()
        if silent_s is None or silent_s <= STUCK_S:
            return None
        return f"the loop has not turned for {silent_s:.0f} s"

    def unready(self) -> str | None:
        """See `Health`."""
        silent_s = self._pass_succeeded.silent_s()
        if silent_s is None:
            why = f": {self._trouble}" if self._trouble else ""
            return f"no pass has succeeded yet{why}"
        if silent_s > self._patience_s:
            return f"no pass has succeeded for {silent_s:.0f} s: {self._trouble or 'is Redis there?'}"
        refusing = self._refusing()
        return None if refusing is None else refusing.problem
