"""The checks of `fairlane doctor`: pure functions of what it has read of a deployment."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import quote

from fairlane.cli.lanes.lane_views import LaneReport
from fairlane.cli.lanes.workers import worker_state
from fairlane.cli.operate import server_checks
from fairlane.cli.operate.connection_views import lacks_besides_key
from fairlane.cli.operate.findings import Finding, Grade, Seen, fail, ok, warn
from fairlane.config.settings import Settings, WorkerSecrets
from fairlane.core.clock import span
from fairlane.model.choices import SPEC_VERSION
from fairlane.store.connection.server_states import Refusal
from fairlane.store.read.overview import LeaderView
from fairlane.store.write.lanes.lane_view import LaneView, LateCalls
from fairlane.store.write.workers import Beat, WorkerInfo
from fairlane.why.reasons import resuming
from fairlane.why.surroundings import DRAINED, lacking


def examine(seen: Seen) -> list[Finding]:
    """Every check, in the order in which failures are best corrected."""
    found = [
        *server_checks.check_server(seen.server),
        *server_checks.check_expiry(seen.frees_in_background),
        *server_checks.check_broker(seen),
        *server_checks.check_archive(seen.unmoved, seen.clocks.server_ms),
        server_checks.check_clocks(seen.clocks),
        check_leader(seen.leader, seen.clocks.server_ms),
        *check_specs(seen),
        *check_workers(seen),
        *check_messages(seen),
        *check_connections(seen),
        *check_keys(seen.settings, seen.secrets),
        *check_needs(seen.settings, seen.secrets),
        *check_credentials(seen),
        *check_tables(seen),
        *check_lanes(seen.lanes, seen.settings),
    ]
    refusing = seen.server.refusing if seen.server is not None else None
    return found if refusing is None else [_explained(finding, refusing) for finding in found]


def _explained(finding: Finding, refusing: Refusal) -> Finding:
    """Processes that cannot write heartbeats seem dead: the remedy is to correct Redis, not to start more."""
    if finding.grade is Grade.OK or finding.check not in ("scheduler", "workers"):
        return finding
    return replace(
        finding, remedy=f"{refusing.problem}, so no process can report. Correct that first, see above."
    )


def check_leader(leader: LeaderView | None, now_ms: int) -> Finding:
    """Does a scheduler lead?"""
    if leader is not None and leader.until_ms > now_ms:
        return ok("scheduler", f"{leader.identity} leads, epoch {leader.epoch}")
    remedy = "Nothing starts without one: `fairlane scheduler`, or `fairlane up` for everything."
    if leader is None:
        return fail("scheduler", "none has ever led here", remedy)
    since = f" for {span(now_ms - leader.until_ms)}" if leader.until_ms else ""
    return fail("scheduler", f"none has led{since}; the last was {leader.identity}", remedy)


def check_specs(seen: Seen) -> Iterator[Finding]:
    """Can the leader and the workers read each run that this version submits?"""
    leader = seen.leader
    leads = leader is not None and leader.until_ms > seen.clocks.server_ms
    if leader is not None and leads and leader.specs < SPEC_VERSION:
        detail = f"{leader.identity}, which leads, reads specs up to version {leader.specs} of {SPEC_VERSION}"
        remedy = "Upgrade the schedulers: this one refuses later versions, and ignores runs that have them."
        yield warn("versions", detail, remedy)
    for info in _alive(seen):
        if info.specs < SPEC_VERSION:
            detail = f"worker {info.name} reads specs up to version {info.specs} of {SPEC_VERSION}"
            remedy = "Upgrade the workers: this one requeues jobs of later versions, again and again."
            yield warn("versions", detail, remedy)


def check_workers(seen: Seen) -> Iterator[Finding]:
    """Are there workers, have they free slots, do they serve every lane, and are they of one version?"""
    by_state, now_ms = _by_state(seen), seen.clocks.server_ms
    alive = by_state.get("alive", [])
    asked = len(by_state.get("draining", []) + by_state.get("drained", []))
    if not alive and asked:
        yield fail("workers", f"none takes work: {asked} drained or draining", f"{DRAINED}.")
    elif not alive:
        remedy = "Start one on any machine that reaches Redis: `fairlane worker`."
        yield fail("workers", "none is alive", remedy)
    else:
        yield _check_slots(alive)
    for beat in by_state.get("silent", []):
        detail = f"{beat.info.name} on {beat.info.host} has been silent for {span(now_ms - beat.beat_ms)}"
        yield warn("workers", detail, "The scheduler requeues its jobs; start it again if it should run.")
    for beat in alive:
        if beat.info.shortage:
            remedy = (
                "Raise it where the worker starts: `ulimit -n`, LimitNOFILE= of systemd, ulimits of Compose."
            )
            yield warn("workers", f"{beat.info.name}: {beat.info.shortage}", remedy)
        for connection, reason in sorted(beat.info.unusable.items()):
            detail = f"{beat.info.name} cannot use {connection}: {reason}"
            yield fail("workers", detail, "Correct that where the worker runs, and start it again.")
        for lane, reason in beat.info.denied.items():
            remedy = "Give it the key of the workers that are answered there; alone, it waits for one."
            yield warn("keys", f"{beat.info.name} is denied on {lane}: {reason}", remedy)
    if alive:
        yield from _check_service(alive, seen.lanes)
    others = sorted({beat.info.version for beat in alive} - {seen.version})
    if others:
        detail = f"some run {', '.join(others)}, this is {seen.version}"
        yield warn("versions", detail, "Finish the upgrade: only neighbouring versions are tested together.")


def check_messages(seen: Seen) -> Iterator[Finding]:
    """Do live workers take what the scheduler sends them?"""
    served = {lane for info in _alive(seen) for lane in info.lanes}
    for lane, permits, oldest_ms in seen.untaken:
        if lane in served:
            since = span(seen.clocks.server_ms - oldest_ms)
            detail = f"{lane}: no worker takes the messages of {permits:,} calls, the first sent {since} ago"
            remedy = (
                "If a worker has just stopped, they are sent again once their leases lapse. Else give "
                "schedulers and workers one celery.broker_url, and look at that broker's own log."
            )
            yield fail("messages", detail, remedy)


def check_connections(seen: Seen) -> Iterator[Finding]:
    """Are there connections, and does the scheduler know the same ones?"""
    here, there = frozenset(seen.settings.connections), seen.catalog
    if not here and not there:
        remedy = "Add [connections.NAME] to fairlane.toml and start the scheduler and the workers with it."
        yield fail("connections", "none is configured", remedy)
        return
    yield from _check_awaited(seen, there)
    unknown = sorted(here - there) if there is not None else []
    if unknown:
        remedy = "Restart the scheduler and the workers with these settings."
        yield warn("connections", f"the scheduler does not know {', '.join(unknown)}", remedy)
    else:
        yield ok("connections", ", ".join(sorted(there or here)))


def _check_awaited(seen: Seen, known: frozenset[str] | None) -> Iterator[Finding]:
    """Do the leader and live workers have the same connections? Items wait for one that a side lacks."""
    alive = _alive(seen)
    if known is None or not alive or not all(info.connections for info in alive):
        return
    held = {name for info in alive for name in info.connections}
    for name in sorted(held - known):
        detail = f"workers have {name}, and the scheduler that leads does not: items that call it wait"
        remedy = "Restart the schedulers with [connections] of the workers."
        yield warn("connections", detail, remedy)
    for name in sorted(known - held):
        detail = f"no live worker has {name}: items that call it wait"
        yield warn("connections", detail, "Add it to the workers' settings, and restart them.")


def _alive(seen: Seen) -> list[WorkerInfo]:
    return [beat.info for beat in _by_state(seen).get("alive", [])]


def _by_state(seen: Seen) -> dict[str, list[Beat]]:
    now_ms, silent_ms = seen.clocks.server_ms, seen.settings.scheduler.worker_timeout_seconds * 1000
    by_state: dict[str, list[Beat]] = {}
    for beat in seen.beats:
        by_state.setdefault(worker_state(beat, now_ms, silent_ms), []).append(beat)
    return by_state


def check_keys(settings: Settings, secrets: WorkerSecrets) -> Iterator[Finding]:
    """Does this machine have the keys that the settings name? Only workers need them."""
    for name, connection in sorted(settings.connections.items()):
        place = connection.key_place
        if place is None:
            continue
        if name in secrets.missing:
            remedy = f"Only workers need it: {'provide' if place.changes else 'set'} it where they run."
            yield warn("keys", f"{name}: {place.name} {place.absence} here", remedy)
        else:
            yield ok("keys", f"{name}: {place.name} is {'here' if place.changes else 'set here'}")


def check_needs(settings: Settings, secrets: WorkerSecrets) -> Iterator[Finding]:
    """Does this machine have what connections need besides keys: files, extras, proxy credentials?"""
    for name, connection in sorted(settings.connections.items()):
        for what in lacks_besides_key(name, connection, secrets):
            remedy = f"Only workers need it; `fairlane connections test {name}` tries it where they run."
            yield warn("connections", f"{name}: {what} is missing here", remedy)


def check_credentials(seen: Seen) -> Iterator[Finding]:
    """Do workers hold the keys that calls need, and the same ones? Lanes use the key reported last."""
    alive = _alive(seen)
    yield from _check_lacking_keys(seen.settings, [info for info in alive if info.version == seen.version])
    remedy = "Restart the other workers with the key that should stay."
    for connection in sorted({name for info in alive for name in info.credentials}):
        held: dict[str, list[str]] = {}
        for info in alive:
            held.setdefault(info.credentials.get(connection, "none"), []).append(info.name)
        if len(held) > 1:
            listed = "; ".join(f"{key} ({', '.join(sorted(names))})" for key, names in sorted(held.items()))
            detail = f"workers disagree on the key of {connection}, by fingerprint: {listed}"
            yield warn("keys", detail, remedy)


def _check_lacking_keys(settings: Settings, alive: Sequence[WorkerInfo]) -> Iterator[Finding]:
    """Connections that live workers have, none of them with the key."""
    for name, connection in sorted(settings.connections.items()):
        place = connection.needed_key
        having = [info for info in alive if name in info.connections and name not in info.unusable]
        if place is not None and having and not any(name in info.credentials for info in having):
            detail = f"no worker has the key of {name}: runs that call it are refused"
            yield warn("keys", detail, f"{place.remedy}.")


def check_tables(seen: Seen) -> Iterator[Finding]:
    """Which table of [lanes] applies where connections share a lane?"""
    order = list(seen.settings.connections)
    for table, lane in sorted(seen.carriers.items()):
        tables = [name for name in seen.settings.lanes if seen.carriers.get(name, name) == lane]
        counts = lane if lane in tables else min(tables, key=lambda name: order.index(name.partition(":")[0]))
        if counts == table:
            yield ok("limits", f"[lanes.{table!r}] applies to {lane}, which carries its calls")
        else:
            detail = f"calls of {table} use {lane}, where [lanes.{counts!r}] applies"
            yield warn("limits", detail, f"Remove [lanes.{table!r}] from the settings.")


def check_lanes(reports: Sequence[LaneReport], settings: Settings) -> Iterator[Finding]:
    """Is a lane parked or paused, or is its provider down?"""
    shut = list(_shut(reports, settings))
    yield from shut
    yield from (_narrowed(report.view, report.view.late) for report in reports if report.view.late)
    if not shut and reports:
        yield ok("lanes", f"{len(reports)}, none of them parked, paused or down")


def _narrowed(view: LaneView, late: LateCalls) -> Finding:
    most = f"; it has at most {view.places.most:,} now" if view.places.most is not None else ""
    remedy = (
        "Set its max_concurrency to what its server answers at once, or let runs and proxies wait longer."
    )
    return warn("lanes", f"{view.lane}: {late}{most}", remedy)


def _shut(reports: Sequence[LaneReport], settings: Settings) -> Iterator[Finding]:
    for report in reports:
        lane, hold = report.view.lane, report.hold
        match hold.reason if hold else None:
            case "parked":
                connection = settings.connections.get(lane.partition(":")[0])
                place = None if connection is None else connection.needed_key
                key = place.remedy if place is not None and place.changes else "Give workers a new key"
                remedy = f"{key}; for a quota, raise it and run {resuming(lane)}."
                yield fail("lanes", f"{lane} is {report.hold_in_words}", remedy)
            case "paused":
                yield warn("lanes", f"{lane} is paused", f"{resuming(lane)} opens it.")
            case "circuit" | "probing":
                show = f"`fairlane lanes show {quote(lane)}` has its last error"
                remedy = f"A single call tries again by itself. {show}."
                yield warn("lanes", f"{lane}: {report.hold_in_words}", remedy)
            case _:
                pass


def _check_slots(alive: Sequence[Beat]) -> Finding:
    slots, busy = sum(beat.info.slots for beat in alive), sum(beat.info.busy for beat in alive)
    detail = f"{len(alive)} alive, {max(0, slots - busy):,} of {slots:,} slots free"
    if busy >= slots:
        return warn("workers", detail, "Jobs wait for slots: add workers, or --slots to them.")
    return ok("workers", detail)


def _check_service(alive: Sequence[Beat], reports: Sequence[LaneReport]) -> Iterator[Finding]:
    served = {lane for beat in alive for lane in beat.info.lanes}
    for report in reports:
        if report.view.lane not in served:
            grade = Grade.FAIL if report.queued else Grade.WARN
            detail = f"none serves {report.view.lane}, where {report.queued:,} jobs wait"
            remedy = "start a worker that is not bound to other lanes by --lanes or worker.lanes"
            if (lack := lacking(report.view.lane, [beat.info for beat in alive])) is not None:
                detail, remedy = f"{detail}: {lack.problem}", lack.remedy
            yield Finding("workers", grade, detail, f"{remedy[0].upper()}{remedy[1:]}.")


def counts(findings: Sequence[Finding]) -> Mapping[Grade, int]:
    """How many findings there are of each grade."""
    return {grade: sum(finding.grade is grade for finding in findings) for grade in Grade}
