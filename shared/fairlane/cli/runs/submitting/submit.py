"""``fairlane submit`` and ``continue``: a dataset, prompts, models and evaluators become a run."""

from typing import Annotated

import typer

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.runs.conclusion import FailingCommand, FailingRunCommand, FailOnErrorOption
from fairlane.cli.runs.runs import conclude_submission
from fairlane.cli.runs.selection import RunArgument, find_run
from fairlane.cli.runs.submitting import inputs, options
from fairlane.cli.runs.submitting.assignments import read_evaluator, read_options
from fairlane.client.client import Client

app = typer.Typer()

MoreOption = Annotated[
    list[str] | None,
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
            metavar="FILE", help="Rows: .jsonl, .json, .csv, .tsv or .parquet; - or a pipe for JSON lines."
        ),
    ],
    limit: inputs.LimitOption = None,
    sample: inputs.SampleOption = None,
    seed: inputs.SeedOption = None,
    task_options: inputs.TaskOptions,
    evaluator_options: options.EvaluatorOptions,
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
    if interactive and priority:
        raise typer.BadParameter("--interactive is a priority of its own: leave out --priority")
    calls, evaluators = (
        task_options.submit_arguments(read_options(option or ())),
        evaluator_options.evaluators(),
    )
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
    check: options.CheckOption = True,
    wait: options.WaitOption = False,
    fail_on_error: FailOnErrorOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Continue a finished run: submit a new one that takes over its results, and print its id.

    Items that succeeded are not called again; an item is the same if its row, prompt, model and repetition
    are. The old run stays as it is. With --wait it ends as submit --wait does.
    """
    scored = None if evaluator is None else [read_evaluator(each) for each in evaluator]
    rows = None if dataset is None else inputs.open_dataset(dataset)
    with invocation.deployment() as deployment:
        old = find_run(deployment, run)
        new = Client.over(deployment).continue_run(
            old.id, rows, evaluators=scored, retry_errors=retry_errors, check=check
        )
        note = f"; it continues run {old.id}"
        conclude_submission(deployment, new, wait=wait, allowed=fail_on_error, as_json=as_json, note=note)
