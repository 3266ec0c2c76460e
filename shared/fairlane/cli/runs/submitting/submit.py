"""``fairlane submit``: a dataset, prompts, models and evaluators become a run."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.runs.conclusion import FailingCommand, FailOnErrorOption
from fairlane.cli.runs.runs import conclude_submission
from fairlane.cli.runs.submitting.assignments import read_options, read_params
from fairlane.cli.runs.submitting.inputs import open_dataset, read_calls
from fairlane.cli.runs.submitting.options import (
    CALLS,
    CheckOption,
    MaxAttemptsOption,
    MaxConcurrentOption,
    MessagesFilesOption,
    ModelsOption,
    OnRefusalOption,
    ParamsOption,
    PriorityOption,
    PromptFilesOption,
    PromptsOption,
    RepetitionsOption,
    TimeoutOption,
    retry_of,
)
from fairlane.cli.runs.submitting.portions import LimitOption, SampleOption, SeedOption, portion_of
from fairlane.cli.runs.submitting.scoring import (
    EvaluatorsOption,
    JudgeChoicesOption,
    JudgeModelOption,
    JudgeParamsOption,
    JudgeTemplateFileOption,
    JudgeTemplateOption,
    read_evaluators,
)
from fairlane.client.client import Client

app = typer.Typer()

Texts = list[str] | None

MoreOption = Annotated[
    Texts,
    typer.Option(
        metavar="K=V",
        help="Any other option of Client.submit, like cache=read_write, task_rate=20, max_duration=3600, "
        "budget_tokens=100000, session=FIELD or output=FIELD. Repeatable.",
        rich_help_panel=CALLS,
    ),
]


@app.command(cls=FailingCommand)
@with_settings
def submit(
    invocation: Invocation,
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Rows: .jsonl, .json, .csv, .tsv or .parquet; - or a pipe for JSON lines.",
        ),
    ],
    limit: LimitOption = None,
    sample: SampleOption = None,
    seed: SeedOption = 0,
    model: ModelsOption = None,
    prompt: PromptsOption = None,
    prompt_file: PromptFilesOption = None,
    messages_file: MessagesFilesOption = None,
    param: ParamsOption = None,
    repetitions: RepetitionsOption = 1,
    evaluator: EvaluatorsOption = None,
    judge_model: JudgeModelOption = None,
    judge_template: JudgeTemplateOption = None,
    judge_template_file: JudgeTemplateFileOption = None,
    judge_choices: JudgeChoicesOption = None,
    judge_param: JudgeParamsOption = None,
    name: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Name of the run.", rich_help_panel=CALLS)
    ] = None,
    priority: PriorityOption = 0,
    interactive: Annotated[
        bool,
        typer.Option(
            "--interactive",
            help="Somebody waits for the results: start this run's jobs first.",
            rich_help_panel=CALLS,
        ),
    ] = False,
    timeout: TimeoutOption = None,
    max_attempts: MaxAttemptsOption = None,
    max_concurrent: MaxConcurrentOption = None,
    on_refusal: OnRefusalOption = "fail",
    option: MoreOption = None,
    check: CheckOption = True,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Show progress, and return when the run is over.")
    ] = False,
    fail_on_error: FailOnErrorOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Submit a run and print its id.

    With --wait it ends with 1 if an item failed or the run did not complete, or if refusals hold all that is
    left.
    """
    calls = read_calls(model, prompt, prompt_file, messages_file, read_options(option or ()))
    evaluators = read_evaluators(
        evaluator, judge_model, judge_template, judge_template_file, judge_choices, judge_param
    )
    with invocation.deployment() as deployment:
        run = Client.over(deployment).submit(
            portion_of(open_dataset(dataset), limit, sample, seed),
            params=read_params("--param", param or ()),
            repetitions=repetitions,
            evaluators=evaluators,
            name=name,
            priority="interactive" if interactive else priority,
            timeout=timeout,
            retry=retry_of(max_attempts),
            max_concurrent=max_concurrent,
            on_refusal=on_refusal,
            check=check,
            **calls,
        )
        conclude_submission(deployment, run, wait=wait, allowed=fail_on_error, as_json=as_json)
