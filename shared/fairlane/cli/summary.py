"""``fairlane summary``: a run's scores, failures, tokens and cost."""

from __future__ import annotations

import typer

from fairlane.cli.deployment import open_deployment
from fairlane.cli.failures import FAILED
from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import complain, print_json, say
from fairlane.cli.panels import RUNS
from fairlane.cli.run_views import share
from fairlane.cli.selection import LATEST, RunArgument, RunCommand, find_run
from fairlane.cli.summary_views import print_summary
from fairlane.errors import SubmissionError


@with_settings
def summary(invocation: Invocation, run: RunArgument = LATEST, as_json: JsonOption = False) -> None:
    """Sum up a run: scores with their standard errors, failures, tokens, cost; waits for its end.

    Cost is by the prices in the settings. Ends with 1 if the run was refused.
    """
    with open_deployment(invocation) as deployment:
        found = find_run(deployment, run)
        status = found.status()
        if not status.state.finished:
            say(f"run {found.id} is {status.state}, {share(status)} done; waiting for its end")
            found.wait(progress=True)
        try:
            summed = found.summary()
        except SubmissionError as refused:
            complain(str(refused))
            raise typer.Exit(FAILED) from refused
    if as_json:
        print_json(summed.to_dict())
    else:
        print_summary(summed)


def add_to(app: typer.Typer) -> None:
    """Put the command into the application."""
    app.command(cls=RunCommand, rich_help_panel=RUNS)(summary)
