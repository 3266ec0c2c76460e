"""``fairlane report``: writes a run as one page to read and to share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairlane.apps.report.page import MOST_EXAMPLES
from fairlane.cli.invocation import Invocation, with_settings
from fairlane.cli.output import say
from fairlane.cli.runs.conclusion import fails_if_refused
from fairlane.cli.runs.selection import LATEST, RunArgument, RunCommand, find_ended
from fairlane.core.figures import counted

app = typer.Typer()


@dataclass(frozen=True, slots=True)
class Page:
    """Options: the contents of the page, and its file."""

    html: Annotated[
        Path | None, typer.Option("--html", "-o", metavar="FILE", show_default="the run's id and .html")
    ] = None
    """File to write. It appears once it is complete."""

    examples: Annotated[int, typer.Option(min=0, max=MOST_EXAMPLES, metavar="N")] = 0
    """Show rows and outputs of N items, and the prompts."""

    against: Annotated[str | None, typer.Option(metavar="RUN")] = None
    """Also compare the scores with those of this run, item by item."""


@app.command(cls=RunCommand)
@with_settings
def report(
    invocation: Invocation,
    run: RunArgument = LATEST,
    *,
    page: Page,
) -> None:
    """Write a self-contained HTML page: scores, cost, throughput, failures. Waits for the end.

    No text of prompts, rows or outputs is in it unless you ask for examples. Ends with 1 if the run was
    refused.
    """
    with invocation.deployment() as deployment:
        other = None if page.against is None else find_ended(deployment, page.against)
        found = find_ended(deployment, run)
        path = page.html or Path(f"{found.id}.html")
        with fails_if_refused():
            count = found.report(path, examples=page.examples, against=other)
    say(f"the report on run {found.id} is in {path}: it sums up {counted(count, 'record')}")
