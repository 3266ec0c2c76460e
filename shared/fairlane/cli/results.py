"""``fairlane results``: a run's records as JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer

from fairlane.cli.deployment import open_deployment
from fairlane.cli.failures import FAILED
from fairlane.cli.invocation import Invocation, with_settings
from fairlane.cli.output import complain, say
from fairlane.cli.panels import RUNS
from fairlane.cli.run_views import share
from fairlane.cli.selection import LATEST, RunArgument, RunCommand, find_run
from fairlane.errors import SubmissionError
from fairlane.export import whole_file, written
from fairlane.handle import Run

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
    _json: Annotated[
        bool, typer.Option("--json", help="As elsewhere; JSON lines are all that is written.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Write each record as its item ends, not in item order.")
    ] = False,
) -> None:
    """Write a run's records as JSON lines, in item order; a run that is not over is waited for.

    Ends with 1 if the run was refused.
    """
    with open_deployment(invocation) as deployment, _sink(output) as out:
        found = find_run(deployment, run)
        try:
            count = _write(found, out, follow=follow)
        except SubmissionError as refused:
            complain(str(refused))
            raise typer.Exit(FAILED) from refused
    if output != STANDARD_OUTPUT:
        say(f"{count:,} records of run {found.id} are in {output}")


def _write(run: Run, out: TextIO, *, follow: bool) -> int:
    """How many records there were. Raises `SubmissionError` if the run was refused."""
    status, count = run.status(), 0
    if not (status.state.finished or follow):
        say(f"run {run.id} is {status.state}, {share(status)} done; waiting for its end")
        run.wait(progress=True)
    for _ in written(run.stream() if follow else run.results(), out):
        count += 1
        if follow:
            out.flush()
    return count


@contextmanager
def _sink(output: Path) -> Iterator[TextIO]:
    if output == STANDARD_OUTPUT:
        yield sys.stdout
    else:
        with whole_file(output) as out:
            yield out


def add_to(app: typer.Typer) -> None:
    """Put the command into the application."""
    app.command(cls=RunCommand, rich_help_panel=RUNS)(results)
