"""The sections of the settings. Each part of Fairlane takes its own section, not all settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from fairlane.config.server_url import checked_broker, checked_redis
from fairlane.core.paths import at_home
from fairlane.core.section import MOST_COUNT, MOST_KEPT_S, MOST_LEASE_S, Section
from fairlane.model.lane import ENDPOINT_CONCURRENCY

_NAME = r"^[A-Za-z0-9_-]{1,64}$"
CONNECTION_NAME = r"[A-Za-z0-9_.-]{1,64}"

ConnectionName = Annotated[str, Field(pattern=f"^{CONNECTION_NAME}$")]
TeamName = Annotated[str, Field(pattern=_NAME)]
RedisUrl = Annotated[
    str, Field(pattern=r"^((redis|rediss)(\+sentinel|\+cluster)?|unix)://"), AfterValidator(checked_redis)
]


class RedisSettings(Section):
    """The Redis with the live state."""

    url: RedisUrl = "redis://127.0.0.1:6379/0"
    """Redis or Valkey, 6.2 or later: redis://, rediss:// or unix://; redis+sentinel://HOST,HOST/SERVICE,
    redis+cluster://HOST,HOST."""

    deployment: str = Field(default="main", pattern=_NAME)
    """Prefix of this deployment's keys, so that several deployments can share one Redis."""


class CelerySettings(Section):
    """The broker that carries attempts to the workers."""

    broker_url: Annotated[str, AfterValidator(checked_broker)] | None = None
    """Celery's broker: Redis as above, except a cluster, or RabbitMQ (amqp:// or amqps://). Default: the
    Redis with the live state."""


class Budget(Section):
    """The most that a team may use in a day or a month, on one lane or on all."""

    lane: str = Field(default="*", min_length=1)
    """A lane as `fairlane lanes` names it; "*": all."""

    per: Literal["day", "month"]
    """"day" or "month", each in UTC."""

    requests: int | None = Field(default=None, gt=0, le=10**12)
    """Calls."""

    tokens: int | None = Field(default=None, gt=0, le=10**12)
    """Input and output together."""

    usd: float | None = Field(default=None, gt=0, le=10**6)
    """Dollars, by `prices`; a model without one costs nothing."""

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set, by unit."""
        limits = {"requests": self.requests, "tokens": self.tokens, "usd": self.usd}
        return {unit: most for unit, most in limits.items() if most is not None}

    @model_validator(mode="after")
    def _limits_something(self) -> Budget:
        if not self.limits:
            raise ValueError("a budget needs requests, tokens or usd")
        return self


class TeamSettings(Section):
    """A team's share of the lanes that it uses with other teams, and its budgets."""

    weight: float = Field(default=1.0, gt=0, le=1000)
    """Its share, relative to the other teams'."""

    lendable_percent: float = Field(default=100.0, ge=0, le=100)
    """Percent of its share that other teams may use while it does not. The rest is reserved."""

    borrowing_limit_percent: float | None = Field(default=None, ge=0, le=MOST_COUNT)
    """Percent of its share that it may take on top of it, while other teams do not use theirs. Default: no
    limit."""

    max_percent: float | None = Field(default=None, gt=0, le=100)
    """Most percent of a lane that it may take. Default: all of it."""

    budgets: tuple[Budget, ...] = ()
    """The most it may use: `lane` ("*": all), `per` ("day" or "month", UTC), and `requests`, `tokens` or
    `usd`. Jobs beyond it wait for the next period."""

    @property
    def restricted(self) -> bool:
        """Whether the team has a reserved share, or a limit below the whole lane."""
        return self.lendable_percent < 100 or (self.borrowing_limit_percent, self.max_percent) != (None, None)


class ArchiveSettings(Section):
    """The database that keeps finished runs."""

    url: SecretStr | None = None
    """SQLAlchemy URL of a database: sqlite:///runs.db, postgresql+psycopg://… The scheduler moves finished
    runs there. Default: none; they stay in Redis until they expire."""

    after_seconds: float = Field(default=86_400.0, ge=0, le=MOST_KEPT_S)
    """Seconds that a finished run stays in Redis before it moves. A new run can continue it there."""

    hold_seconds: float = Field(default=30 * 86_400.0, ge=0, le=MOST_KEPT_S)
    """Least seconds after its end that a run stays in Redis if it could not be moved. It does not expire
    meanwhile, unless Redis is nearly full."""


class AuditSettings(Section):
    """The log of who changed what."""

    keep: int = Field(default=100_000, ge=1, le=MOST_COUNT)
    """Number of entries to keep, approximately."""


class PayloadLimits(Section):
    """Limits of what a team may submit; the scheduler rejects more, with a message."""

    row_bytes: int = Field(default=1024 * 1024, ge=1, le=MOST_COUNT)
    """Largest row as JSON, in bytes. The items of a larger row fail. A rendered prompt has at most twice as
    many characters, or 1,048,576 if that is more."""

    run_bytes: int = Field(default=1024**3, ge=1, le=MOST_COUNT)
    """Most bytes of a run's rows in Redis, compressed."""

    spec_bytes: int = Field(default=4 * 1024 * 1024, ge=1, le=MOST_COUNT)
    """Largest submission without its rows, in bytes: prompts, parameters, evaluators."""

    waiting_requests: int = Field(default=10_000, ge=1, le=MOST_COUNT)
    """Most unread requests of a team: with more, its clients submit nothing and raise `InboxFull`. Clients
    use their own value."""

    active_runs: int = Field(default=10_000, ge=1, le=MOST_COUNT)
    """Most unfinished runs of a team."""

    lanes: int = Field(default=200, ge=1, le=1000)
    """Most lanes that a team opens by using models that `[lanes]` does not describe. Items for further models
    fail. A lane that is not used for a week is forgotten; where there are many, after an hour."""


def _folder_at_home(place: str) -> str:
    return str(at_home(Path(place))) if place.startswith("~") else place


class SchedulerSettings(Section):
    """The scheduler: global bounds and intervals."""

    max_concurrent: int | None = Field(default=None, ge=1, le=MOST_COUNT)
    """Most calls in flight over all lanes while a run is active that was admitted under this limit. Default:
    only max_in_flight limits them."""

    datasets: tuple[Annotated[str, AfterValidator(_folder_at_home)], ...] = ()
    """Places of datasets that runs may name and the scheduler reads: folders, or prefixes of URLs."""

    max_in_flight: int = Field(default=1000, ge=1, le=MOST_COUNT)
    """Most calls in flight over all lanes."""

    first_calls: int = Field(default=5, ge=0, le=MOST_COUNT)
    """Calls of a run to one model that start in its first 250 ms, unless one is answered. So a wrong request
    costs few calls. Later more start, answered or not. 0: any number."""

    reserved_slots_percent: int = Field(default=5, ge=0, le=50)
    """Percentage of the workers' slots, and of max_in_flight, reserved for teams that hold fewer than these.
    So hanging calls of one team cannot stop the others. 0: none."""

    leader_lease_seconds: float = Field(default=3.0, ge=0.5, le=MOST_LEASE_S)
    """Seconds of silence after which another scheduler replaces the leader."""

    lease_seconds: float = Field(default=15.0, ge=1.0, le=MOST_LEASE_S)
    """Seconds without a heartbeat after which an attempt is requeued."""

    worker_timeout_seconds: float = Field(default=5.0, ge=1.0, le=MOST_LEASE_S)
    """Seconds without a heartbeat after which a worker counts as dead."""

    finished_ttl_seconds: float = Field(default=7 * 86_400, ge=1, le=MOST_KEPT_S)
    """Seconds that a finished run stays in Redis."""

    limits: PayloadLimits = PayloadLimits()

    @property
    def leader_answer_s(self) -> float:
        """How long a scheduler waits for an answer of Redis, in seconds: after that another one may lead."""
        return max(LEAST_ANSWER_S, self.leader_lease_seconds)

    @property
    def worker_answer_s(self) -> float:
        """The same for a worker: a heartbeat that is lost is sent again before the worker counts as dead."""
        return max(LEAST_ANSWER_S, self.worker_timeout_seconds / 2)


LEAST_ANSWER_S = 2.0
"""Least seconds to wait for Redis: after a shorter wait a busy machine would count as gone."""

MOST_SLOTS = 5000
"""Most concurrent calls that a worker may be allowed."""


class WorkerSettings(Section):
    """A worker process."""

    slots: int = Field(default=1000, ge=1, le=MOST_SLOTS)
    """Most concurrent calls of one worker. It begins with 100, and takes more while they are used and its
    event loop keeps up. With modules it stays at 100."""

    lanes: tuple[str, ...] = ()
    """Serve only these lanes: names, or patterns such as `openai:*`. Empty: all."""

    beat_seconds: float = Field(default=1.0, gt=0, le=30)
    """Seconds between two heartbeats."""

    shutdown_grace_seconds: float = Field(default=20.0, ge=0, le=7 * MOST_LEASE_S)
    """Seconds that calls in flight have to end on a warm stop."""

    modules: tuple[str, ...] = ()
    """Python modules whose functions runs may call here, submodules included. A worker without any takes no
    calls of functions."""

    max_response_bytes: int = Field(default=16 * 1024 * 1024, ge=1024, le=MOST_COUNT)
    """Largest response that is read, in bytes. A rendered template of a judge or an agent may have as many
    characters more than a prompt."""


class SandboxSettings(Section):
    """Child processes that decode rows for schedulers, and render, score and decode for workers."""

    processes: int = Field(default=2, ge=1, le=64)
    """Most child processes of a scheduler, and of a worker. They start with the first work for them. A team
    uses at most half of them at a time."""

    cpu_seconds: float = Field(default=2.0, gt=0, le=60)
    """CPU seconds that one rendering, score or page of rows may take."""

    wall_seconds: float = Field(default=20.0, gt=0, le=600)
    """Seconds that it may take in all, on a machine that is busy."""

    memory_mb: int = Field(default=512, ge=64, le=65_536)
    """MiB of memory that it may take beyond those of an idle child."""

    hold_after: int = Field(default=3, ge=1, le=MOST_COUNT)
    """Pause a run once a process has ended so many pieces of its work for exceeding these limits."""


class LogSettings(Section):
    """Structured logs on standard error."""

    format: Literal["console", "json"] = "console"
    """Form of a log line."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is written."""

    calls: Literal["all", "ends", "none"] = "ends"
    """Lines about each call at level "info". "all": queueing, acquired and released, which show what was in
    flight at any time. "ends": released alone. Each line costs CPU time."""


class DefaultsSettings(Section):
    """Defaults for lanes and runs that configure nothing else. A profile has those of another tool."""

    profile: Literal["promptfoo", "evaluation"] | None = None
    """"promptfoo": four calls at once on lanes without a table in `[lanes]`. "evaluation":
    MAX_CONCURRENT_LLM_CALLS is 1 to 50, by default 5. Default: neither."""

    max_concurrency: int | None = Field(default=None, ge=1, le=MOST_COUNT)
    """Calls at once on a lane without a table in `[lanes]`, where its provider's preset names no number.
    Default: that of the profile, else none: the lane detects its limit."""

    @property
    def calls_at_once(self) -> int | None:
        """Calls at once on a lane without a table in ``lanes``; ``None``: as many as it allows."""
        if self.max_concurrency is None and self.profile == "promptfoo":
            return ENDPOINT_CONCURRENCY
        return self.max_concurrency


class MetricsSettings(Section):
    """The HTTP server of schedulers and workers for Prometheus and probes: /metrics, /healthz, /readyz."""

    enabled: bool = True
    """Start this server."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on. The metrics show the names of lanes and teams. 0.0.0.0: all addresses of this
    machine; :: also those of IPv6."""

    scheduler_port: int = Field(default=9460, ge=0, le=65_535)
    """Port of a scheduler. If it is taken, the next free one of twenty; 0: any free port. The log shows
    which."""

    worker_port: int = Field(default=9480, ge=0, le=65_535)
    """Port of a worker, chosen in the same way."""

    lanes: int = Field(default=200, ge=1, le=2000)
    """Most lanes with a label of their own. The others share "(other)"."""

    teams: int = Field(default=100, ge=1, le=2000)
    """Most teams with a label of their own. The others share "(other)"."""

    @field_validator("host")
    @classmethod
    def _has_no_brackets(cls, host: str) -> str:
        if host.startswith("[") or host.endswith("]"):
            raise ValueError(f"an address is written without brackets, as {host.strip('[]')!r}")
        return host


class TracingSettings(Section):
    """OpenTelemetry spans of calls. Workers send them as the variables OTEL_* say. Needs the extra `otel`."""

    enabled: bool = False
    """Workers add spans to the trace in which a run was submitted."""

    items_per_run: int = Field(default=1000, ge=1, le=MOST_COUNT)
    """Most traced items of a run, evenly spread."""
