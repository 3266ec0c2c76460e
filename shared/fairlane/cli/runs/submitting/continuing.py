"""``fairlane continue``: a new run that takes over the results of a finished one."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.runs.conclusion import FailingRunCommand, FailOnErrorOption
from fairlane.cli.runs.runs import conclude_submission
from fairlane.cli.runs.selection import RunArgument, find_run
from fairlane.cli.runs.submitting.assignments import read_evaluator
from fairlane.cli.runs.submitting.inputs import open_dataset
from fairlane.cli.runs.submitting.options import CheckOption, WaitOption
from fairlane.client.client import Client

app = typer.Typer()


@app.command("continue", cls=FailingRunCommand)
@with_settings
def continue_run(
    invocation: Invocation,
    run: RunArgument,
    dataset: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE", help="Rows, which may have grown or been reordered; by default those of the run."
        ),
    ] = None,
    evaluator: Annotated[
        list[str] | None,
        typer.Option(metavar="SPEC", help="Evaluators in place of the run's own, as for submit. Repeatable."),
    ] = None,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors/--keep-errors", help="Repeat failed jobs, or keep their failures.")
    ] = True,
    check: CheckOption = True,
    wait: WaitOption = False,
    fail_on_error: FailOnErrorOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Continue a finished run: submit a new one that takes over its results, and print its id.

    Items that succeeded are not called again; an item is the same if its row, prompt, model and repetition
    are. The old run stays as it is. With --wait it ends as submit --wait does.
    """
    scored = None if evaluator is None else [read_evaluator(each) for each in evaluator]
    rows = None if dataset is None else open_dataset(dataset)
    with invocation.deployment() as deployment:
        old = find_run(deployment, run)
        new = Client.over(deployment).continue_run(
            old.id, rows, evaluators=scored, retry_errors=retry_errors, check=check
        )
        note = f"; it continues run {old.id}"
        conclude_submission(deployment, new, wait=wait, allowed=fail_on_error, as_json=as_json, note=note)
