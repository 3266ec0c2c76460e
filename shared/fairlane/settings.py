"""One frozen `Settings`: everything that can be configured. `fairlane.configuration` reads it."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from fairlane.connection import Connection
from fairlane.errors import ConfigurationError
from fairlane.lane import LaneLimits, endpoint_id, lane_key, split_model
from fairlane.section import Section
from fairlane.topology import CLUSTER, topology_of

_NAME = r"^[A-Za-z0-9_-]{1,64}$"

ConnectionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
TeamName = Annotated[str, Field(pattern=_NAME)]


def require_checks(url: str) -> str:
    """The URL, unless it says that a certificate is not to be checked. Raises ``ValueError``."""
    asked = {name: value[-1].lower() for name, value in parse_qs(urlsplit(url).query).items()}
    reqs, hostname = asked.get("ssl_cert_reqs", "required"), asked.get("ssl_check_hostname", "true")
    if reqs not in ("required", "cert_required") or hostname in ("0", "f", "false", "n", "no"):
        raise ValueError(
            "certificates are always checked: name the authority instead, ?ssl_ca_certs=/path/to/ca.pem"
        )
    return url


def _for_celery(url: str) -> str:
    """The URL, unless Celery could not use it. Raises ``ValueError``."""
    if url.startswith("sentinel://"):
        raise ValueError("name Sentinels and their service in one: redis+sentinel://host:26379,…/mymaster")
    topology = topology_of(url)
    if topology is not None and topology.service is None:
        raise ValueError("Celery's queues cannot be on a cluster: name one Redis, Sentinels or RabbitMQ")
    return url


class RedisSettings(Section):
    """Where live state is kept."""

    url: str = Field(
        default="redis://127.0.0.1:6379/0",
        pattern=r"^((redis|rediss)(\+sentinel|\+cluster)?|unix)://",
        description="Redis or Valkey, 6.2 or later: redis://, rediss:// or unix://; "
        "redis+sentinel://HOST,HOST/SERVICE, redis+cluster://HOST,HOST.",
    )
    deployment: str = Field(
        default="main",
        pattern=_NAME,
        description="Names this deployment's keys; several may share one Redis.",
    )

    @field_validator("url")
    @classmethod
    def _is_checked(cls, url: str) -> str:
        topology_of(url)
        return require_checks(url)


class CelerySettings(Section):
    """How attempts reach the workers."""

    broker_url: str | None = Field(
        default=None,
        description="Celery's broker: Redis as above, but no cluster, or RabbitMQ, amqp:// or amqps://. "
        "Left out: the state Redis.",
    )

    @field_validator("broker_url")
    @classmethod
    def _is_checked(cls, url: str | None) -> str | None:
        return None if url is None else require_checks(_for_celery(url))


class Budget(Section):
    """What a team may use in a day or a month, on one lane or in all."""

    lane: str = Field(default="*", min_length=1, description='A lane as `fairlane lanes` names it; "*": all.')
    per: Literal["day", "month"] = Field(description='"day" or "month", each in UTC.')
    requests: int | None = Field(default=None, gt=0, le=10**12, description="Calls.")
    tokens: int | None = Field(default=None, gt=0, le=10**12, description="Input and output together.")
    usd: float | None = Field(
        default=None, gt=0, le=10**6, description="Dollars, by `prices`; a model without one costs nothing."
    )

    @property
    def limits(self) -> dict[str, float]:
        """What is limited, by unit."""
        stated = {"requests": self.requests, "tokens": self.tokens, "usd": self.usd}
        return {unit: most for unit, most in stated.items() if most is not None}

    @model_validator(mode="after")
    def _limits_something(self) -> Budget:
        if not self.limits:
            raise ValueError("a budget is of requests, tokens or usd")
        return self


class TeamSettings(Section):
    """What a team may claim of a shared lane."""

    weight: float = Field(default=1.0, gt=0, le=1000, description="Its share, relative to the other teams'.")
    lendable_percent: float = Field(
        default=100.0,
        ge=0,
        le=100,
        description="How much of its share others may use while it does not. The rest is kept for it.",
    )
    borrowing_limit_percent: float | None = Field(
        default=None,
        ge=0,
        description="How much it may take beyond its share, of that share, while others do not use theirs. "
        "Left out: any.",
    )
    max_percent: float | None = Field(
        default=None, gt=0, le=100, description="The most of a lane that it may ever take. Left out: all."
    )
    budgets: tuple[Budget, ...] = Field(
        default=(),
        description='What it may use: `lane` ("*": all), `per` ("day" or "month", UTC), and `requests`, '
        "`tokens` or `usd`. What is beyond it waits for the next period.",
    )

    @property
    def restricted(self) -> bool:
        """Whether anything is kept for it, or it may not take all."""
        return self.lendable_percent < 100 or (self.borrowing_limit_percent, self.max_percent) != (None, None)


class Price(Section):
    """What a model's tokens cost, in dollars a million."""

    input: float = Field(ge=0, description="Input tokens.")
    output: float = Field(ge=0, description="Output tokens.")
    cached_input: float | None = Field(
        default=None, ge=0, description="Input tokens read from a cache. Left out: as other input."
    )


class ArchiveSettings(Section):
    """Where finished runs go for good."""

    url: SecretStr | None = Field(
        default=None,
        description="A database as SQLAlchemy names it: sqlite:///runs.db, postgresql+psycopg://… Runs "
        "are moved there once they are finished. Left out: they stay in Redis until they expire.",
    )
    after_seconds: float = Field(
        default=86_400.0,
        ge=0,
        description="How long a finished run stays in Redis, where it can be resumed, before it is moved.",
    )


class AuditSettings(Section):
    """The log of who changed what."""

    keep: int = Field(default=100_000, ge=1, description="Entries that are kept, approximately.")


class PayloadLimits(Section):
    """What a team may ask of the scheduler; more is refused, with a message."""

    row_bytes: int = Field(
        default=1024 * 1024, ge=1, description="Largest row as JSON. The items of a larger one fail."
    )
    run_bytes: int = Field(
        default=1024**3, ge=1, description="Most bytes that a run's rows take in Redis, compressed."
    )
    spec_bytes: int = Field(
        default=4 * 1024 * 1024, ge=1, description="Largest run without its rows: prompts, parameters."
    )
    waiting_requests: int = Field(
        default=10_000,
        ge=1,
        description="Most requests of a team that wait to be read. Later ones are refused.",
    )
    active_runs: int = Field(default=10_000, ge=1, description="Most runs of a team that are not finished.")


class SchedulerSettings(Section):
    """The scheduler: global bounds and intervals."""

    max_concurrent: int | None = Field(
        default=None,
        ge=1,
        description="Most calls in flight over all lanes while a run is active that was admitted under it. "
        "Left out: max_in_flight alone.",
    )
    datasets: tuple[str, ...] = Field(
        default=(),
        description="Where datasets may lie that runs name and the scheduler reads: folders, or "
        "prefixes of URLs.",
    )
    max_in_flight: int = Field(default=1000, ge=1, description="Most calls in flight over all lanes.")
    leader_lease_seconds: float = Field(
        default=3.0, ge=0.5, description="A leader that is silent for this long is replaced."
    )
    lease_seconds: float = Field(
        default=15.0, ge=1.0, description="An attempt whose worker is silent for this long is put back."
    )
    worker_timeout_seconds: float = Field(
        default=5.0, ge=1.0, description="A worker that does not beat for this long is taken for dead."
    )
    finished_ttl_seconds: float = Field(
        default=7 * 86_400, ge=1, description="How long a finished run is kept."
    )
    limits: PayloadLimits = PayloadLimits()


class WorkerSettings(Section):
    """A worker process."""

    slots: int = Field(default=100, ge=1, le=2000, description="Calls it runs at once.")
    lanes: tuple[str, ...] = Field(default=(), description="Serve these lanes alone. Empty: all.")
    beat_seconds: float = Field(default=1.0, gt=0, le=30, description="Interval of its heartbeat.")
    shutdown_grace_seconds: float = Field(
        default=20.0, ge=0, description="On a warm stop, how long calls in flight may take to end."
    )
    modules: tuple[str, ...] = Field(
        default=(),
        description="Python modules whose functions runs may call here, with all that is below them. "
        "A worker without any takes no such calls.",
    )
    max_response_bytes: int = Field(default=16 * 1024 * 1024, ge=1024, description="Largest answer read.")


class LogSettings(Section):
    """Structured logs on standard error."""

    format: Literal["console", "json"] = Field(default="console", description="How a line looks.")
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level shown."
    )


class MetricsSettings(Section):
    """What schedulers and workers tell Prometheus and probes: /metrics, /healthz and /readyz."""

    enabled: bool = Field(default=True, description="Whether they are served.")
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on. Whoever reaches it sees the names of lanes and teams. "
        "0.0.0.0: all of this machine's.",
    )
    scheduler_port: int = Field(
        default=9460,
        ge=0,
        le=65_535,
        description="Port of a scheduler. Where it is taken, the next that is free of twenty is used; "
        "0: any free one. The log tells which.",
    )
    worker_port: int = Field(default=9480, ge=0, le=65_535, description="Port of a worker, in the same way.")
    lanes: int = Field(
        default=200, ge=1, le=2000, description='Lanes that are told by name. The others are "(other)".'
    )
    teams: int = Field(
        default=100, ge=1, le=2000, description='Teams that are told by name. The others are "(other)".'
    )


class TracingSettings(Section):
    """OpenTelemetry spans of calls, sent by workers as the variables OTEL_* say. Needs the extra `otel`."""

    enabled: bool = Field(
        default=False, description="Whether workers go on with the traces that runs were submitted in."
    )
    items_per_run: int = Field(
        default=1000, ge=1, description="Items of a run that are traced at most, evenly spread."
    )


class Settings(Section):
    """Everything that can be configured. See docs/configuration.md, which is made from this class."""

    redis: RedisSettings = RedisSettings()
    celery: CelerySettings = CelerySettings()
    connections: dict[ConnectionName, Connection] = Field(default_factory=dict)
    lanes: dict[str, LaneLimits] = Field(default_factory=dict)
    teams: dict[TeamName, TeamSettings] = Field(default_factory=dict)
    prices: dict[str, Price] = Field(default_factory=dict)
    archive: ArchiveSettings = ArchiveSettings()
    audit: AuditSettings = AuditSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    worker: WorkerSettings = WorkerSettings()
    metrics: MetricsSettings = MetricsSettings()
    tracing: TracingSettings = TracingSettings()
    log: LogSettings = LogSettings()
    team: TeamName = Field(default="default", description="The team a client submits for.")
    config_file: str | None = Field(default=None, description="Where these settings came from.")

    @property
    def broker_url(self) -> str:
        """Celery's broker. A Unix socket is spelled the way kombu spells it.

        Raises `ConfigurationError` where none is named and the state is on a cluster.
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
        """What is known of a lane before it is used: the operator's word, the rest as its provider has it.

        ``None`` where nothing is known. Fields that neither tells are not set.
        """
        stated = self.lanes.get(lane)
        name, _, model = lane.partition(":")
        connection = self.connections.get(name) or self._connection_at(lane)
        known = connection.lane_defaults(model) if connection else {}
        if not known:
            return stated
        return LaneLimits.model_validate(known | (stated.model_dump(exclude_unset=True) if stated else {}))

    def _connection_at(self, endpoint: str) -> Connection | None:
        """One whose lane is that of its server."""
        known = (each for each in self.connections.values() if each.scope == "endpoint")
        return next((each for each in known if endpoint_id(each.base_url) == endpoint), None)

    def lane_of(self, model: str) -> str:
        """``"<connection>:<model>"`` → lane key, as ``lanes`` has it. Raises ``KeyError`` for an unknown one.

        Calls go on another connection's lane where that shares its limit: `LaneDirectory`.
        """
        connection, name = split_model(model)
        known = self.connections[connection]
        return lane_key(connection, name, known.scope, known.base_url)


class WorkerSecrets(Section):
    """Credentials by connection; exists in worker processes alone and never prints itself.

    ``missing`` maps each connection whose key is not there to the environment variable that should hold it.
    ``proxies`` are ``user:password`` for the proxies of connections.
    """

    keys: dict[str, SecretStr] = Field(default_factory=dict)
    proxies: dict[str, SecretStr] = Field(default_factory=dict)
    missing: dict[str, str] = Field(default_factory=dict)
