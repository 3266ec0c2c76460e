"""``fairlane doctor``: what is wrong with a deployment, and what to do about it."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict

import typer
from redis.exceptions import NoPermissionError
from rich.text import Text

from fairlane.cli.failures import FAILED
from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.lanes.lanes import read_lanes
from fairlane.cli.operate.checks import counts, examine
from fairlane.cli.operate.findings import BrokerView, Clocks, Finding, Grade, Seen, Unmoved, fail, ok
from fairlane.cli.output import emit, print_rows, say
from fairlane.client.deployment import Deployment
from fairlane.config.loader import load_secrets
from fairlane.config.sections import RedisSettings
from fairlane.config.settings import Settings
from fairlane.config.topology import CLUSTER, topology_of
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.errors import ArchiveUnavailable, ConfigurationError, RunNotFound, StoreUnavailable
from fairlane.core.version import __version__
from fairlane.model.run import RunRef
from fairlane.store.connection.connect import if_allowed, without_password
from fairlane.store.connection.misfits import CLUSTERED, is_clustered, missing_right
from fairlane.store.connection.primary import finder_of
from fairlane.store.read.lost_parts import incomplete_runs
from fairlane.store.read.mistyped import mistyped, refusal_of
from fairlane.store.write.acl import user_name
from fairlane.store.write.leases import Leases
from fairlane.store.write.runs.archive_stub import ArchiveStubs
from fairlane.store.write.runs.inbox import Inbox

app = typer.Typer()

LATE_MS = 15 * 60_000
"""A run that has been due for the archive for longer is late: a working archive moves it sooner."""

MARKS = {Grade.OK: "green", Grade.WARN: "yellow", Grade.FAIL: "bold red"}


@app.command()
@with_settings
def doctor(invocation: Invocation, as_json: JsonOption = False) -> None:
    """Check Redis, scheduler, workers, connections and lanes, and say what to do.

    Ends with 1 if a check fails; a warning is no failure.
    """
    findings = list(_run_checks(invocation))
    emit([asdict(finding) for finding in findings], lambda: _print(findings), as_json=as_json)
    if any(finding.grade is Grade.FAIL for finding in findings):
        raise typer.Exit(FAILED)


def _run_checks(invocation: Invocation) -> Iterator[Finding]:
    """Check step by step, up to the first step that fails."""
    try:
        settings = invocation.settings()
    except ConfigurationError as error:
        yield fail("settings", str(error), "Correct that; `fairlane --config FILE` names another.")
        return
    yield ok("settings", settings.config_file or "no file: defaults, and FAIRLANE_* variables")
    try:
        with invocation.deployment() as deployment:
            yield ok("redis", _answers(settings.redis))
            yield from _misfits(deployment)
            if wrong := _mistyped(deployment):
                yield from wrong
                return
            yield from _incomplete(deployment)
            yield from examine(look(deployment))
    except StoreUnavailable as error:
        yield fail("redis", str(error), "Every process needs it.")


def _answers(redis: RedisSettings) -> str:
    """The address that answers, and the primary of several servers."""
    shown, topology = f"answers at {without_password(redis.url)}", topology_of(redis.url)
    if topology is None:
        return shown
    host, port = finder_of(topology, redis.deployment)()
    return f"{shown}; the primary is {host}:{port}"


def _misfits(deployment: Deployment) -> Iterator[Finding]:
    """Faults of Redis with which no process starts; the rights of a team's own user are not checked."""
    settings, redis, url = deployment.settings, deployment.redis, deployment.settings.redis.url
    if topology_of(url) is None and is_clustered(redis):
        yield fail("redis cluster", CLUSTERED.problem, f"{CLUSTERED.remedy}.")
    elif user_name(settings.redis.deployment, "") not in url:
        broker = settings.celery.broker_url is None and not _is_on_cluster(settings)
        missing = missing_right(redis, deployment.keys, broker=broker)
        if missing is not None:
            yield fail("redis rights", missing.problem, f"{missing.remedy}.")


def _mistyped(deployment: Deployment) -> list[Finding]:
    """Keys whose type somebody has changed; none for a team's user, who may not look."""
    wrong = if_allowed(lambda: mistyped(deployment.redis, deployment.keys), [])
    refusals = [refusal for each in wrong if (refusal := refusal_of([each]))]
    return [fail("redis keys", each.problem, f"{each.remedy}.") for each in refusals]


def _incomplete(deployment: Deployment) -> Iterator[Finding]:
    """Runs that cannot end, since a part of them is gone; none for a team's user, who may not look."""
    for key, state in if_allowed(lambda: incomplete_runs(deployment.redis, deployment.keys), []):
        remedy = f"Drop the run: redis-cli DEL '{state}'. Then submit its rows again."
        yield fail("runs", f"a part of {key} is gone, so the run cannot end", remedy)


def look(deployment: Deployment, clock: Clock | None = None) -> Seen:
    """Read everything that the checks need. Raises `RedisError`."""
    settings, lanes, carrier = deployment.settings, deployment.lanes, deployment.directory().carrier
    leases = Leases(deployment.redis, deployment.keys)
    return Seen(
        settings=settings,
        secrets=load_secrets(settings),
        version=__version__,
        server=deployment.reader.server(),
        clocks=_clocks(deployment, clock or SystemClock()),
        leader=deployment.reader.leader(),
        beats=deployment.beats(),
        catalog=deployment.known_connections(),
        lanes=read_lanes(deployment, lanes.names()),
        broker=_broker(settings),
        carriers={table: lane for table in settings.lanes if (lane := carrier(table)) != table},
        frees_in_background=deployment.reader.frees_in_background(),
        unmoved=_unmoved(deployment),
        untaken=if_allowed(lambda: leases.untaken(deployment.now_ms()), []),
    )


def _unmoved(deployment: Deployment) -> Unmoved | None:
    """Runs that have been due for the archive for `LATE_MS`, and whether it answers.

    ``None`` without an archive, or for a team's user.
    """
    if deployment.archive is None:
        return None
    inbox, stubs = Inbox(deployment.redis, deployment.keys), ArchiveStubs(deployment.redis, deployment.keys)
    after_ms = round(deployment.settings.archive.after_seconds * 1000)
    due_ms, late, due = deployment.now_ms() - after_ms, list[int](), 0
    try:
        for team in inbox.teams():
            briefs = stubs.briefs(stubs.listed(team))
            unmoved = [each.finished_ms for each in briefs if each.unmoved and each.finished_ms <= due_ms]
            late += [each for each in unmoved if each <= due_ms - LATE_MS]
            due += len(unmoved)
    except NoPermissionError:
        return None
    return Unmoved(len(late), min(late, default=0), due, _archive_problem(deployment))


def _archive_problem(deployment: Deployment) -> str:
    """Why the archive cannot be read from here; "" if it can. Asks it for a run that does not exist."""
    try:
        with suppress(RunNotFound):
            deployment.runs.overview(RunRef("doctor", "none"))
    except (ArchiveUnavailable, ConfigurationError) as error:
        return str(error)
    return ""


def _clocks(deployment: Deployment, clock: Clock) -> Clocks:
    started_ms = clock.monotonic_ms()
    time = deployment.time()
    return Clocks(clock.now_ms(), time.now_ms, clock.monotonic_ms() - started_ms, time.ahead_ms)


def _broker(settings: Settings) -> BrokerView | None:
    """The broker; ``None`` if it is the Redis with the state."""
    if settings.celery.broker_url is None and not _is_on_cluster(settings):
        return None
    # Celery takes longer to import than all the rest.
    from fairlane.cli.operate.broker_inspection import inspect_broker

    return inspect_broker(settings)


def _is_on_cluster(settings: Settings) -> bool:
    return CLUSTER in settings.redis.url.partition("://")[0]


def _print(findings: Sequence[Finding]) -> None:
    print_rows(_rows(findings))
    found = counts(findings)
    look = f"{found[Grade.WARN]} to look at" if found[Grade.WARN] else ""
    if found[Grade.FAIL]:
        say(f"{found[Grade.FAIL]} to fix" + (f", {look}" if look else ""))
    else:
        say(f"{look}, nothing fails" if look else "all is well")


def _rows(findings: Sequence[Finding]) -> Iterator[tuple[object, ...]]:
    for finding in findings:
        yield (Text(finding.grade, MARKS[finding.grade]), finding.check, finding.detail)
        if finding.remedy:
            yield ("", "", Text(f"→ {finding.remedy}", "italic"))
