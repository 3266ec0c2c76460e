"""Turns the arguments of ``submit`` into a `RunSpec`, or reports which of them is wrong and how to fix it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar, Unpack

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from fairlane.client.arguments import (
    Messages,
    check_max_concurrent,
    in_our_words,
    is_constant,
    model_field,
    take_call_params,
    take_evaluators,
    take_models,
    take_order,
    take_params,
    take_task_prompts,
    the_one,
)
from fairlane.config.problems import did_you_mean
from fairlane.core.errors import SubmissionError
from fairlane.evaluators.client_side import ClientScorer
from fairlane.model.decision import RetryPolicy
from fairlane.model.evaluators import EvaluatorSpec
from fairlane.model.lane import FUNCTIONS, endpoint_id
from fairlane.model.run import STARTS_LATER, CacheMode, OnRefusal, Rate, RunSpec

PAGE_ROWS = 500
"""Rows a page: what a client holds of a dataset at a time."""

MAX_JOBS = 100_000_000
"""Most jobs a run may have: what is done is a bitmap of them, 12 MB at most."""

MOST_START_S = 30 * 86_400
"""Longest time that a run may wait for its start: what waits stays in Redis."""

Row = TypeVar("Row")

Evaluator: TypeAlias = EvaluatorSpec | ClientScorer | Callable[..., Any]
"""An evaluator, or a function: one of a module that workers import, or a `scorer` of the client."""

_REMEDIES = {
    "name": "Give a text of at most 200 characters, none of them a control character.",
    "repetitions": "Give a whole number from 1 to 10,000.",
    "priority": 'Give a whole number from -100 (last) to 100 (first), or "interactive".',
    "timeout": "Give seconds, more than 0 and at most 86,400.",
    "prompts": "Give 1 to 100 prompts.",
    "models": "Give 1 to 100 models.",
    "bounds": "See Bounds.",
    "order": "See Order.",
    "cache": 'Give "off", "read" or "read_write", and cache_ttl in seconds.',
    "evaluators": "Give at most 50 evaluators, with finite numbers.",
    "retry": "Give RetryPolicy(max_attempts=3, …).",
}


class SubmitOptions(TypedDict, total=False):
    """What `Client.submit` takes beside the dataset. One of ``model``, ``models``, ``task`` and ``output``
    names what runs the items.

    - one of ``prompt`` (a user message), ``messages`` (a chat) and ``prompts`` (several of either): Jinja2
      templates over a row.
    - one of ``model`` and ``models``: ``"<connection>:<model>"``, or a template for it.
    - ``task``: a Python function on the workers, ``"package.module:function"``, which takes the row; ``lane``
      names the lane that it shares with others.
    - ``output``: the row field that holds an output which exists already: nothing is called but judges.
    - ``request``: the row field that holds a whole chat request, sent to the model instead of a prompt.
    - ``params``: parameters of the provider, such as ``max_tokens``; ``repetitions``: calls for each prompt.
    - ``evaluators``: what scores each output, made by `exact_match`, `llm_judge` and the like; ``session`` is
      the row field by which rows form sessions.
    - ``name``; ``priority``: -100 to 100 among the team's runs, or "interactive" for one that a person
      waits for.
    - ``timeout``: longest time for a call in seconds; ``retry``: a `RetryPolicy`.
    - ``max_concurrent``, ``ahead``, ``task_rate``, ``eval_rate``, ``delay``, ``max_duration``,
      ``max_outage``, ``on_refusal``, ``budget_tokens``, ``budget_usd``: see `Bounds`.
    - ``start_in``: seconds from now before which no call of the run starts; ``max_duration`` counts from now.
    - ``run_serially``: ``True``, or the row field that marks items that run first, one at a time;
      ``store_output_as`` and ``conversation``: see `Order`.
    - ``cache``: "off", "read" or "read_write"; ``cache_ttl``: seconds.
    """

    messages: Messages | None
    prompts: Sequence[str | Messages] | None
    model: str | None
    models: Sequence[str] | None
    task: str | None
    lane: str | None
    output: str | None
    request: str | None
    params: Mapping[str, Any] | None
    repetitions: int
    evaluators: Sequence[Evaluator]
    session: str | None
    name: str | None
    priority: int | Literal["interactive"]
    timeout: float | None
    retry: RetryPolicy | None
    max_concurrent: int | None
    ahead: int | None
    task_rate: Rate
    eval_rate: Rate
    delay: float
    start_in: float
    max_duration: float | None
    max_outage: float
    on_refusal: OnRefusal
    budget_tokens: int | None
    budget_usd: float | None
    run_serially: bool | str
    store_output_as: str | None
    conversation: str | None
    cache: CacheMode
    cache_ttl: float | None


class RunOptions(SubmitOptions, total=False):
    """All that says what a run is, beside its dataset."""

    prompt: str | None


_BOUNDS = (
    "max_concurrent",
    "ahead",
    "task_rate",
    "eval_rate",
    "delay",
    "max_duration",
    "max_outage",
    "on_refusal",
    "budget_tokens",
    "budget_usd",
)


def build_spec(*, run: str, team: str, submitted_ms: int, **options: Unpack[RunOptions]) -> RunSpec:
    """The spec of a run without its rows. Raises `SubmissionError` for the first argument that is wrong.

    It has been through JSON, as it will be on its way to the scheduler.
    """
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    check_max_concurrent(given.get("max_concurrent"))
    unknown = sorted(set(given) - RunOptions.__annotations__.keys() - SubmitOptions.__annotations__.keys())
    if unknown:
        near = did_you_mean(unknown[0], ["prompt", *SubmitOptions.__annotations__])
        raise TypeError(f"submit() got an unexpected keyword argument {unknown[0]!r}; {near}".rstrip("; "))
    if isinstance(given.get("name"), str) and not given["name"].strip():
        raise SubmissionError("name", given["name"], "is empty", "Give a name, or leave it out.")
    if not isinstance(given.get("retry", RetryPolicy()), RetryPolicy):
        raise SubmissionError("retry", given["retry"], "is not a RetryPolicy", _REMEDIES["retry"])
    try:
        start = _start(given.get("start_in"), submitted_ms)
        fields: dict[str, Any] = {
            **({"version": STARTS_LATER} if start else {}),
            "run": run,
            "team": team,
            "name": given.get("name", run),
            **_task(given),
            "evaluators": take_evaluators(given.get("evaluators", ())),
            "session_field": given.get("session"),
            **{name: given[name] for name in ("repetitions", "timeout", "retry") if name in given},
            **_priority(given.get("priority", 0)),
            "bounds": {
                **{name: given[name] for name in _BOUNDS if name in given},
                **start,
            },
            "cache": {
                field: given[name]
                for name, field in (("cache", "mode"), ("cache_ttl", "ttl"))
                if name in given
            },
            "rows": 0,
            "page_rows": PAGE_ROWS,
            "short_results": True,
            "submitted_ms": submitted_ms,
        }
        fields["order"] = take_order(given, fields["prompts"])
        spec = RunSpec.model_validate(fields, strict=True)
        spec = RunSpec.model_validate_json(_as_json(spec))
    except ValidationError as error:
        raise in_our_words(error, lambda field: _REMEDIES.get(field, "")) from None
    _check_levels(spec)
    return spec


def _start(start_in: object, submitted_ms: int) -> dict[str, Any]:
    """The moment before which nothing starts."""
    if start_in is None:
        return {}
    if (
        isinstance(start_in, bool)
        or not isinstance(start_in, int | float)
        or not 0 <= start_in <= MOST_START_S
    ):
        remedy = f"Give seconds, from 0 to {MOST_START_S:,}."
        raise SubmissionError("start_in", start_in, "is no time to wait", remedy)
    return {"start_ms": submitted_ms + round(start_in * 1000)}


def _priority(stated: object) -> dict[str, Any]:
    return {"interactive": True} if stated == "interactive" else {"priority": stated}


def _task(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec that define the task of a row."""
    field = the_one({name: given.get(name) for name in ("model", "models", "task", "output")})
    common = {"lane": _lane(given.get("lane")), "params": take_params("params", given.get("params", {}))}
    if field == "output":
        return common | {"output_field": given["output"], "prompts": (), "models": ()}
    if field == "task":
        model = f"{FUNCTIONS}:{given['task']}"
        return common | {"prompts": take_task_prompts([model], *_prompts(given)), "models": (model,)}
    models = take_models(given.get("model"), given.get("models"))
    if not all(model.startswith(f"{FUNCTIONS}:") for model in models):
        take_call_params("params", common["params"])
    if "request" in given:
        the_one({name: given.get(name) for name in ("request", "prompt", "messages", "prompts")})
        return common | {"request_field": given["request"], "prompts": (), "models": models}
    return common | {"prompts": take_task_prompts(models, *_prompts(given)), "models": models}


def _lane(stated: str | None) -> str | None:
    """A lane's name; for an endpoint's URL its host and port."""
    return endpoint_id(stated) if isinstance(stated, str) and "://" in stated else stated


def _prompts(given: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return given.get("prompt"), given.get("messages"), given.get("prompts")


def _check_levels(spec: RunSpec) -> None:
    if spec.session_evals and spec.session_field is None:
        name = spec.session_evals[0].evaluator.name
        problem = f"evaluator {name!r} looks at sessions, and no row field is named that tells them apart"
        raise SubmissionError("session", None, problem, 'Give session="<field>".')
    if not spec.calls_tasks and not spec.evaluators:
        raise SubmissionError(
            "evaluators", (), "there is nothing to do", "Give outputs something that scores them."
        )


def check_rows_may_follow(spec: RunSpec) -> None:
    """Check a run whose rows follow: it can have no evaluators of sessions. Raises `SubmissionError`."""
    if spec.session_evals:
        problem = "looks at sessions, which are distinguished while a whole dataset is uploaded"
        remedy = "Submit the rows themselves, or leave it out."
        raise SubmissionError("evaluators", spec.session_evals[0].name, problem, remedy)


def check_connections(spec: RunSpec, known: Iterable[str]) -> None:
    """Refuse a model or judge whose connection is not among ``known``. Raises `SubmissionError`."""
    names = sorted(known)
    named = [(model_field(spec.models, number), model) for number, model in enumerate(spec.models)]
    named += [
        (f"evaluators[{step.evaluator.name!r}].model", step.model)
        for step in (*spec.evals, *spec.session_evals)
    ]
    for field, model in named:
        connection = model.partition(":")[0].strip()
        if not is_constant(connection) or connection in (FUNCTIONS, *names):
            continue
        listed = f"known connections: {', '.join(names)}" if names else "none is configured"
        remedy = did_you_mean(connection, names) or listed
        raise SubmissionError(
            field, model, f"there is no connection {connection!r}", remedy[0].upper() + remedy[1:]
        )


def bounded_pages(pages: Iterable[list[Row]], spec: RunSpec) -> Iterator[list[Row]]:
    """``pages`` as they are, until the run would have more than `MAX_JOBS` jobs. Raises `SubmissionError`."""
    a_row = spec.cells_per_row * (spec.steps + len(spec.session_evals))
    rows, most = 0, MAX_JOBS // a_row
    for page in pages:
        rows += len(page)
        if rows > most:
            raise SubmissionError(
                "dataset",
                f"more than {most} rows",
                f"with {a_row} jobs a row there would be over {MAX_JOBS:,} jobs",
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
