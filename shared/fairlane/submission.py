"""Turns the arguments of ``submit`` into a `RunSpec`, or says which of them is wrong and how to mend it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from fairlane.configuration.problems import did_you_mean
from fairlane.errors import SubmissionError, TemplateError
from fairlane.evaluators.spec import EvaluatorSpec, Judge
from fairlane.lane import split_model
from fairlane.prompts import compile_template
from fairlane.retry import RetryPolicy
from fairlane.run import Message, RunSpec

PAGE_ROWS = 500
"""Rows a page: what a client holds of a dataset at a time."""

MAX_JOBS = 100_000_000
"""Most jobs a run may have: what is done is a bitmap of them, 12 MB at most."""

Messages: TypeAlias = Sequence[Mapping[str, str]]
Row = TypeVar("Row")

_EVALUATOR: TypeAdapter[EvaluatorSpec] = TypeAdapter(EvaluatorSpec)

_OWN_PARAMS = {
    "model": "Give it as model=.",
    "messages": "Give them as messages=.",
    "stream": "Set stream on the connection.",
}

_MESSAGE_REMEDY = 'A message is {"role": "user", "content": "…"}.'

_REMEDIES = {
    "name": "Give a text of at most 200 characters.",
    "repetitions": "Give a whole number from 1 to 10,000.",
    "priority": "Give a whole number from -100 (last) to 100 (first).",
    "timeout": "Give seconds, more than 0 and at most 86,400.",
    "prompts": "Give 1 to 100 prompts.",
    "models": "Give 1 to 100 models.",
    "evaluators": "Give at most 50 evaluators.",
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
                "prompts": _prompts(prompt, messages, prompts),
                "models": _models(model, models),
                "params": _params("params", {} if params is None else params),
                "repetitions": repetitions,
                "evaluators": _evaluators(evaluators),
                "priority": priority,
                "timeout": timeout,
                "retry": retry or RetryPolicy(),
                "rows": 0,
                "page_rows": PAGE_ROWS,
                "submitted_ms": submitted_ms,
            },
            strict=True,
        )
        return RunSpec.model_validate_json(spec.model_dump_json())
    except ValidationError as error:
        raise _in_our_words(error) from None


def check_connections(spec: RunSpec, known: Iterable[str]) -> None:
    """Refuse a model or judge whose connection is not among ``known``. Raises `SubmissionError`."""
    names = sorted(known)
    named = [(_model_field(spec.models, number), model) for number, model in enumerate(spec.models)]
    named += [(f"evaluators[{judge.name!r}].model", judge.model) for judge in spec.judges]
    for field, model in named:
        connection = model.partition(":")[0].strip()
        if not _is_constant(connection) or connection in names:
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


def _the_one(given: Mapping[str, object]) -> str:
    """The name of the one argument that was given."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        first, *others = given
        alternatives = f"{', '.join([first, *others[:-1]])} or {others[-1]}"
        problem = "more than one was given" if names else "is missing"
        raise SubmissionError(
            " and ".join(names) or first, names, problem, f"Give exactly one of {alternatives}."
        )
    return names[0]


def _prompts(
    prompt: str | None, messages: Messages | None, prompts: Sequence[str | Messages] | None
) -> tuple[tuple[Message, ...], ...]:
    field = _the_one({"prompt": prompt, "messages": messages, "prompts": prompts})
    if prompt is not None:
        return (_prompt(field, _text(field, prompt)),)
    if messages is not None:
        return (_prompt(field, _list(field, messages, "messages")),)
    listed = _list(field, prompts, "prompts")
    return tuple(_prompt(f"{field}[{number}]", each) for number, each in enumerate(listed))


def _prompt(field: str, prompt: object) -> tuple[Message, ...]:
    """A text as one user message, or a list of messages."""
    if isinstance(prompt, str):
        if not prompt.strip():
            raise SubmissionError(field, prompt, "is empty", "Give the text to send.")
        checked = _to_message(field, {"role": "user", "content": prompt})
        _check_template(field, prompt)
        return (checked,)
    listed = _list(field, prompt, "messages")
    if not listed:
        raise SubmissionError(field, prompt, "has no messages", _MESSAGE_REMEDY)
    return tuple(_message(f"{field}[{number}]", each) for number, each in enumerate(listed))


def _message(field: str, message: object) -> Message:
    if isinstance(message, Message):
        message = message.model_dump()
    if not isinstance(message, Mapping):
        raise SubmissionError(field, message, "is no message", _MESSAGE_REMEDY)
    checked = _to_message(field, dict(message))
    _check_template(f"{field}.content", checked.content)
    return checked


def _models(model: str | None, models: Sequence[str] | None) -> tuple[str, ...]:
    field = _the_one({"model": model, "models": models})
    listed = (model,) if model is not None else tuple(_list(field, models, "models"))
    for number, each in enumerate(listed):
        _check_model(_model_field(listed, number) if model is None else field, each, template=True)
    return listed


def _model_field(models: Sequence[str], number: int) -> str:
    return "model" if len(models) == 1 else f"models[{number}]"


def _check_model(field: str, model: object, *, template: bool) -> None:
    text = _text(field, model)
    if not _is_constant(text):
        if not template:
            raise SubmissionError(field, model, "a judge's model cannot be a template", "Name one model.")
        _check_template(field, text)
        return
    try:
        split_model(text)
    except ValueError:
        remedy = 'Write "<connection>:<model>", like "openai:gpt-4o".'
        raise SubmissionError(field, model, "names no connection and model", remedy) from None


def _evaluators(evaluators: object) -> tuple[EvaluatorSpec, ...]:
    listed = _list("evaluators", evaluators, "evaluators")
    names: set[str] = set()
    for number, each in enumerate(listed):
        try:
            _EVALUATOR.validate_python(each, strict=True)
        except ValidationError:
            remedy = "Use exact_match(…), llm_judge(…) and the like."
            raise SubmissionError(f"evaluators[{number}]", each, "is no evaluator", remedy) from None
        if each.name in names:
            raise SubmissionError(
                f"evaluators[{number}].name",
                each.name,
                "is taken by another evaluator",
                'Give it a name="…".',
            )
        names.add(each.name)
        if isinstance(each, Judge):
            listed[number] = _judge(f"evaluators[{each.name!r}]", each)
    return tuple(listed)


def _judge(field: str, judge: Judge) -> Judge:
    _check_model(f"{field}.model", judge.model, template=False)
    _check_template(f"{field}.template", judge.template)
    return judge.model_copy(update={"params": _params(f"{field}.params", judge.params)})


def _params(field: str, params: object) -> dict[str, Any]:
    """A copy of the parameters as JSON will carry them."""
    if not isinstance(params, Mapping):
        raise SubmissionError(
            field, params, "is not a dict", 'Give parameters by name, like {"max_tokens": 64}.'
        )
    checked = {}
    for name, value in params.items():
        if not isinstance(name, str):
            raise SubmissionError(field, name, "has a name that is no text", "Use texts as names.")
        if name in _OWN_PARAMS:
            raise SubmissionError(f"{field}[{name!r}]", value, "is not a parameter", _OWN_PARAMS[name])
        try:
            text = json.dumps({name: value}, allow_nan=False, ensure_ascii=False)
            text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            remedy = "Use texts, finite numbers, booleans, None, lists and dicts."
            raise SubmissionError(f"{field}[{name!r}]", value, f"is not JSON: {error}", remedy) from None
        checked.update(json.loads(text))
    return checked


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise SubmissionError(field, value, f"is a {type(value).__name__}, not a text", "Give a str.")
    return value


def _list(field: str, value: object, of: str) -> list[Any]:
    if isinstance(value, (str, bytes, Mapping, BaseModel)) or not isinstance(value, Iterable):
        raise SubmissionError(field, value, f"is a {type(value).__name__}", f"Give a list of {of}.")
    return list(value)


def _is_constant(text: str) -> bool:
    return not any(mark in text for mark in ("{{", "{%", "{#"))


def _check_template(field: str, text: str) -> None:
    try:
        compile_template(field, text)
    except TemplateError as error:
        problem = f"is no template: {str(error).removeprefix(f'{field}: ')}"
        raise SubmissionError(field, text, problem, "Correct its Jinja2 syntax.") from None


def _to_message(field: str, data: dict[str, Any]) -> Message:
    try:
        return Message.model_validate(data, strict=True)
    except ValidationError as error:
        raise _in_our_words(error, _MESSAGE_REMEDY, field) from None


def _in_our_words(error: ValidationError, remedy: str = "", inside: str = "") -> SubmissionError:
    """The first error of a model, named after the argument it is about."""
    detail = error.errors(include_url=False, include_context=False)[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
    problem = detail["msg"].replace("Input should be", "must be").replace("Extra inputs are", "is")
    value = None if detail["type"] == "missing" else detail["input"]
    return SubmissionError(
        f"{inside}{path}".lstrip("."), value, problem, remedy or _REMEDIES.get(str(detail["loc"][0]), "")
    )
