"""Computes the scores of pure evaluators from an output and its row."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, assert_never

from fairlane.core.json_answers import json_in
from fairlane.evaluators.assertions import AssertionsError, share_met
from fairlane.evaluators.numbers import exact, last_number, marked_answer, numbers_in
from fairlane.evaluators.patterns import SearchError, compile_pattern, search
from fairlane.model.evaluators import (
    Assertions,
    Contains,
    ExactMatch,
    JsonValid,
    NumericMatch,
    PureSpec,
    Regex,
)

SHOWN = 80
"""Characters of a field that a reason quotes."""


@dataclass(frozen=True, slots=True)
class Score:
    """A score, or ``None`` and the reason."""

    value: float | None
    error: str | None = None


def score(spec: PureSpec, output: str, row: Mapping[str, Any]) -> Score:
    """The score of ``output``. A row without the expected field gives a reason in place of one."""
    match spec:
        case ExactMatch():
            return _against_row(spec.expected, row, lambda expected: _exact(spec, output, expected))
        case Contains():
            if spec.expected is None:
                return _contains(spec, output, spec.text or "")
            return _against_row(spec.expected, row, lambda expected: _contains(spec, output, expected))
        case Regex():
            return _regex(spec, output, row)
        case JsonValid():
            return _json(spec, output)
        case NumericMatch():
            return _against_row(spec.expected, row, lambda expected: _numeric(spec, output, expected))
        case Assertions():
            return _assertions(spec, output, row)
    assert_never(spec)


def as_text(value: object) -> str:
    """A row's value as text: numbers without a needless ".0", other values as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def _against_row(field: str, row: Mapping[str, Any], compare: Callable[[str], Score]) -> Score:
    value = row.get(field)
    if value is None:
        return Score(
            None, f"the row's field {field!r} is null" if field in row else f"the row has no field {field!r}"
        )
    return compare(as_text(value))


def _exact(spec: ExactMatch, output: str, expected: str) -> Score:
    if spec.strip:
        output, expected = output.strip(), expected.strip()
    if spec.ignore_case:
        output, expected = output.casefold(), expected.casefold()
    return Score(float(output == expected))


def _contains(spec: Contains, output: str, expected: str) -> Score:
    if not expected:
        return Score(None, "every output contains an empty text")
    if spec.ignore_case:
        output, expected = output.casefold(), expected.casefold()
    return Score(float(expected in output))


def _regex(spec: Regex, output: str, row: Mapping[str, Any]) -> Score:
    try:
        found = search(spec.pattern, output)
    except SearchError as error:
        return Score(None, str(error))
    if spec.expected is None:
        return Score(float(found is not None))
    if not compile_pattern(spec.pattern).groups:
        return Score(None, "the pattern has no group to compare")
    group = (found.group(1) or "").strip() if found else None
    return _against_row(spec.expected, row, lambda expected: Score(float(group == expected.strip())))


def _json(spec: JsonValid, output: str) -> Score:
    try:
        if spec.fenced:
            value = json_in(output, exact=True)
        else:
            value = json.loads(output, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return Score(0.0)
    if not spec.required:
        return Score(1.0)
    return Score(float(isinstance(value, dict) and all(key in value for key in spec.required)))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _numeric(spec: NumericMatch, output: str, expected: str) -> Score:
    wanted = set(numbers_in(marked_answer(expected)))
    if len(wanted) > 1:
        shown = expected if len(expected) <= SHOWN else f"{expected[:SHOWN]}…"
        return Score(None, f"the row's field {spec.expected!r} holds several numbers: {shown!r}")
    number = wanted.pop() if wanted else None
    if number is None:
        return Score(None, f"the row's field {spec.expected!r} holds no number")
    given = last_number(output)
    return Score(float(given is not None and abs(given - number) <= exact(spec.tolerance)))


def _assertions(spec: Assertions, output: str, row: Mapping[str, Any]) -> Score:
    if row.get(spec.field) is None:
        return Score(None, f"the row has no assertions in {spec.field!r}")
    try:
        return Score(share_met(row[spec.field], output))
    except AssertionsError as error:
        return Score(None, str(error))
