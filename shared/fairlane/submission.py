"""Turns the arguments of ``submit`` into a `RunSpec`, or says which of them is wrong and how to mend it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from fairlane.arguments import (
    Messages,
    in_our_words,
    is_constant,
    model_field,
    take_evaluators,
    take_models,
    take_params,
    take_prompts,
)
from fairlane.configuration.problems import did_you_mean
from fairlane.errors import SubmissionError
from fairlane.evaluators.spec import EvaluatorSpec
from fairlane.retry import RetryPolicy
from fairlane.run import RunSpec

PAGE_ROWS = 500
"""Rows a page: what a client holds of a dataset at a time."""

MAX_JOBS = 100_000_000
"""Most jobs a run may have: what is done is a bitmap of them, 12 MB at most."""

Row = TypeVar("Row")

_REMEDIES = {
    "name": "Give a text of at most 200 characters.",
    "repetitions": "Give a whole number from 1 to 10,000.",
    "priority": "Give a whole number from -100 (last) to 100 (first).",
    "timeout": "Give seconds, more than 0 and at most 86,400.",
    "prompts": "Give 1 to 100 prompts.",
    "models": "Give 1 to 100 models.",
    "evaluators": "Give at most 50 evaluators, with finite numbers.",
    "retry": "Give RetryPolicy(max_attempts=3, …).",
}


def build_spec(
    *,
    run: str,
    team: str,
    submitted_ms: int,
    prompt: str | None = None,
    messages: Messages | None = None,
    prompts: Sequence[str | Messages] | None = None,
    model: str | None = None,
    models: Sequence[str] | None = None,
    params: Mapping[str, Any] | None = None,
    repetitions: int = 1,
    evaluators: Sequence[EvaluatorSpec] = (),
    name: str | None = None,
    priority: int = 0,
    timeout: float = 120.0,
    retry: RetryPolicy | None = None,
) -> RunSpec:
    """The spec of a run without its rows. Raises `SubmissionError` for the first argument that is wrong.

    It has been through JSON, as it will be on its way to the scheduler.
    """
    if not (retry is None or isinstance(retry, RetryPolicy)):
        raise SubmissionError("retry", retry, "is not a RetryPolicy", _REMEDIES["retry"])
    try:
        spec = RunSpec.model_validate(
            {
                "run": run,
                "team": team,
                "name": run if name is None else name,
                "prompts": take_prompts(prompt, messages, prompts),
                "models": take_models(model, models),
                "params": take_params("params", {} if params is None else params),
                "repetitions": repetitions,
                "evaluators": take_evaluators(evaluators),
                "priority": priority,
                "timeout": timeout,
                "retry": retry or RetryPolicy(),
                "rows": 0,
                "page_rows": PAGE_ROWS,
                "submitted_ms": submitted_ms,
            },
            strict=True,
        )
        return RunSpec.model_validate_json(_as_json(spec))
    except ValidationError as error:
        raise in_our_words(error, lambda field: _REMEDIES.get(field, "")) from None


def check_connections(spec: RunSpec, known: Iterable[str]) -> None:
    """Refuse a model or judge whose connection is not among ``known``. Raises `SubmissionError`."""
    names = sorted(known)
    named = [(model_field(spec.models, number), model) for number, model in enumerate(spec.models)]
    named += [(f"evaluators[{judge.name!r}].model", judge.model) for judge in spec.judges]
    for field, model in named:
        connection = model.partition(":")[0].strip()
        if not is_constant(connection) or connection in names:
            continue
        listed = f"known connections: {', '.join(names)}" if names else "none is configured"
        remedy = did_you_mean(connection, names) or listed
        raise SubmissionError(
            field, model, f"there is no connection {connection!r}", remedy[0].upper() + remedy[1:]
        )


def bounded_pages(pages: Iterable[list[Row]], spec: RunSpec) -> Iterator[list[Row]]:
    """``pages`` as they are, until the run would have more than `MAX_JOBS` jobs. Raises `SubmissionError`."""
    rows, most = 0, MAX_JOBS // (spec.cells_per_row * spec.steps)
    for page in pages:
        rows += len(page)
        if rows > most:
            raise SubmissionError(
                "dataset",
                f"more than {most} rows",
                f"with {spec.cells_per_row * spec.steps} jobs a row there would be over {MAX_JOBS:,} jobs",
                "Split it into several runs.",
            )
        yield page


def _as_json(spec: RunSpec) -> str:
    try:
        return spec.model_dump_json()
    except PydanticSerializationError as error:
        field = next(name for name in RunSpec.model_fields if not _dumps(spec, name))
        remedy = "Texts must be Unicode without lone surrogates."
        raise SubmissionError(field, getattr(spec, field), f"is not JSON: {error}", remedy) from None


def _dumps(spec: RunSpec, field: str) -> bool:
    try:
        spec.model_dump_json(include={field})
    except PydanticSerializationError:
        return False
    return True
