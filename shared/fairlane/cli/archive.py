"""``fairlane archive``: finished runs go into a database, and Redis keeps a stub of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from fairlane.archive.opening import require_archive
from fairlane.cli.deployment import Deployment, open_deployment
from fairlane.cli.failures import FAILED, MISUSED
from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import complain, print_json, say
from fairlane.cli.panels import OPERATIONS
from fairlane.cli.selection import RunCommand, find_run
from fairlane.clock import SystemClock
from fairlane.link import Link
from fairlane.mover import Moved, Mover
from fairlane.polling import SystemWaiter
from fairlane.store.connect import without_password
from fairlane.store.keys import RunRef

SAID = {
    Moved.MOVED: "is in the archive",
    Moved.MOVED_BEFORE: "was in the archive already",
    Moved.RUNNING: "is not finished: it stays where it is",
    Moved.REFUSED: "was refused: there is nothing to keep",
    Moved.NEEDED: "stays where it is as long as a run that goes on from it is active",
}

ARCHIVED = frozenset({Moved.MOVED, Moved.MOVED_BEFORE})


@with_settings
def archive(
    invocation: Invocation,
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Ids, or beginnings of them.")
    ] = None,
    finished: Annotated[bool, typer.Option("--finished", help="All finished runs of the team.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Move finished runs into the database that archive.url names; they can be read as before.

    May be broken off and done again. Ends with 1 if a run that was named could not be moved.
    """
    if bool(runs) == finished:
        complain("name runs, or give --finished")
        raise typer.Exit(MISUSED)
    with open_deployment(invocation) as deployment:
        came_to = _move(deployment, runs or (), finished=finished)
    if as_json:
        print_json([{"run": run, "result": str(moved)} for run, moved in came_to.items()])
    elif not came_to:
        say("no finished run is left to be archived")
    if not finished and not ARCHIVED.issuperset(came_to.values()):
        raise typer.Exit(FAILED)


def _move(deployment: Deployment, wanted: Iterable[str], *, finished: bool) -> dict[str, Moved]:
    """What became of each run."""
    settings, team, found = (
        deployment.settings,
        deployment.settings.team,
        require_archive(deployment.settings),
    )
    url, keys = without_password(settings.redis.url), deployment.keys
    mover = Mover(
        Link(deployment.redis, keys, url, SystemClock(), SystemWaiter()), found, auditor=deployment.auditor
    )
    came_to: dict[str, Moved] = {}
    try:
        due = list(mover.due(team, deployment.now_ms())) if finished else _named(deployment, wanted)
        for ref in due:
            came_to[ref.run] = moved = mover.move(ref)
            say(f"run {ref.run} {SAID[moved]}")
    finally:
        found.close()
    return came_to


def _named(deployment: Deployment, wanted: Iterable[str]) -> list[RunRef]:
    return [RunRef(deployment.settings.team, find_run(deployment, each).id) for each in wanted]


def add_to(app: typer.Typer) -> None:
    """Put the command into the application."""
    app.command(cls=RunCommand, rich_help_panel=OPERATIONS)(archive)
