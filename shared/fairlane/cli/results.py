"""``fairlane results``: a run's records as JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer

from fairlane.cli.deployment import open_deployment
from fairlane.cli.failures import FAILED
from fairlane.cli.invocation import Invocation, with_settings
from fairlane.cli.output import complain, say
from fairlane.cli.run_views import ending, share
from fairlane.cli.selection import LATEST, RunArgument, RunCommand, find_run
from fairlane.export import whole_file, written
from fairlane.run import Record, RunState

STANDARD_OUTPUT = Path("-")


@with_settings
def results(
    invocation: Invocation,
    run: RunArgument = LATEST,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Written whole or not at all. Left out: standard output."
        ),
    ] = STANDARD_OUTPUT,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Write each record as its item ends, not in item order.")
    ] = False,
) -> None:
    """Write a run's records as JSON lines, in item order; a run that is not over is waited for.

    Ends with 1 if the run was refused.
    """
    with open_deployment(invocation) as deployment, _sink(output) as out:
        found = find_run(deployment, run)
        status = found.status()
        if not status.state.finished and not follow:
            say(f"run {found.id} is {status.state}, {share(status)} done; waiting for its end")
            status = found.wait(progress=True)
        if status.state is RunState.REFUSED:
            complain(f"run {found.id} {ending(status)}")
            raise typer.Exit(FAILED)
        count = _count(written(found.stream() if follow else found.results(), out))
    if output != STANDARD_OUTPUT:
        say(f"{count:,} records of run {found.id} are in {output}")


@contextmanager
def _sink(output: Path) -> Iterator[TextIO]:
    if output == STANDARD_OUTPUT:
        yield sys.stdout
    else:
        with whole_file(output) as out:
            yield out


def _count(records: Iterable[Record]) -> int:
    return sum(1 for _ in records)


def add_to(app: typer.Typer) -> None:
    """Put the command into the application."""
    app.command(cls=RunCommand)(results)
