"""What `fairlane doctor` holds against a deployment: pure questions to what was seen of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fairlane.cli.lanes.lane_views import LaneReport
from fairlane.cli.lanes.workers import worker_state
from fairlane.cli.operate.connection_views import lacks_besides_key
from fairlane.config.settings import Settings, WorkerSecrets
from fairlane.core.clock import span
from fairlane.store.connection.server_states import FULL, Refusal
from fairlane.store.read.overview import LeaderView, ServerView
from fairlane.store.write.workers import Beat

OLDEST_SERVER = (6, 2)
CLOCKS_APART_MS = 1000
MEMORY_NEARLY_FULL = 0.8


class Grade(StrEnum):
    """How a check came out. Only ``fail`` keeps jobs from being done, or puts them at risk."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; ``remedy`` says what to do unless the grade is ok."""

    check: str
    grade: Grade
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Clocks:
    """This machine's clock and the server's, read within ``round_trip_ms`` of each other."""

    here_ms: int
    server_ms: int
    round_trip_ms: int

    @property
    def apart_ms(self) -> int:
        """How far this machine is ahead of the server, less what the reading itself may have taken."""
        apart = self.here_ms - self.server_ms
        doubt = min(abs(apart), self.round_trip_ms)
        return apart - doubt if apart > 0 else apart + doubt


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A broker that is not the state's Redis: ``problem`` and what to do about it, else what it is."""

    summary: str = "it answers"
    problem: str | None = None
    remedy: str = "Start it, or correct celery.broker_url."


@dataclass(frozen=True, slots=True)
class Seen:
    """A deployment as the doctor finds it; ``catalog`` holds the connections that its scheduler knows.

    ``carriers`` are the lanes that calls of configured lanes go on, where those are others.
    """

    settings: Settings
    secrets: WorkerSecrets
    version: str
    server: ServerView | None
    clocks: Clocks
    leader: LeaderView | None
    beats: Sequence[Beat]
    catalog: frozenset[str] | None
    lanes: Sequence[LaneReport]
    broker: BrokerView | None = None
    carriers: Mapping[str, str] = field(default_factory=dict)


def examine(seen: Seen) -> list[Finding]:
    """Every check, in the order in which failures are best corrected."""
    found = [
        *check_server(seen.server),
        *check_broker(seen),
        check_clocks(seen.clocks),
        check_leader(seen.leader, seen.clocks.server_ms),
        *check_workers(seen),
        *check_connections(seen),
        *check_keys(seen.settings, seen.secrets),
        *check_needs(seen.settings, seen.secrets),
        *check_credentials(seen),
        *check_tables(seen),
        *check_lanes(seen.lanes),
    ]
    refusing = seen.server.refusing if seen.server is not None else None
    return found if refusing is None else [_explained(finding, refusing) for finding in found]


def _explained(finding: Finding, refusing: Refusal) -> Finding:
    """Roles that cannot write their signs of life seem dead: the remedy is Redis, not to start another."""
    if finding.grade is Grade.OK or finding.check not in ("scheduler", "workers"):
        return finding
    return replace(finding, remedy=f"{refusing.problem}, so nobody can report. Mend that first, see above.")


def check_server(server: ServerView | None) -> Iterator[Finding]:
    """Is Redis recent enough, does it keep its data, and does it take writes?"""
    if server is None:
        remedy = "An imitation (fakeredis) is for trying out only; a real server must let this user run INFO."
        yield Finding("redis version", Grade.WARN, "the server does not tell its version", remedy)
        return
    shown = f"{server.program} {server.version}"
    if server.program == "Redis" and _numbers(server.version) < OLDEST_SERVER:
        yield Finding("redis version", Grade.FAIL, shown, "Use Redis 6.2 or later, or Valkey.")
    else:
        yield Finding("redis version", Grade.OK, shown)
    if server.replica:
        remedy = "Name the primary in redis.url."
        yield Finding("redis role", Grade.FAIL, "this server is a replica and takes no writes", remedy)
    elif server.refused is not None:
        yield Finding("redis writes", Grade.FAIL, server.refused.problem, f"{server.refused.remedy}.")
    yield _check_persistence(server)
    yield _check_memory(server)


def check_broker(seen: Seen) -> Iterator[Finding]:
    """Does the broker answer, and take our queues, where it is not the state's Redis?"""
    broker = seen.broker
    if broker is None:
        return
    if broker.problem is None:
        yield Finding("broker", Grade.OK, broker.summary)
    else:
        yield Finding("broker", Grade.FAIL, broker.problem, broker.remedy)


def check_clocks(clocks: Clocks) -> Finding:
    """Decisions use the server's clock; a difference only misleads who reads times."""
    apart = clocks.apart_ms
    if abs(apart) < CLOCKS_APART_MS:
        return Finding(
            "clock", Grade.OK, f"this machine and Redis agree within {clocks.round_trip_ms + 1} ms"
        )
    side = "ahead of" if apart > 0 else "behind"
    remedy = "Nothing is decided by it, but logs mislead: let both keep time by NTP."
    return Finding("clock", Grade.WARN, f"this machine is {span(abs(apart))} {side} Redis", remedy)


def check_leader(leader: LeaderView | None, now_ms: int) -> Finding:
    """Does a scheduler lead?"""
    if leader is not None and leader.until_ms > now_ms:
        return Finding("scheduler", Grade.OK, f"{leader.identity} leads, epoch {leader.epoch}")
    remedy = "Nothing starts without one: `fairlane scheduler`, or `fairlane up` for everything."
    if leader is None:
        return Finding("scheduler", Grade.FAIL, "none has ever led here", remedy)
    since = f" for {span(now_ms - leader.until_ms)}" if leader.until_ms else ""
    return Finding("scheduler", Grade.FAIL, f"none has led{since}; the last was {leader.identity}", remedy)


def check_workers(seen: Seen) -> Iterator[Finding]:
    """Are there workers, have they free slots, do they serve every lane, and are they of one version?"""
    now_ms, silent_ms = seen.clocks.server_ms, seen.settings.scheduler.worker_timeout_seconds * 1000
    by_state: dict[str, list[Beat]] = {}
    for beat in seen.beats:
        by_state.setdefault(worker_state(beat, now_ms, silent_ms), []).append(beat)
    alive = by_state.get("alive", [])
    asked = len(by_state.get("draining", []) + by_state.get("drained", []))
    if not alive and asked:
        remedy = "`fairlane drain --all --undo` has them take work again."
        yield Finding("workers", Grade.FAIL, f"none takes work: {asked} drained or draining", remedy)
    elif not alive:
        remedy = "Start one on any machine that reaches Redis: `fairlane worker`."
        yield Finding("workers", Grade.FAIL, "none is alive", remedy)
    else:
        yield _check_slots(alive)
    for beat in by_state.get("silent", []):
        detail = f"{beat.info.name} on {beat.info.host} has been silent for {span(now_ms - beat.beat_ms)}"
        yield Finding(
            "workers", Grade.WARN, detail, "Its jobs are put back; start it again if it is meant to run."
        )
    if alive:
        yield from _check_service(alive, seen.lanes)
    others = sorted({beat.info.version for beat in alive} - {seen.version})
    if others:
        detail = f"some run {', '.join(others)}, this is {seen.version}"
        yield Finding(
            "versions", Grade.WARN, detail, "Finish the upgrade: neighbouring versions only are tried."
        )


def check_connections(seen: Seen) -> Iterator[Finding]:
    """Are there connections, and does the scheduler know the same ones?"""
    here, there = frozenset(seen.settings.connections), seen.catalog
    if not here and not there:
        remedy = "Add [connections.NAME] to fairlane.toml and start the scheduler and the workers with it."
        yield Finding("connections", Grade.FAIL, "none is configured", remedy)
        return
    unknown = sorted(here - there) if there is not None else []
    if unknown:
        remedy = "Start the scheduler and the workers anew with these settings."
        yield Finding("connections", Grade.WARN, f"the scheduler does not know {', '.join(unknown)}", remedy)
    else:
        yield Finding("connections", Grade.OK, ", ".join(sorted(there or here)))


def check_keys(settings: Settings, secrets: WorkerSecrets) -> Iterator[Finding]:
    """Are the variables set that hold keys? Only workers need them, and none may run here."""
    for name, connection in sorted(settings.connections.items()):
        variable = connection.api_key_env
        if variable is None:
            continue
        if name in secrets.missing:
            remedy = "Only workers need it: set it where they run."
            yield Finding("keys", Grade.WARN, f"{name}: {variable} is not set here", remedy)
        else:
            yield Finding("keys", Grade.OK, f"{name}: {variable} is set here")


def check_needs(settings: Settings, secrets: WorkerSecrets) -> Iterator[Finding]:
    """Is there what connections need besides their keys: files, extras, what a proxy wants to see?"""
    for name, connection in sorted(settings.connections.items()):
        for what in lacks_besides_key(name, connection, secrets):
            remedy = f"Only workers need it; `fairlane connections test {name}` tries it where they run."
            yield Finding("connections", Grade.WARN, f"{name}: {what} is not here", remedy)


def check_credentials(seen: Seen) -> Iterator[Finding]:
    """Do all workers hold the same keys? While they do not, lanes use the key reported last."""
    now_ms, silent_ms = seen.clocks.server_ms, seen.settings.scheduler.worker_timeout_seconds * 1000
    alive = [beat.info for beat in seen.beats if worker_state(beat, now_ms, silent_ms) == "alive"]
    remedy = "Start the others anew with the key that is to stay."
    for connection in sorted({name for info in alive for name in info.credentials}):
        held: dict[str, list[str]] = {}
        for info in alive:
            held.setdefault(info.credentials.get(connection, "none"), []).append(info.name)
        if len(held) > 1:
            listed = "; ".join(f"{key} ({', '.join(sorted(names))})" for key, names in sorted(held.items()))
            detail = f"workers disagree on the key of {connection}, by fingerprint: {listed}"
            yield Finding("keys", Grade.WARN, detail, remedy)


def check_tables(seen: Seen) -> Iterator[Finding]:
    """Whose limits count where connections share a lane?"""
    order = list(seen.settings.connections)
    for table, lane in sorted(seen.carriers.items()):
        tables = [name for name in seen.settings.lanes if seen.carriers.get(name, name) == lane]
        counts = lane if lane in tables else min(tables, key=lambda name: order.index(name.partition(":")[0]))
        if counts == table:
            yield Finding("limits", Grade.OK, f"[lanes.{table!r}] counts for {lane}, which carries its calls")
        else:
            detail = f"calls of {table} go on {lane}, where [lanes.{counts!r}] counts"
            yield Finding("limits", Grade.WARN, detail, f"Take [lanes.{table!r}] out of the settings.")


def check_lanes(reports: Sequence[LaneReport]) -> Iterator[Finding]:
    """Is a lane shut that only a person can open, or that a provider keeps shut?"""
    shut = list(_shut(reports))
    yield from shut
    if not shut and reports:
        yield Finding("lanes", Grade.OK, f"{len(reports)}, none of them shut")


def _shut(reports: Sequence[LaneReport]) -> Iterator[Finding]:
    for report in reports:
        lane, hold = report.view.lane, report.hold
        match hold.reason if hold else None:
            case "parked":
                remedy = f"Give workers a new key, or mend the quota and `fairlane lanes resume {lane}`."
                yield Finding("lanes", Grade.FAIL, f"{lane} is {report.hold_in_words}", remedy)
            case "paused":
                remedy = f"`fairlane lanes resume {lane}` opens it."
                yield Finding("lanes", Grade.WARN, f"{lane} is paused", remedy)
            case "circuit" | "probing":
                remedy = "Its provider could not be reached; a single call tries again by itself."
                yield Finding("lanes", Grade.WARN, f"{lane}: {report.hold_in_words}", remedy)
            case _:
                pass


def _check_persistence(server: ServerView) -> Finding:
    if server.append_failed:
        remedy = "See the server's log: the disk is full, perhaps."
        return Finding(
            "redis persistence", Grade.FAIL, "the last write to the append-only file failed", remedy
        )
    if server.append_only:
        return Finding("redis persistence", Grade.OK, "append-only file")
    remedy = "Set `appendonly yes`: without it a restart of Redis forgets runs."
    return Finding("redis persistence", Grade.WARN, "the append-only file is off", remedy)


def _check_memory(server: ServerView) -> Finding:
    used, limit = server.memory_used, server.memory_limit
    if server.eviction not in (None, "noeviction"):
        remedy = "Set `maxmemory-policy noeviction`: what is evicted are runs."
        grade = Grade.FAIL if limit else Grade.WARN
        return Finding("redis memory", grade, f"maxmemory-policy is {server.eviction}", remedy)
    if server.refusing is FULL:
        return Finding("redis memory", Grade.FAIL, FULL.problem, f"{FULL.remedy}.")
    if limit and used > limit * MEMORY_NEARLY_FULL:
        remedy = "Raise maxmemory, or keep finished runs for less long (scheduler.finished_ttl_seconds)."
        return Finding("redis memory", Grade.WARN, f"{used / limit:.0%} of maxmemory are in use", remedy)
    return Finding("redis memory", Grade.OK, f"nothing is evicted; {used / 2**20:,.0f} MiB in use")


def _check_slots(alive: Sequence[Beat]) -> Finding:
    slots, busy = sum(beat.info.slots for beat in alive), sum(beat.info.busy for beat in alive)
    detail = f"{len(alive)} alive, {max(0, slots - busy):,} of {slots:,} slots free"
    if busy >= slots:
        return Finding("workers", Grade.WARN, detail, "Jobs wait for slots: add workers, or --slots to them.")
    return Finding("workers", Grade.OK, detail)


def _check_service(alive: Sequence[Beat], reports: Sequence[LaneReport]) -> Iterator[Finding]:
    served = {lane for beat in alive for lane in beat.info.lanes}
    for report in reports:
        if report.view.lane not in served:
            grade = Grade.FAIL if report.queued else Grade.WARN
            detail = f"none serves {report.view.lane}, where {report.queued:,} jobs wait"
            remedy = "Start a worker that is not bound to other lanes by --lanes or worker.lanes."
            yield Finding("workers", grade, detail, remedy)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def counts(findings: Sequence[Finding]) -> Mapping[Grade, int]:
    """How many findings there are of each grade."""
    return {grade: sum(finding.grade is grade for finding in findings) for grade in Grade}
