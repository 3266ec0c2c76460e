"""Finds the run that an argument names: by its id, the beginning of it, its name, or "latest"."""

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from fairlane.cli.output import say
from fairlane.cli.runs.run_views import share
from fairlane.client.client import Client
from fairlane.client.deployment import Deployment
from fairlane.client.outputs import Run
from fairlane.core.errors import AmbiguousRun, FairlaneError, RunNotFound

LATEST = "latest"

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help='Its id, the beginning of it, or its name; "latest" or -1 is the newest.'
    ),
]


class RunCommand(TyperCommand):
    """A command about a run. It reads ``-1`` as the latest run, not as an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments with ``-1`` read as the latest run."""
        return super().parse_args(ctx, [LATEST if part == "-1" else part for part in args])


def find_run(deployment: Deployment, wanted: str) -> Run:
    """The run of the team in force that ``wanted`` means; of several with one name the newest.

    Raises `RunNotFound` and `AmbiguousRun`.
    """
    client = Client.over(deployment)
    if wanted == LATEST:
        newest = client.runs(limit=1)
        if not newest:
            raise FairlaneError(f"team {client.team} has no run; `fairlane submit` submits one")
        return client.run(newest[0].run)
    try:
        return client.run(wanted)
    except RunNotFound:
        matches = [run for run in deployment.reader.run_ids(client.team) if wanted and run.startswith(wanted)]
    if len(matches) > 1:
        raise AmbiguousRun(wanted, matches)
    if not matches:
        raise RunNotFound(wanted)
    return client.run(matches[0])


def find_ended(deployment: Deployment, wanted: str, hint: str = "") -> Run:
    """The run that `find_run` finds, once it has ended; waits for its end and shows progress.

    ``hint``: a sentence to print before the wait.
    """
    run = find_run(deployment, wanted)
    await_end(run, hint)
    return run


def await_end(run: Run, hint: str = "") -> None:
    """Wait for the end of a run that has not ended, and show its progress. ``hint``: see `find_ended`."""
    status = run.status()
    if not status.state.finished:
        say(f"run {run.id} is {status.state}, {share(status)} done; waiting for its end")
        if hint:
            say(hint)
        run.wait(progress=True)
