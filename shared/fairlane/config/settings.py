"""One frozen `Settings`: all sections together. `fairlane.config.loader` reads it."""

from urllib.parse import parse_qs, urlsplit

from pydantic import Field, SecretStr

from fairlane.config import sections
from fairlane.config.connections.connection import Connection
from fairlane.config.topology import CLUSTER
from fairlane.core.errors import ConfigurationError
from fairlane.core.section import Section
from fairlane.model.lane import LaneLimits, endpoint_id, lane_key, split_model
from fairlane.model.tokens import Price


class Settings(Section):
    """Everything that can be configured. docs/configuration.md is generated from this class."""

    redis: sections.RedisSettings = sections.RedisSettings()
    celery: sections.CelerySettings = sections.CelerySettings()
    connections: dict[sections.ConnectionName, Connection] = Field(default_factory=dict)
    lanes: dict[str, LaneLimits] = Field(default_factory=dict)
    teams: dict[sections.TeamName, sections.TeamSettings] = Field(default_factory=dict)
    prices: dict[str, Price] = Field(default_factory=dict)
    archive: sections.ArchiveSettings = sections.ArchiveSettings()
    audit: sections.AuditSettings = sections.AuditSettings()
    scheduler: sections.SchedulerSettings = sections.SchedulerSettings()
    worker: sections.WorkerSettings = sections.WorkerSettings()
    sandbox: sections.SandboxSettings = sections.SandboxSettings()
    metrics: sections.MetricsSettings = sections.MetricsSettings()
    tracing: sections.TracingSettings = sections.TracingSettings()
    log: sections.LogSettings = sections.LogSettings()
    defaults: sections.DefaultsSettings = sections.DefaultsSettings()
    team: sections.TeamName = "default"
    """Team for which a client submits."""

    config_file: str | None = None
    """The file that these settings were read from."""

    @property
    def broker_url(self) -> str:
        """URL of Celery's broker, in kombu's spelling.

        Raises `ConfigurationError` if there is none and the state is on a cluster.
        """
        url = self.celery.broker_url or self.redis.url
        if self.celery.broker_url is None and CLUSTER in url.partition("://")[0]:
            raise ConfigurationError(
                "celery.broker_url",
                None,
                "is left out, and Celery's queues cannot be where redis.url is, on a cluster",
                "Name a broker: one Redis, redis+sentinel://…, or RabbitMQ, amqp://…",
            )
        if not url.startswith("unix://"):
            return url
        parts = urlsplit(url)
        database = parse_qs(parts.query).get("db", ["0"])[0]
        return f"redis+socket://{parts.netloc}{parts.path}?virtual_host={database}"

    def limits_of(self, lane: str) -> LaneLimits | None:
        """Limits of a lane before its first use: the operator's, completed by its provider's defaults.

        A lane without a table gets ``defaults.max_concurrency``, if its provider has none. ``None`` if none
        of them has any. Other fields are not set.
        """
        configured = self.lanes.get(lane)
        name, _, model = lane.partition(":")
        connection = self.connections.get(name) or self._connection_at(lane)
        known = connection.lane_defaults(model) if connection else {}
        if configured is None and self.defaults.calls_at_once is not None:
            known = {"max_concurrency": self.defaults.calls_at_once} | known
        if not known:
            return configured
        return LaneLimits.model_validate(
            known | (configured.model_dump(exclude_unset=True) if configured else {})
        )

    def _connection_at(self, endpoint: str) -> Connection | None:
        """A connection whose lane is this server's."""
        known = (each for each in self.connections.values() if each.scope == "endpoint")
        return next((each for each in known if endpoint_id(each.base_url) == endpoint), None)

    def lane_of(self, model: str) -> str:
        """``"<connection>:<model>"`` → lane key, as ``lanes`` has it. Raises ``KeyError`` for an unknown one.

        A connection that shares the limit of another uses the other's lane: `LaneDirectory`.
        """
        connection, name = split_model(model)
        known = self.connections[connection]
        return lane_key(connection, name, known.scope, known.base_url)


class WorkerSecrets(Section):
    """Credentials by connection; only worker processes have them, and they are never printed.

    ``missing`` maps each connection without a key to the variable, file or program that should have it.
    ``proxies`` are ``user:password`` for the proxies of connections.
    """

    keys: dict[str, SecretStr] = Field(default_factory=dict)
    proxies: dict[str, SecretStr] = Field(default_factory=dict)
    missing: dict[str, str] = Field(default_factory=dict)
