"""Reads the outputs of records as values of a type: a pydantic model, a dataclass, a list of either."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from fairlane.core.json_answers import JsonProblem, json_in
from fairlane.model.record import Record

Value = TypeVar("Value")

_NO_JSON = "json_invalid"
"""Pydantic's type of the error of a text that is no JSON."""


@dataclass(frozen=True, slots=True)
class Parsed(Generic[Value]):
    """A record, and its output as a value of the wanted type.

    Without a value, ``problem`` says why: the error of the task, or what its output lacks.
    """

    record: Record
    value: Value | None = None
    problem: str | None = None


def parse_outputs(records: Iterable[Record], kind: type[Value]) -> Iterator[Parsed[Value]]:
    """The records with their outputs validated, one in memory at a time.

    ``kind`` is what pydantic validates: a model, a dataclass, a ``TypedDict``, a list of them. An output is
    JSON, alone, in a fenced block, after reasoning, or between prose. Raises what pydantic raises for a type
    that it cannot validate, at once.
    """
    return map(output_parser(kind), records)


def output_parser(kind: type[Value]) -> Callable[[Record], Parsed[Value]]:
    """A function that validates the output of a record: see `parse_outputs`."""
    adapter = TypeAdapter(kind)
    return lambda record: _parsed(record, adapter)


def _parsed(record: Record, adapter: TypeAdapter[Value]) -> Parsed[Value]:
    if record.output is None:
        return Parsed(record, problem=record.error or f"the task is {record.state} and has no output")
    try:
        return Parsed(record, adapter.validate_json(record.output))
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] != _NO_JSON:
            return Parsed(record, problem=_problem(error))
        no_json = _problem(error)
    try:
        return Parsed(record, adapter.validate_json(json.dumps(json_in(record.output))))
    except JsonProblem as problem:
        return Parsed(record, problem=f"{no_json}; {problem}")
    except ValidationError as error:
        return Parsed(record, problem=_problem(error))


def _problem(error: ValidationError) -> str:
    """All errors of the output with their places, without the output's own text."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}" if each["loc"] else each["msg"] for each in found
    )
