"""Assertions that a row makes about its own output: which of them are met, and their weighted share."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from fairlane.evaluators.patterns import SearchError, search
from fairlane.evaluators.schema import conforms, equal, schema_problem

NOT = "not-"
MAX_JSON_STARTS = 1000
"""How many places of an output are tried as the beginning of a JSON value."""


class AssertionsError(Exception):
    """What a row holds are no assertions that can be checked; the message says why."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One assertion and whether the output meets it. ``metric`` names the figure that it counts for."""

    type: str
    value: Any
    weight: float
    met: bool
    metric: str | None = None


def share_met(assertions: object, output: str) -> float:
    """The weighted share of ``assertions`` that ``output`` meets, 0 to 1; without any weight it is 1.

    Each is ``{"type", "value", "weight", "metric"}``, all but the type optional. Raises `AssertionsError`.
    """
    checked = check(assertions, output)
    total = math.fsum(each.weight for each in checked)
    if not total or all(each.met for each in checked if each.weight):
        return 1.0
    return math.fsum(each.weight for each in checked if each.met) / total


def check(assertions: object, output: str) -> tuple[Checked, ...]:
    """Every assertion of a list, in order. Raises `AssertionsError` where one cannot be checked."""
    if not isinstance(assertions, Sequence) or isinstance(assertions, str):
        raise AssertionsError("the row's assertions are no list")
    return tuple(_check(number, each, output) for number, each in enumerate(assertions, start=1))


def value_problem(kind: str, value: object) -> str | None:
    """Why an assertion ``kind`` cannot have this value, or is not known at all; ``None`` where it can."""
    name = kind.removeprefix(NOT)
    if name not in TYPES:
        return "there is no such assertion"
    if name in _JSON_TYPES:
        return None if value is None else schema_problem(value)
    if value is None:
        return "it has no value"
    if name in _LIST_TYPES:
        return None if _texts(value) else "its value is no list of texts"
    if name == "equals":
        return None
    if isinstance(value, Mapping | list):
        return "its value is no text"
    if value == "":
        return "its value is empty"
    if name == "regex":
        try:
            search(_text(value), "")
        except SearchError as error:
            return str(error)
    return None


def _check(number: int, assertion: object, output: str) -> Checked:
    if not isinstance(assertion, Mapping) or not isinstance(kind := assertion.get("type"), str):
        raise AssertionsError(f"assertion {number} has no type")
    value = assertion.get("value")
    if problem := value_problem(kind, value):
        raise AssertionsError(f"assertion {number} ({kind}): {problem}")
    weight = assertion.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
        raise AssertionsError(f"assertion {number} ({kind}): its weight is no number from 0 on")
    try:
        met = TYPES[kind.removeprefix(NOT)](output, value)
    except SearchError as error:
        raise AssertionsError(f"assertion {number} ({kind}): {error}") from None
    metric = assertion.get("metric")
    return Checked(
        kind, value, float(weight), met != kind.startswith(NOT), metric if isinstance(metric, str) else None
    )


def _equals(output: str, value: Any) -> bool:
    if isinstance(value, Mapping | list):
        return any(equal(found, value) for found in _whole(output))
    return output == _text(value)


def _contains(output: str, value: Any) -> bool:
    return _text(value) in output


def _icontains(output: str, value: Any) -> bool:
    return _text(value).casefold() in output.casefold()


def _contains_all(output: str, value: Any) -> bool:
    return all(text in output for text in _texts(value))


def _contains_any(output: str, value: Any) -> bool:
    return any(text in output for text in _texts(value))


def _icontains_all(output: str, value: Any) -> bool:
    folded = output.casefold()
    return all(text.casefold() in folded for text in _texts(value))


def _icontains_any(output: str, value: Any) -> bool:
    folded = output.casefold()
    return any(text.casefold() in folded for text in _texts(value))


def _starts_with(output: str, value: Any) -> bool:
    return output.startswith(_text(value))


def _regex(output: str, value: Any) -> bool:
    return search(_text(value), output) is not None


def _is_json(output: str, schema: Any) -> bool:
    return any(schema is None or conforms(found, schema) for found in _whole(output))


def _contains_json(output: str, schema: Any) -> bool:
    return any(schema is None or conforms(found, schema) for found in _within(output))


TYPES: Mapping[str, Callable[[str, Any], bool]] = {
    "equals": _equals,
    "contains": _contains,
    "icontains": _icontains,
    "contains-all": _contains_all,
    "contains-any": _contains_any,
    "icontains-all": _icontains_all,
    "icontains-any": _icontains_any,
    "starts-with": _starts_with,
    "regex": _regex,
    "is-json": _is_json,
    "contains-json": _contains_json,
}
"""What each assertion asks of an output; ``not-`` in front asks for the opposite."""

_JSON_TYPES = frozenset(("is-json", "contains-json"))
_LIST_TYPES = frozenset(("contains-all", "contains-any", "icontains-all", "icontains-any"))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else json.dumps(value, ensure_ascii=False)


def _texts(value: Any) -> list[str]:
    """A list of texts, which may be written as one with commas."""
    if isinstance(value, str):
        return [text for part in value.split(",") if (text := part.strip())]
    if isinstance(value, Sequence) and not any(isinstance(each, Mapping | list) for each in value):
        return [_text(each) for each in value]
    return []


def _whole(output: str) -> Iterator[Any]:
    """The JSON value that the output is, if it is one."""
    try:
        yield json.loads(output, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return


def _within(output: str) -> Iterator[Any]:
    """The JSON objects and arrays in a text, from left to right, none within another."""
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    start = -1
    for _ in range(MAX_JSON_STARTS):
        found = [at for mark in "{[" if (at := output.find(mark, start + 1)) >= 0]
        if not found:
            return
        start = min(found)
        try:
            value, end = decoder.raw_decode(output, start)
        except (ValueError, RecursionError):
            continue
        yield value
        start = end - 1


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
