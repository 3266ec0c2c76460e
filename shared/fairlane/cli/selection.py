"""Which run is meant: its id, the beginning of it, or the latest."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from fairlane.cli.deployment import Deployment
from fairlane.errors import FairlaneError, RunNotFound
from fairlane.handle import Run

LATEST = "latest"
LISTED = 5

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help='Its id or the beginning of it; "latest" or -1 is the newest.')
]


class AmbiguousRun(FairlaneError, LookupError):
    """Several runs begin so. ``matches`` are their ids, newest last."""

    def __init__(self, wanted: str, matches: list[str]) -> None:
        shown = ", ".join(matches[-LISTED:])
        more = f" and {len(matches) - LISTED} more" if len(matches) > LISTED else ""
        super().__init__(
            f"{wanted!r} is the beginning of {len(matches)} runs: {shown}{more}. Give more of it"
        )
        self.matches = matches


class RunCommand(TyperCommand):
    """A command about a run: ``-1`` is no option of it, but the latest run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [LATEST if part == "-1" else part for part in args])


def find_run(deployment: Deployment, wanted: str) -> Run:
    """The run of the team in force that ``wanted`` means. Raises `RunNotFound` and `AmbiguousRun`."""
    client = deployment.client
    if wanted == LATEST:
        newest = client.runs(limit=1)
        if not newest:
            raise FairlaneError(f"team {client.team} has no run; `fairlane submit` makes one")
        return client.run(newest[0].run)
    try:
        return client.run(wanted)
    except RunNotFound:
        matches = [run for run in deployment.reader.run_ids(client.team) if wanted and run.startswith(wanted)]
    if len(matches) > 1:
        raise AmbiguousRun(wanted, matches)
    return client.run(matches[0] if matches else wanted)
