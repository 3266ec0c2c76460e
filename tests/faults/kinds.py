"""Every kind of fault: what it may hit, how long it lasts, and what it is allowed to cost."""

from __future__ import annotations

from dataclasses import dataclass

WORKERS = ("worker-1", "worker-2", "worker-3")
SCHEDULERS = ("scheduler-1", "scheduler-2")
LEADER, ANY, MACHINE, SUBMIT = "leader", "any", "machine", "submit"

ONE_SERVER, BROKER, SENTINELS, TIME = "one server", "broker", "sentinels", "time"
"""What a schedule may have: one Redis behind proxies, RabbitMQ, servers that Sentinels watch, or minutes."""

BEAT_S, WORKER_TIMEOUT_S, LEASE_S, LEADER_LEASE_S = 0.3, 3.0, 4.0, 1.5
"""The deployment's intervals, shorter than in production so that a schedule stays short."""

NOTICED_S = WORKER_TIMEOUT_S - 2 * BEAT_S
"""A worker that is silent for less keeps its leases, so its calls may not be made again."""

ALWAYS, NEVER = 0.0, float("inf")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault.

    ``seconds``: the least and the greatest duration. ``uses``: what it occupies, so that two faults of one
    schedule never act on the same thing at the same time; empty: its target. ``cuts_after``: from this
    duration on, calls of the target may be made again although they were paid. ``silences``: workers of the
    target send no heartbeat and no report. ``forgets``: Redis loses writes that it has confirmed. ``costs``:
    calls that meet it may use attempts of their jobs. ``needs``: what a deployment must have.
    """

    name: str
    targets: tuple[str, ...]
    seconds: tuple[float, float]
    uses: str = ""
    cuts_after: float = NEVER
    silences: bool = False
    forgets: bool = False
    costs: bool = False
    needs: str = ""


def _loses_writes(name: str, seconds: tuple[float, float]) -> Kind:
    """A fault of the one Redis after which writes that it confirmed are gone."""
    return Kind(
        name,
        (ANY,),
        seconds,
        uses="redis",
        cuts_after=ALWAYS,
        forgets=True,
        silences=True,
        needs=ONE_SERVER,
    )


def _kinds(*kinds: Kind) -> dict[str, Kind]:
    return {kind.name: kind for kind in kinds}


KINDS = _kinds(
    # Processes
    Kind("worker_kill", WORKERS, (0.2, 2.0), cuts_after=ALWAYS, silences=True),
    Kind("workers_kill", (ANY,), (0.2, 2.0), uses="workers", cuts_after=ALWAYS, silences=True),
    Kind("worker_stop", WORKERS, (4.5, 5.5), cuts_after=NOTICED_S, silences=True),
    Kind("workers_stop", (ANY,), (1.0, 5.0), uses="workers", cuts_after=NOTICED_S, silences=True),
    Kind("worker_nap", WORKERS, (0.3, 1.5), cuts_after=NOTICED_S, silences=True),
    Kind("worker_term", WORKERS, (0.2, 1.0)),
    Kind("leader_kill", (LEADER,), (0.2, 2.0), uses="schedulers"),
    Kind("leader_stop", (LEADER,), (2.0, 4.5), uses="schedulers"),
    Kind("leader_term", (LEADER,), (0.2, 1.0), uses="schedulers"),
    Kind("schedulers_kill", (ANY,), (0.5, 2.0), uses="schedulers"),
    Kind("clock", (*WORKERS, *SCHEDULERS), (4.0, 6.0)),
    Kind("upgrade", (*WORKERS, *SCHEDULERS), (4.0, 6.0)),
    Kind(
        "machine_pause",
        (ANY,),
        (1.0, 5.0),
        uses=MACHINE,
        cuts_after=NOTICED_S,
        silences=True,
        needs=ONE_SERVER,
    ),
    # The network between one process and Redis
    Kind("partition", (*WORKERS, LEADER), (1.0, 5.0), cuts_after=NOTICED_S, silences=True, needs=ONE_SERVER),
    Kind(
        "workers_partition",
        (ANY,),
        (1.0, 5.0),
        uses="workers",
        cuts_after=NOTICED_S,
        silences=True,
        needs=ONE_SERVER,
    ),
    Kind(
        "partition_reset",
        (*WORKERS, LEADER),
        (1.0, 5.0),
        cuts_after=NOTICED_S,
        silences=True,
        needs=ONE_SERVER,
    ),
    Kind(
        "replies_lost", (*WORKERS, LEADER), (0.5, 5.0), cuts_after=NOTICED_S, silences=True, needs=ONE_SERVER
    ),
    Kind(
        "requests_lost", (*WORKERS, LEADER), (0.5, 5.0), cuts_after=NOTICED_S, silences=True, needs=ONE_SERVER
    ),
    Kind("delay", (*WORKERS, LEADER, ANY), (2.0, 5.0), needs=ONE_SERVER),
    Kind("reset", (*WORKERS, LEADER, ANY), (0.1, 2.0), silences=True, needs=ONE_SERVER),
    # Redis
    Kind("redis_kill", (ANY,), (0.2, 2.0), uses="redis", silences=True, needs=ONE_SERVER),
    Kind("redis_term", (ANY,), (0.2, 1.0), uses="redis", silences=True, needs=ONE_SERVER),
    Kind("redis_stop", (ANY,), (1.0, 5.0), uses="redis", silences=True, needs=ONE_SERVER),
    _loses_writes("redis_power", (0.2, 1.0)),
    _loses_writes("submit_lost", (0.2, 1.0)),
    Kind("redis_full", (ANY,), (0.5, 6.0), uses="redis", silences=True, needs=ONE_SERVER),
    Kind("redis_disk_full", (ANY,), (0.5, 5.0), uses="redis", silences=True, needs=ONE_SERVER),
    Kind("redis_rewrite", (ANY,), (1.0, 4.0), uses="redis", needs=ONE_SERVER),
    Kind("redis_slow", (ANY,), (2.0, 4.0), uses="redis", needs=ONE_SERVER),
    _loses_writes("redis_failover", (0.5, 1.0)),
    _loses_writes("redis_lag", (0.5, 2.5)),
    _loses_writes("redis_failover_bare", (0.5, 1.0)),
    Kind("redis_start_bare", (ANY,), (0.2, 2.0), uses="redis", silences=True, needs=ONE_SERVER),
    Kind("redis_busy", (ANY,), (0.5, 5.0), uses="redis", silences=True, needs=ONE_SERVER),
    Kind("functions_lost", (ANY,), (0.5, 4.0), uses="redis"),
    # Messages
    Kind("queues_deleted", (ANY,), (0.2, 1.5), uses="workers", needs=ONE_SERVER),
    Kind("bindings_deleted", (ANY,), (0.1, 1.0), uses="queues", needs=ONE_SERVER),
    Kind("messages_doubled", (ANY,), (1.0, 3.0), uses="queues"),
    Kind("messages_replayed", (ANY,), (0.1, 1.0), uses="queues"),
    # The provider
    Kind("provider_down", (ANY,), (1.0, 4.0), uses="provider", costs=True, cuts_after=ALWAYS),
    Kind("provider_hangs", (ANY,), (1.0, 3.0), uses="provider", costs=True),
    Kind("provider_500", (ANY,), (1.0, 4.0), uses="provider", costs=True),
    Kind("provider_529", (ANY,), (1.0, 4.0), uses="provider"),
    Kind("provider_resets", (ANY,), (1.0, 4.0), uses="provider", costs=True),
    Kind("provider_resets_after", (ANY,), (1.0, 3.0), uses="provider", costs=True),
    Kind("provider_malformed", (ANY,), (1.0, 3.0), uses="provider", costs=True),
    Kind("provider_cuts", (ANY,), (1.0, 3.0), uses="provider", costs=True),
    # Clients and operators
    Kind("client_killed", (ANY,), (2.5, 5.0), uses="client"),
    Kind("cancel", (ANY,), (0.5, 3.0), uses=SUBMIT),
    Kind("pause", (ANY,), (1.0, 4.0), uses="pause"),
    Kind("limit", (ANY,), (1.0, 4.0), uses="limit"),
    Kind("drain", ("worker-1", "worker-2"), (1.0, 4.0)),
    # A broker that is not Redis
    Kind("broker_kill", (ANY,), (0.2, 2.0), uses=BROKER, needs=BROKER),
    Kind("broker_stop", (ANY,), (1.0, 5.0), uses=BROKER, needs=BROKER),
    Kind("broker_partition", (*WORKERS, LEADER, ANY), (1.0, 5.0), uses=BROKER, needs=BROKER),
    # Redis servers that Sentinels watch
    Kind(
        "sentinel_failover",
        (ANY,),
        (0.5, 1.0),
        uses="redis",
        cuts_after=ALWAYS,
        forgets=True,
        silences=True,
        needs=SENTINELS,
    ),
    Kind(
        "sentinel_lag",
        (ANY,),
        (0.5, 2.5),
        uses="redis",
        cuts_after=ALWAYS,
        forgets=True,
        silences=True,
        needs=SENTINELS,
    ),
    Kind(
        "sentinel_stop",
        (ANY,),
        (0.5, 3.0),
        uses="redis",
        cuts_after=ALWAYS,
        forgets=True,
        silences=True,
        needs=SENTINELS,
    ),
    # Runs that end by themselves, or belong to others
    Kind("sessions", (ANY,), (0.5, 3.0), uses=SUBMIT),
    Kind("budget", (ANY,), (0.5, 3.0), uses=SUBMIT),
    Kind("duration", (ANY,), (0.5, 3.0), uses=SUBMIT),
    Kind("continued", (ANY,), (1.0, 3.0), uses=SUBMIT),
    Kind("many_rows", (ANY,), (1.0, 1.0), uses=SUBMIT, needs=TIME),
)


def playable(*has: str) -> tuple[str, ...]:
    """The faults that a deployment with these can meet."""
    return tuple(name for name, kind in KINDS.items() if not kind.needs or kind.needs in has)


HANGS = (
    "machine_pause",
    "redis_stop",
    "redis_slow",
    "workers_stop",
    "worker_stop",
    "workers_partition",
    "leader_stop",
    "provider_hangs",
)
"""Faults in which something stands still, and goes on."""

USUAL = playable(ONE_SERVER)
"""The faults of a deployment whose state and messages are in one Redis."""
