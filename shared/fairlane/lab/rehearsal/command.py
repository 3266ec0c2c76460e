"""``fairlane rehearse``: how long a run would take and what it would cost, before anything is paid for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import emit, print_fields, print_table, say, took
from fairlane.cli.runs.submitting.inputs import Asked, prompt_option
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

_provider_option = partial(typer.Option, rich_help_panel="What the provider allows: a guess")
_worker_option = partial(typer.Option, rich_help_panel="Who does it")

ASSUMED_INPUT_TOKENS, ASSUMED_OUTPUT_TOKENS = 200, 256


@app.command()
@with_settings
def rehearse(
    invocation: Invocation,
    *,
    dataset: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="Rows, as for submit; or give --jobs.", show_default=False),
    ] = None,
    asked: Asked,
    jobs: Annotated[
        int | None, prompt_option(metavar="N", min=1, help="Number of calls, instead of FILE.")
    ] = None,
    input_tokens: Annotated[
        int | None,
        prompt_option(
            metavar="N",
            min=1,
            help="Tokens of each prompt, with --jobs.",
            show_default=str(ASSUMED_INPUT_TOKENS),
        ),
    ] = None,
    output_tokens: Annotated[
        float | None,
        prompt_option(
            metavar="N", min=1, help="Mean tokens of an answer.", show_default=str(ASSUMED_OUTPUT_TOKENS)
        ),
    ] = None,
    provider: Annotated[
        Path | None,
        _provider_option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="TOML as for simulate: a \\[models.NAME] table for each model.",
        ),
    ] = None,
    rpm: Annotated[float | None, _provider_option(metavar="N", help="Requests a minute.")] = None,
    tpm: Annotated[float | None, _provider_option(metavar="N", help="Tokens a minute.")] = None,
    concurrency: Annotated[int | None, _provider_option(metavar="N", help="Calls at once.")] = None,
    latency: Annotated[
        float | None, _provider_option(metavar="SECONDS", min=0, help="Median latency of a call.")
    ] = None,
    burst: Annotated[
        float | None, _provider_option(metavar="SECONDS", help="Unused rate that may be spent at once.")
    ] = None,
    shape: Annotated[
        Literal["bucket", "window", "sliding", "second"] | None,
        _provider_option(help="How the provider enforces its limits."),
    ] = None,
    headers: Annotated[
        Literal["none", "retry_after", "ratelimit", "full"] | None,
        _provider_option(help="What the provider's headers report of its limits."),
    ] = None,
    workers: Annotated[int, _worker_option(min=1, max=256, help="Worker processes.")] = 2,
    slots: Annotated[
        int | None, _worker_option(min=1, max=MOST_SLOTS, help="Most concurrent calls of a worker.")
    ] = None,
    seed: Annotated[int, _worker_option(help="The same seed gives the same result.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Predict a run's duration, calls, tokens and 429s in virtual time, without sending anything.

    This runs the real scheduler. It knows the limits in your settings, and detects all others.
    """
    settings = invocation.settings()
    params = asked.params()
    if (dataset is None) == (jobs is None):
        raise typer.BadParameter("give one of FILE and --jobs N")
    if dataset is not None:
        if not asked.model:
            raise typer.BadParameter("give --model MODEL")
        work = work_of_dataset(dataset, asked.prompts(), asked.model, params, asked.repetitions)
    else:
        work = [_counted(name, jobs or 0, input_tokens, params) for name in asked.model or [NO_MODEL]]
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
        "loads": [asdict(each) for each in work],
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
