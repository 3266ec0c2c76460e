"""``fairlane archive``: moves finished runs into a database; Redis keeps a stub of each."""

from collections.abc import Iterable
from typing import Annotated

import typer

from fairlane.cli.failures import FAILED, MISUSED
from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import complain, print_json, say
from fairlane.cli.runs.selection import RunCommand, find_run
from fairlane.client.archive import Moved, require_archive
from fairlane.client.deployment import Deployment
from fairlane.model.run import RunRef

app = typer.Typer()

RESULT_TEXTS = {
    Moved.MOVED: "is in the archive",
    Moved.MOVED_BEFORE: "was in the archive already",
    Moved.RUNNING: "is not finished: it stays where it is",
    Moved.REFUSED: "was refused: there is nothing to keep",
    Moved.NEEDED: "stays in Redis until the run that continues it has finished",
}

ARCHIVED = frozenset({Moved.MOVED, Moved.MOVED_BEFORE})


@app.command(cls=RunCommand)
@with_settings
def archive(
    invocation: Invocation,
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Ids, or beginnings of them.")
    ] = None,
    finished: Annotated[bool, typer.Option("--finished", help="All finished runs of the team.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Move finished runs into the database that archive.url names; all commands still read them.

    An interrupted move can be repeated. Ends with 1 if a run that was named could not be moved.
    """
    if bool(runs) == finished:
        complain("name runs, or give --finished")
        raise typer.Exit(MISUSED)
    with invocation.deployment() as deployment:
        results = _move(deployment, runs or (), finished=finished)
    if as_json:
        print_json([{"run": run, "result": str(moved)} for run, moved in results.items()])
    elif not results:
        say("no finished run is left to be archived")
    if not finished and not ARCHIVED.issuperset(results.values()):
        raise typer.Exit(FAILED)


def _move(deployment: Deployment, wanted: Iterable[str], *, finished: bool) -> dict[str, Moved]:
    """Move runs and return the result for each."""
    mover = require_archive(deployment.archive).mover(deployment, lambda: None, deployment.auditor)
    results: dict[str, Moved] = {}
    team = deployment.settings.team
    if finished:
        refs = list(mover.due(team, deployment.now_ms()))
    else:
        refs = [RunRef(team, find_run(deployment, each).id) for each in wanted]
    for ref in refs:
        results[ref.run] = moved = mover.move(ref)
        say(f"run {ref.run} {RESULT_TEXTS[moved]}")
    return results
