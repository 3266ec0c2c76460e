"""Computes the scores of pure evaluators from an output and its row."""

import json
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, assert_never

from fairlane.core.json_answers import exact_json, json_in
from fairlane.evaluators.assertions import AssertionsError, share_met
from fairlane.evaluators.numbers import Number, exact, last_number, marked_answer, numbers_in
from fairlane.evaluators.patterns import SearchError, compile_pattern, search, search_last
from fairlane.evaluators.schema import equal
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


_INVISIBLE = (
    *("\u00ad", "\u034f", "\u180e", "\ufeff"),
    *map(chr, range(0x200B, 0x2010)),
    *map(chr, range(0x202A, 0x202F)),
    *map(chr, range(0x2060, 0x2070)),
    *map(chr, range(0xFE00, 0xFE10)),
)
_SPACES = ("\u00a0", "\u1680", *map(chr, range(0x2000, 0x200B)), "\u202f", "\u205f", "\u3000")
_TIDIED = str.maketrans(dict.fromkeys(_INVISIBLE, "") | dict.fromkeys(_SPACES, " "))


@dataclass(frozen=True, slots=True)
class Score:
    """A score, or ``None`` and the reason."""

    value: float | None
    error: str | None = None


def score(spec: PureSpec, output: str, row: Mapping[str, Any]) -> Score:
    """The score of ``output``. A row without the expected field gives a reason in place of one."""
    match spec:
        case ExactMatch():
            return _exact(spec, output, row)
        case Contains():
            if spec.expected is None:
                return _contains(spec, output, spec.text or "")
            return _against_row(spec.expected, row, lambda expected: _contains(spec, output, expected))
        case Regex():
            return _regex(spec, output, row)
        case JsonValid():
            return _json(spec, output)
        case NumericMatch():
            given = last_number(marked_answer(output))
            return _against_row(spec.expected, row, lambda expected: _numeric(spec, given, expected))
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
    """The score against the row's field; against a list of accepted answers, the best one."""
    value = row.get(field)
    if value is None:
        return Score(
            None, f"the row's field {field!r} is null" if field in row else f"the row has no field {field!r}"
        )
    if not isinstance(value, list):
        return _compared(field, value, compare)
    if not value:
        return Score(None, f"the row's field {field!r} is an empty list: no answer is accepted")
    if any(each is None or isinstance(each, dict | list) for each in value):
        problem = f"the row's field {field!r} lists objects, lists or nulls"
        return Score(None, f"{problem}: list the accepted answers as texts or numbers")
    scores = [_compared(field, each, compare) for each in value]
    return max(scores, key=lambda each: (each.value or 0.0, each.value is None))


def _compared(field: str, value: object, compare: Callable[[str], Score]) -> Score:
    expected = as_text(value)
    return compare(expected) if expected else _empty(field)


def _empty(field: str) -> Score:
    return Score(None, f"the row's field {field!r} holds an empty text: nothing is expected")


def _exact(spec: ExactMatch, output: str, row: Mapping[str, Any]) -> Score:
    value = row.get(spec.expected)
    if isinstance(value, dict):
        return Score(float(_is_json(output, value, ignore_case=spec.ignore_case)))
    given = _tidied(spec, output)

    def compare(expected: str) -> Score:
        wanted = _tidied(spec, expected)
        return Score(float(given == wanted)) if wanted else _empty(spec.expected)

    found = _against_row(spec.expected, row, compare)
    if found.value == 0 and isinstance(value, list) and _is_json(output, value, ignore_case=spec.ignore_case):
        return Score(1.0)
    return found


def _tidied(spec: ExactMatch, text: str) -> str:
    """``text`` in the form to compare; with ``strip``, without invisible differences."""
    if spec.strip:
        text = seen(text).replace("\r\n", "\n").strip()
    return text.casefold() if spec.ignore_case else text


def seen(text: str) -> str:
    """``text`` without invisible differences between characters."""
    return text if text.isascii() else unicodedata.normalize("NFC", text.translate(_TIDIED))


def _is_json(output: str, value: object, *, ignore_case: bool) -> bool:
    """Whether the output is the JSON of a value, in any order of keys and with any white space."""
    try:
        found = json_in(output, exact=True)
        return equal(_folded(found), _folded(value)) if ignore_case else equal(found, value)
    except (ValueError, RecursionError):
        return False


def _folded(value: object) -> object:
    match value:
        case str():
            return value.casefold()
        case list():
            return [_folded(each) for each in value]
        case dict():
            return {key.casefold(): _folded(each) for key, each in value.items()}
    return value


def _contains(spec: Contains, output: str, expected: str) -> Score:
    output, expected = seen(output), seen(expected)
    if not expected:
        return Score(None, "every output contains an empty text")
    if spec.ignore_case:
        output, expected = output.casefold(), expected.casefold()
    return Score(float(expected in output))


def _regex(spec: Regex, output: str, row: Mapping[str, Any]) -> Score:
    try:
        find = search if spec.expected is None else search_last
        found = find(spec.pattern, output)
    except SearchError as error:
        return Score(None, str(error))
    if spec.expected is None:
        return Score(float(found is not None))
    if not compile_pattern(spec.pattern).groups:
        return Score(None, "the pattern has no group to compare")
    group = seen(found.group(1) or "").strip() if found else None
    field = spec.expected

    def compare(expected: str) -> Score:
        wanted = seen(expected).strip()
        return Score(float(group == wanted)) if wanted else _empty(field)

    return _against_row(field, row, compare)


def _json(spec: JsonValid, output: str) -> Score:
    try:
        value = json_in(output, exact=True) if spec.fenced else exact_json(output)
    except (ValueError, RecursionError):
        return Score(0.0)
    if not spec.required:
        return Score(1.0)
    return Score(float(isinstance(value, dict) and all(key in value for key in spec.required)))


def _numeric(spec: NumericMatch, given: Fraction | None, expected: str) -> Score:
    found = {_identity(number): number for number in numbers_in(marked_answer(expected))}
    if len(found) > 1:
        return Score(None, f"the row's field {spec.expected!r} holds several numbers: {_shown(expected)}")
    number = next(iter(found.values()), None)
    if number is not None and number.problem is not None:
        words = f"the row's field {spec.expected!r} holds a number that cannot be read: {_shown(number.text)}"
        return Score(None, f"{words}: {number.problem}; write it in digits, as 1234.5")
    if number is None or number.value is None:
        return Score(None, f"the row's field {spec.expected!r} holds no number")
    return Score(float(given is not None and abs(given - number.value) <= exact(spec.tolerance)))


def _identity(number: Number) -> Fraction | str | None:
    """Equal for equal numbers of a field: the value, or the text of a number that cannot be read."""
    return number.text if number.problem is not None else number.value


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def _assertions(spec: Assertions, output: str, row: Mapping[str, Any]) -> Score:
    if row.get(spec.field) is None:
        return Score(None, f"the row has no assertions in {spec.field!r}")
    try:
        return Score(share_met(row[spec.field], output))
    except AssertionsError as error:
        return Score(None, str(error))
