"""Commands that become one role's process: a scheduler or a worker."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.invocation import Invocation, with_settings
from fairlane.cli.process import NameOption, ReadyFileOption, become, require_ready, stated
from fairlane.config.sections import MOST_SLOTS

app = typer.Typer()


@app.command()
@with_settings
def scheduler(invocation: Invocation, name: NameOption = None, ready_file: ReadyFileOption = None) -> None:
    """Run a scheduler: one leads, others stand by."""
    require_ready(invocation)
    become("fairlane_scheduler", stated(name=name, ready_file=ready_file), invocation.environment())


@app.command()
@with_settings
def worker(
    invocation: Invocation,
    slots: Annotated[
        int | None, typer.Option(min=1, max=MOST_SLOTS, help="Most concurrent calls of this worker.")
    ] = None,
    lanes: Annotated[
        str | None, typer.Option(metavar="A,B", help="Serve only these lanes, separated by commas.")
    ] = None,
    name: NameOption = None,
    ready_file: ReadyFileOption = None,
) -> None:
    """Run a worker."""
    require_ready(invocation)
    arguments = stated(slots=slots, lanes=lanes, name=name, ready_file=ready_file)
    become("fairlane_workers", arguments, invocation.environment())
