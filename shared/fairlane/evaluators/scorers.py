"""Computes the pure evaluators: an output and its row give a score, or the reason why there is none."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from fairlane.evaluators.spec import Contains, ExactMatch, JsonValid, NumericMatch, Regex

MAX_SEARCHED = 100_000
"""Characters of an output that a regular expression is searched in: a bound on what a bad one can cost."""

PureSpec = ExactMatch | Contains | Regex | JsonValid | NumericMatch

_NUMBER = re.compile(
    r"(?:(?<!\w)[-+−])?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|(?:(?<!\w)[-+−])?\.\d+"
)


@dataclass(frozen=True, slots=True)
class Score:
    """A score, or ``None`` and why."""

    value: float | None
    error: str | None = None


def score(spec: PureSpec, output: str, row: Mapping[str, Any]) -> Score:
    """The score of ``output``; a row that lacks the expected field has none. Never raises."""
    match spec:
        case ExactMatch():
            return _with_field(spec.expected, row, lambda expected: _exact(spec, output, expected))
        case Contains():
            if spec.expected is None:
                return _contains(spec, output, spec.text or "")
            return _with_field(spec.expected, row, lambda expected: _contains(spec, output, expected))
        case Regex():
            return _regex(spec, output, row)
        case JsonValid():
            return _json(spec, output)
        case NumericMatch():
            return _with_field(spec.expected, row, lambda expected: _numeric(spec, output, expected))
    assert_never(spec)


def last_number(text: str) -> float | None:
    """The last number in a text: 1,234.5 and $-3 and 12% and "#### 18." count; ``None`` if there is none."""
    found = _NUMBER.findall(text)
    if not found:
        return None
    number = float(found[-1].replace(",", "").replace("−", "-"))
    return number if math.isfinite(number) else None


def as_text(value: object) -> str:
    """A row's value as text: numbers without a needless ".0", other values as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def _with_field(field: str, row: Mapping[str, Any], compare: Any) -> Score:
    if field not in row:
        return Score(None, f"the row has no field {field!r}")
    result: Score = compare(as_text(row[field]))
    return result


def _exact(spec: ExactMatch, output: str, expected: str) -> Score:
    if spec.strip:
        output, expected = output.strip(), expected.strip()
    if spec.ignore_case:
        output, expected = output.casefold(), expected.casefold()
    return Score(float(output == expected))


def _contains(spec: Contains, output: str, expected: str) -> Score:
    if spec.ignore_case:
        output, expected = output.casefold(), expected.casefold()
    return Score(float(expected in output))


def _regex(spec: Regex, output: str, row: Mapping[str, Any]) -> Score:
    try:
        found = re.search(spec.pattern, output[:MAX_SEARCHED])
    except re.error as error:
        return Score(None, f"the pattern is no regular expression: {error}")
    if spec.expected is None:
        return Score(float(found is not None))
    if spec.expected not in row:
        return Score(None, f"the row has no field {spec.expected!r}")
    if found is None:
        return Score(0.0)
    if not found.re.groups:
        return Score(None, "the pattern has no group")
    return Score(float((found.group(1) or "").strip() == as_text(row[spec.expected]).strip()))


def _json(spec: JsonValid, output: str) -> Score:
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):
        return Score(0.0)
    if not spec.required:
        return Score(1.0)
    return Score(float(isinstance(value, dict) and all(key in value for key in spec.required)))


def _numeric(spec: NumericMatch, output: str, expected: str) -> Score:
    wanted = last_number(expected)
    if wanted is None:
        return Score(None, f"the row's field {spec.expected!r} holds no number")
    given = last_number(output)
    return Score(float(given is not None and abs(given - wanted) <= spec.tolerance))
