"""``fairlane rehearse``: how long a run would take and what it would cost, before anything is paid for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import emit, print_fields, print_table, say, took
from fairlane.cli.runs.submitting.assignments import read_params
from fairlane.cli.runs.submitting.inputs import collect_prompts
from fairlane.cli.runs.submitting.options import (
    PROMPTS,
    MessagesFilesOption,
    ModelsOption,
    ParamsOption,
    PromptFilesOption,
    PromptsOption,
    RepetitionsOption,
)
from fairlane.config.sections import MOST_SLOTS
from fairlane.config.settings import Settings
from fairlane.lab.rehearsal.plan import (
    NO_MODEL,
    Work,
    provider_from_file,
    provider_from_options,
    work_of_dataset,
)
from fairlane.lab.rehearsal.process import rehearse_apart
from fairlane.model.tokens import DEFAULT_OUTPUT_TOKENS

app = typer.Typer()

PROVIDER, HANDS = "What the provider allows: a guess", "Who does it"

ASSUMED_INPUT_TOKENS, ASSUMED_OUTPUT_TOKENS = 200, 256


@app.command()
@with_settings
def rehearse(
    invocation: Invocation,
    dataset: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="Rows, as for submit; or give --jobs.", show_default=False),
    ] = None,
    model: ModelsOption = None,
    prompt: PromptsOption = None,
    prompt_file: PromptFilesOption = None,
    messages_file: MessagesFilesOption = None,
    param: ParamsOption = None,
    repetitions: RepetitionsOption = 1,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Number of calls, instead of FILE.", rich_help_panel=PROMPTS),
    ] = None,
    input_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Tokens of each prompt, with --jobs.",
            show_default=str(ASSUMED_INPUT_TOKENS),
            rich_help_panel=PROMPTS,
        ),
    ] = None,
    output_tokens: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Mean tokens of an answer.",
            show_default=str(ASSUMED_OUTPUT_TOKENS),
            rich_help_panel=PROMPTS,
        ),
    ] = None,
    provider: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="TOML as for simulate: a \\[models.NAME] table for each model.",
            rich_help_panel=PROVIDER,
        ),
    ] = None,
    rpm: Annotated[
        float | None, typer.Option(metavar="N", help="Requests a minute.", rich_help_panel=PROVIDER)
    ] = None,
    tpm: Annotated[
        float | None, typer.Option(metavar="N", help="Tokens a minute.", rich_help_panel=PROVIDER)
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Calls at once.", rich_help_panel=PROVIDER)
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Median latency of a call.", rich_help_panel=PROVIDER),
    ] = None,
    burst: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Unused rate that may be spent at once.", rich_help_panel=PROVIDER
        ),
    ] = None,
    shape: Annotated[
        Literal["bucket", "window", "sliding", "second"] | None,
        typer.Option(help="How the provider enforces its limits.", rich_help_panel=PROVIDER),
    ] = None,
    headers: Annotated[
        Literal["none", "retry_after", "ratelimit", "full"] | None,
        typer.Option(help="What the provider's headers report of its limits.", rich_help_panel=PROVIDER),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, max=256, help="Worker processes.", rich_help_panel=HANDS)
    ] = 2,
    slots: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_SLOTS, help="Most concurrent calls of a worker.", rich_help_panel=HANDS),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="The same seed gives the same result.", rich_help_panel=HANDS)
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Predict a run's duration, calls, tokens and 429s in virtual time, without sending anything.

    This runs the real scheduler. It knows the limits in your settings, and detects all others.
    """
    settings = invocation.settings()
    params = read_params("--param", param or ())
    if (dataset is None) == (jobs is None):
        raise typer.BadParameter("give one of FILE and --jobs N")
    if dataset is not None:
        if not model:
            raise typer.BadParameter("give --model MODEL")
        prompts = collect_prompts(prompt or [], prompt_file or [], messages_file or [])
        work = work_of_dataset(dataset, prompts, model, params, repetitions)
    else:
        work = [_counted(name, jobs or 0, input_tokens, params) for name in model or [NO_MODEL]]
    options = {
        "requests_per_minute": rpm,
        "tokens_per_minute": tpm,
        "max_concurrency": concurrency,
        "latency_ms": None if latency is None else latency * 1000,
        "burst_seconds": burst,
        "shape": shape,
        "headers": headers,
        "output_tokens": output_tokens,
    }
    names = [each.model for each in work]
    if provider is not None:
        if given := sorted(name for name, value in options.items() if value is not None):
            raise typer.BadParameter(
                f"--provider says everything of the provider; leave out {', '.join(given)}"
            )
        models, _ = provider_from_file(provider, names)
    else:
        if rpm is None and tpm is None and concurrency is None:
            raise typer.BadParameter(
                "say what the provider allows: --rpm, --tpm, --concurrency, or --provider FILE"
            )
        if output_tokens is None:
            options["output_tokens"] = min(ASSUMED_OUTPUT_TOKENS, *(each.max_tokens for each in work))
        models = provider_from_options(names, {"latency_sigma": 0.5} | options)
    scenario = {
        "name": "rehearsal",
        "models": {name: guess.model_dump(mode="json") for name, guess in models.items()},
        "loads": [_load(each) for each in work],
        "lanes": _known_limits(settings, names),
        "workers": workers,
        "slots": slots or settings.worker.slots,
        "minutes": None,
        "warm_up_minutes": 0,
        "seed": seed,
    }
    measure = rehearse_apart(scenario, show=not as_json)
    emit(measure, lambda: _print(measure, work), as_json=as_json)


def _counted(model: str, jobs: int, input_tokens: int | None, params: Mapping[str, Any]) -> Work:
    limit = params.get("max_tokens")
    most = limit if isinstance(limit, int) and limit > 0 else DEFAULT_OUTPUT_TOKENS
    return Work(model, jobs, input_tokens or ASSUMED_INPUT_TOKENS, most)


def _load(work: Work) -> dict[str, Any]:
    return {
        "model": work.model,
        "jobs": work.jobs,
        "input_tokens": work.input_tokens,
        "max_tokens": work.max_tokens,
    }


def _known_limits(settings: Settings, models: list[str]) -> dict[str, Any]:
    """What the settings say of these models' lanes."""
    known = {}
    for reference in models:
        connection = settings.connections.get(reference.partition(":")[0])
        limits = settings.limits_of(settings.lane_of(reference) if connection else reference)
        if limits is not None:
            known[reference] = limits.model_dump(exclude_unset=True)
    return known


def _print(measure: Mapping[str, Any], work: list[Work]) -> None:
    print_fields(_summary(measure))
    if len(work) > 1:
        print_table(("model", ">jobs", ">calls", ">429", ">of the limit"), _lanes(measure, work))
    if not measure["complete"]:
        say("it was not over by then: the provider allows too little for so many jobs")


def _summary(measure: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield "duration", took(measure["duration_s"] * 1000) + ("" if measure["complete"] else ", and not over")
    yield "answers", f"{measure['succeeded']:,}"
    yield "calls", f"{measure['calls']:,}"
    yield "of them 429", f"{measure['rejected']:,}"
    yield "input tokens", f"{measure['input_tokens']:,}"
    yield "output tokens", f"{measure['output_tokens']:,}"
    if len(measure["lanes"]) == 1 and (used := measure["lanes"][0]["utilisation"]) is not None:
        yield "of the limit", f"{used:.1%}"


def _lanes(measure: Mapping[str, Any], work: list[Work]) -> Iterator[tuple[object, ...]]:
    jobs = {each.model: each.jobs for each in work}
    for lane in measure["lanes"]:
        used = lane["utilisation"]
        share = "" if used is None else f"{used:.1%}"
        yield lane["model"], f"{jobs[lane['model']]:,}", f"{lane['calls']:,}", f"{lane['rejected']:,}", share
