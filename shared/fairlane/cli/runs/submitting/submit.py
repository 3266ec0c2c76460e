"""``fairlane submit``: a dataset, prompts, models and evaluators become a run."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.runs.conclusion import FailingCommand, FailOnErrorOption
from fairlane.cli.runs.runs import conclude_submission
from fairlane.cli.runs.submitting import inputs, options, scoring
from fairlane.cli.runs.submitting.assignments import read_options
from fairlane.client.client import Client

app = typer.Typer()

Texts = list[str] | None

MoreOption = Annotated[
    Texts,
    options.call_option(
        metavar="K=V",
        help="Any other option of Client.submit, like cache=read_write, task_rate=20, max_duration=3600, "
        "budget_tokens=100000, session=FIELD or output=FIELD. Repeatable.",
    ),
]


@app.command(cls=FailingCommand)
@with_settings
def submit(
    invocation: Invocation,
    *,
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Rows: .jsonl, .json, .csv, .tsv or .parquet; - or a pipe for JSON lines.",
        ),
    ],
    limit: inputs.LimitOption = None,
    sample: inputs.SampleOption = None,
    seed: inputs.SeedOption = 0,
    asked: inputs.Asked,
    scored: scoring.Scored,
    name: Annotated[str | None, options.call_option(metavar="TEXT", help="Name of the run.")] = None,
    priority: options.PriorityOption = 0,
    interactive: Annotated[
        bool,
        options.call_option(
            "--interactive", help="Somebody waits for the results: start this run's jobs first."
        ),
    ] = False,
    timeout: options.TimeoutOption = None,
    max_attempts: options.MaxAttemptsOption = None,
    max_concurrent: options.MaxConcurrentOption = None,
    on_refusal: options.OnRefusalOption = "fail",
    option: MoreOption = None,
    check: options.CheckOption = True,
    wait: options.WaitOption = False,
    fail_on_error: FailOnErrorOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Submit a run and print its id.

    With --wait it ends with 1 if an item failed or the run did not complete, or if refusals hold all that is
    left.
    """
    calls, evaluators = asked.calls(read_options(option or ())), scored.evaluators()
    with invocation.deployment() as deployment:
        run = Client.over(deployment).submit(
            inputs.portion_of(inputs.open_dataset(dataset), limit, sample, seed),
            evaluators=evaluators,
            name=name,
            priority="interactive" if interactive else priority,
            timeout=timeout,
            retry=options.retry_of(max_attempts),
            max_concurrent=max_concurrent,
            on_refusal=on_refusal,
            check=check,
            **calls,
        )
        conclude_submission(deployment, run, wait=wait, allowed=fail_on_error, as_json=as_json)
