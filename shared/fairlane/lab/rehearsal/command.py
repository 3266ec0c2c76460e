"""``fairlane rehearse``: predicts how long a run takes and what it costs, before it is submitted."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fairlane.cli.failures import terminable
from fairlane.cli.invocation import Invocation, JsonOption, existing_file, with_settings
from fairlane.cli.output import emit, print_fields, print_table, say
from fairlane.cli.runs.submitting.inputs import TaskOptions, open_dataset, prompt_option
from fairlane.client.submitting.submission import build_spec
from fairlane.config.sections import MOST_SLOTS
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError, TemplateError
from fairlane.core.figures import percent, took
from fairlane.core.section import first_flaw
from fairlane.datasets.rows import read_rows
from fairlane.lab.rehearsal.figures.measure import measure
from fairlane.lab.rehearsal.recording import backend, quiet, record
from fairlane.lab.rehearsal.scenario import Scenario
from fairlane.lab.simulator.config import MOST_COUNT, MOST_SEED, MOST_TOKENS, SimulatedModel, SimulatorConfig
from fairlane.model.run import RunSpec
from fairlane.model.tokens import DEFAULT_OUTPUT_TOKENS, estimate_call
from fairlane.templates.template import Prompt, Template

app = typer.Typer()

_provider_option = partial(typer.Option, rich_help_panel="What the provider allows: a guess")
_worker_option = partial(typer.Option, rich_help_panel="Who does it")

ASSUMED_INPUT_TOKENS, ASSUMED_OUTPUT_TOKENS = 200, 256
SAMPLED_ROWS = 1000  # rows whose prompts are rendered to measure their length
NO_MODEL = "model"
OPTIONS = {
    "requests_per_minute": ("--rpm", "Leave it out where requests are not limited."),
    "tokens_per_minute": ("--tpm", "Leave it out where tokens are not limited."),
    "max_concurrency": ("--concurrency", "Leave it out where calls at once are not limited."),
    "burst_seconds": ("--burst", "Give seconds, more than 0 and at most 3,600."),
    "latency_ms": ("--latency", "Give seconds."),
    "output_tokens": ("--output-tokens", "Give 1 or more."),
}


@dataclass(frozen=True, slots=True)
class Work:
    """Jobs on one model, and the tokens of each."""

    model: str
    jobs: int
    input_tokens: int
    max_tokens: int


@app.command()
@with_settings
def rehearse(
    invocation: Invocation,
    *,
    dataset: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="Rows, as for submit; or give --jobs.", show_default=False),
    ] = None,
    task_options: TaskOptions,
    jobs: Annotated[
        int | None,
        prompt_option(metavar="N", min=1, max=MOST_COUNT, help="Number of calls, instead of FILE."),
    ] = None,
    input_tokens: Annotated[
        int | None,
        prompt_option(
            metavar="N",
            min=1,
            max=MOST_TOKENS,
            help="Tokens of each prompt, with --jobs.",
            show_default=str(ASSUMED_INPUT_TOKENS),
        ),
    ] = None,
    output_tokens: Annotated[
        float | None,
        prompt_option(
            metavar="N",
            min=1,
            max=MOST_TOKENS,
            help="Mean tokens of an answer.",
            show_default=str(ASSUMED_OUTPUT_TOKENS),
        ),
    ] = None,
    provider: Annotated[
        Path | None,
        _provider_option(
            metavar="FILE",
            callback=existing_file,
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
    seed: Annotated[
        int, _worker_option(min=-MOST_SEED, max=MOST_SEED, help="The same seed gives the same result.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Predict a run's duration, calls, tokens and 429s in virtual time, without sending anything.

    This runs the real scheduler. It knows the limits in your settings, and detects all others.
    """
    settings = invocation.settings()
    params = task_options.params()
    if (dataset is None) == (jobs is None):
        raise typer.BadParameter("give one of FILE and --jobs N")
    if repeated := [name for name, count in Counter(task_options.model).items() if count > 1]:
        raise typer.BadParameter(f"--model {repeated[0]} is given twice")
    if dataset is not None and input_tokens is not None:
        raise typer.BadParameter("the prompts of FILE have tokens of their own: leave out --input-tokens")
    if jobs is not None and (task_options.repetitions > 1 or task_options.prompts(optional=True)):
        raise typer.BadParameter("--jobs says how many calls there are: leave out prompts and --repetitions")
    if dataset is not None:
        if not task_options.model:
            raise typer.BadParameter("give --model MODEL")
        work = _work_of_dataset(
            dataset, task_options.prompts(), task_options.model, params, task_options.repetitions
        )
    else:
        work = [_counted(name, jobs or 0, input_tokens, params) for name in task_options.model or [NO_MODEL]]
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
        models = _provider_from_file(provider, names)
    else:
        if rpm is None and tpm is None and concurrency is None:
            raise typer.BadParameter(
                "say what the provider allows: --rpm, --tpm, --concurrency, or --provider FILE"
            )
        if output_tokens is None:
            options["output_tokens"] = min(ASSUMED_OUTPUT_TOKENS, *(each.max_tokens for each in work))
        models = _provider_from_options(names, {"latency_sigma": 0.5} | options)
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
    figures = _play(scenario, show=not as_json)
    emit(figures, lambda: _print(figures, work), as_json=as_json)


def _work_of_dataset(
    dataset: str, prompts: dict[str, Any], models: Sequence[str], params: Mapping[str, Any], repetitions: int
) -> list[Work]:
    """The jobs and tokens of a run of this dataset, by model. Raises `SubmissionError` as ``submit`` does."""
    spec = build_spec(
        "rehearsal",
        "rehearsal",
        0,
        **prompts,
        models=models,
        params=params,
        repetitions=repetitions,
    )
    rows = read_rows(open_dataset(dataset))
    sampled = list(islice(rows, SAMPLED_ROWS))
    sizes, share = _sizes(spec, sampled)
    counted = _count_jobs(spec, sampled, rows)
    jobs = {model: found for model, count in counted.items() if (found := round(share * count))}
    if not jobs:
        raise typer.BadParameter("the dataset has no row that can be asked", param_hint="FILE")
    return [Work(model, count, *sizes) for model, count in jobs.items()]


def _sizes(spec: RunSpec, rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, int], float]:
    """The average tokens of a prompt and those reserved for its answer; the share that can be rendered."""
    prompts = [Prompt(messages, f"prompts[{number}]") for number, messages in enumerate(spec.prompts)]
    estimates = []
    for row in rows:
        for prompt in prompts:
            try:
                estimates.append(estimate_call(prompt.render(row), spec.params))
            except TemplateError:
                continue  # an item that will end as invalid costs no call
    if not estimates:
        return (1, 1), 0.0
    average = sum(each.input for each in estimates) // len(estimates)
    return (max(1, average), max(1, estimates[0].output)), len(estimates) / (len(rows) * len(prompts))


def _count_jobs(
    spec: RunSpec, sampled: Sequence[Mapping[str, Any]], rest: Iterable[Mapping[str, Any]]
) -> Counter[str]:
    models = [Template(f"models[{number}]", model) for number, model in enumerate(spec.models)]
    cells = len(spec.prompts) * spec.repetitions
    jobs: Counter[str] = Counter()
    for rows in (sampled, rest):
        for row in rows:
            for model in models:
                try:
                    jobs[model.render(row).strip()] += cells
                except TemplateError:
                    continue
    return jobs


def _provider_from_file(path: Path, models: Iterable[str]) -> dict[str, SimulatedModel]:
    """The simulated models that stand for these references.

    A reference ``openai:fast`` is the table ``[models.fast]``. Raises `ConfigurationError`.
    """
    simulated = SimulatorConfig.from_toml(path)
    found = {}
    for reference in models:
        name = reference.partition(":")[2] or reference
        only = len(simulated.models) == 1 and reference == NO_MODEL
        table = next(iter(simulated.models.values())) if only else simulated.models.get(name)
        if table is None:
            raise ConfigurationError(
                f"models.{name}",
                reference,
                f"{path} does not say what this model allows",
                f"Add a [models.{name}] table; there are: {', '.join(simulated.models)}.",
            )
        if table.status_always is not None:
            raise ConfigurationError(
                f"models.{name}.status_always",
                table.status_always,
                "a model that answers no call has nothing to rehearse",
                "Leave it out; `fairlane simulate` serves it to a real run.",
            )
        found[reference] = table
    return found


def _provider_from_options(models: Iterable[str], options: Mapping[str, Any]) -> dict[str, SimulatedModel]:
    """The same simulated model, from the options, for every model. Raises `ConfigurationError`."""
    given = {name: value for name, value in options.items() if value is not None}
    try:
        guess = SimulatedModel.model_validate(given)
    except ValidationError as error:
        field, value, problem = first_flaw(error)
        option, remedy = OPTIONS.get(field.partition(".")[0], (field or "provider", ""))
        raise ConfigurationError(option, value, problem, remedy) from None
    return dict.fromkeys(models, guess)


def _counted(model: str, jobs: int, input_tokens: int | None, params: Mapping[str, Any]) -> Work:
    limit = params.get("max_tokens")
    most = limit if isinstance(limit, int) and limit > 0 else DEFAULT_OUTPUT_TOKENS
    return Work(model, jobs, input_tokens or ASSUMED_INPUT_TOKENS, most)


def _known_limits(settings: Settings, models: list[str]) -> dict[str, Any]:
    """The configured limits of these models' lanes. Prints a caution for models that share one."""
    known, lanes = {}, dict[str, str]()
    for reference in models:
        try:
            lane = settings.lane_of(reference)
        except (KeyError, ValueError):
            lane = reference
        if (other := lanes.setdefault(lane, reference)) != reference:
            say(f"caution: {other} and {reference} share the lane {lane}; here each has all of its limit")
        if (limits := settings.limits_of(lane)) is not None:
            known[reference] = limits.model_dump(exclude_unset=True)
    return known


def _play(given: Mapping[str, Any], *, show: bool) -> dict[str, Any]:
    """The figures of a scenario. ``show`` draws a bar on standard error while it plays.

    Raises `ConfigurationError`, and `LocalStackError` where no Redis can be had.
    """
    try:
        scenario = Scenario.model_validate(given)
    except ValidationError as error:
        field, value, problem = first_flaw(error)
        raise ConfigurationError(field or "scenario", value, problem) from None
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True, quiet=not show)
    shown = Progress(*columns, console=console, transient=True, disable=not (show and console.is_terminal))
    with terminable(), quiet(), backend() as redis, shown as bar:
        task = bar.add_task("", total=None)

        def tell(seconds: float, done: int, jobs: int) -> None:
            passed = took(seconds * 1000)
            bar.update(task, total=jobs, completed=done, description=f"{passed} rehearsed")

        return measure(record(scenario, redis, tell)).model_dump(mode="json")


def _print(figures: Mapping[str, Any], work: list[Work]) -> None:
    print_fields(_summary(figures))
    if len(work) > 1:
        print_table(("model", ">jobs", ">calls", ">429", ">of the limit"), _lanes(figures, work))
    if not figures["complete"]:
        say("it was not over by then: the provider allows too little for so many jobs")
    elif lost := sum(each.jobs for each in work) - figures["succeeded"]:
        say(f"{lost:,} jobs end without an answer: the provider rejects them, or their prompts are too long")


def _summary(figures: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield "duration", took(figures["duration_s"] * 1000) + ("" if figures["complete"] else ", and not over")
    yield "answers", f"{figures['succeeded']:,}"
    yield "calls", f"{figures['calls']:,}"
    yield "of them 429", f"{figures['rejected']:,}"
    yield "input tokens", f"{figures['input_tokens']:,}"
    yield "output tokens", f"{figures['output_tokens']:,}"
    if len(figures["lanes"]) == 1 and (used := figures["lanes"][0]["utilisation"]) is not None:
        yield "of the limit", f"{percent(used, places=1)}%"


def _lanes(figures: Mapping[str, Any], work: list[Work]) -> Iterator[tuple[object, ...]]:
    jobs = {each.model: each.jobs for each in work}
    for lane in figures["lanes"]:
        used = lane["utilisation"]
        share = "" if used is None else f"{percent(used, places=1)}%"
        yield lane["model"], f"{jobs[lane['model']]:,}", f"{lane['calls']:,}", f"{lane['rejected']:,}", share
