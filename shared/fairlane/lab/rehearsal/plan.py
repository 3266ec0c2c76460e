"""What ``fairlane rehearse`` is to play, from its options: the work of a run, and a guess of the provider."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fairlane.cli.runs.submitting.inputs import open_dataset
from fairlane.client.submitting.submission import build_spec
from fairlane.core.errors import ConfigurationError, TemplateError
from fairlane.datasets.rows import read_rows
from fairlane.model.run import RunSpec
from fairlane.model.tokens import estimate_call
from fairlane.templates.template import Prompt, Template

if TYPE_CHECKING:
    from fairlane.lab.simulator.config import SimulatedModel

SAMPLED_ROWS = 1000  # whose prompts are rendered to see how long they are
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


def work_of_dataset(
    dataset: str, prompts: dict[str, Any], models: Sequence[str], params: Mapping[str, Any], repetitions: int
) -> list[Work]:
    """What a run of this dataset would ask of each model. Raises `SubmissionError` as ``submit`` does."""
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
    sizes = _sizes(spec, sampled)
    jobs = _count_jobs(spec, sampled, rows)
    if not jobs:
        raise typer.BadParameter("the dataset has no row that can be asked", param_hint="FILE")
    return [Work(model, count, *sizes) for model, count in jobs.items()]


def _sizes(spec: RunSpec, rows: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Tokens of a prompt, on average, and those reserved for its answer."""
    prompts = [Prompt(messages, f"prompts[{number}]") for number, messages in enumerate(spec.prompts)]
    estimates = []
    for row in rows:
        for prompt in prompts:
            try:
                estimates.append(estimate_call(prompt.render(row), spec.params))
            except TemplateError:
                continue  # an item that will end as invalid costs no call
    if not estimates:
        return 1, 1
    return max(1, sum(e.input for e in estimates) // len(estimates)), max(1, estimates[0].output)


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


def provider_from_file(path: Path, models: Iterable[str]) -> tuple[dict[str, SimulatedModel], int]:
    """The simulated models that stand for these references, and the file's seed.

    A reference ``openai:fast`` is the table ``[models.fast]``. Raises `ConfigurationError`.
    """
    # It brings a web server along, which no other command needs.
    from fairlane.lab.simulator.config import SimulatorConfig

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
        found[reference] = table
    return found, simulated.seed


def provider_from_options(models: Iterable[str], options: Mapping[str, Any]) -> dict[str, SimulatedModel]:
    """The same guess for every model. Raises `ConfigurationError` naming the option."""
    from pydantic import ValidationError

    from fairlane.lab.simulator.config import SimulatedModel

    given = {name: value for name, value in options.items() if value is not None}
    try:
        guess = SimulatedModel.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = str(first["loc"][0]) if first["loc"] else "provider"
        option, remedy = OPTIONS.get(field, (field, ""))
        problem = str(first["msg"]).replace("Input should be", "must be")
        raise ConfigurationError(option, first.get("input"), problem, remedy) from None
    return dict.fromkeys(models, guess)
