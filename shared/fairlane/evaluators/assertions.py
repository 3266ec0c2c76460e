"""Checks a row's assertions about its own output, and computes the weighted share that it meets."""

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from fairlane.evaluators.patterns import SearchError, search
from fairlane.evaluators.schema import conforms, equal, schema_problem

NOT = "not-"
MAX_JSON_STARTS = 1000
"""Positions of an output that are tried as the start of a JSON value: a bound for hostile outputs."""


MOST_ASSERTIONS = 1000
"""Assertions of a row."""

MOST_WEIGHT = 1e300
"""Weight of an assertion: those of a row have a sum."""
CHECK_S = 0.5
"""CPU seconds for all assertions of a row together; an assertion that starts in time may finish."""

_SCANNED = 16
"""How often the search for JSON values may read the text in all: starts that fail late read it again."""

_NESTED_CHARS = 10_000
_QUICK = 8  # searching a string's end is faster than parsing values


class AssertionsError(Exception):
    """A row's assertions cannot be checked; the message says why."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One assertion and whether the output meets it. ``metric`` names the metric that it counts for."""

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
    """Every assertion of a list, in order. Raises `AssertionsError` if one cannot be checked."""
    if not isinstance(assertions, Sequence) or isinstance(assertions, str):
        raise AssertionsError("the row's assertions are no list")
    if len(assertions) > MOST_ASSERTIONS:
        raise AssertionsError(
            f"the row has {len(assertions):,} assertions, at most {MOST_ASSERTIONS:,} are allowed"
        )
    checked, until_s = list[Checked](), time.thread_time() + CHECK_S
    for number, each in enumerate(assertions, start=1):
        if time.thread_time() > until_s:
            raise AssertionsError(
                f"assertion {number}: those before it took {CHECK_S:g} s: give fewer or simpler ones"
            )
        checked.append(_check(number, each, output))
    return tuple(checked)


def is_linear(assertions: object, output: str, most_chars: int) -> bool:
    """Whether all assertions search for texts, and read at most ``most_chars`` characters in all."""
    if not isinstance(assertions, list):
        return True  # it is refused
    if len(assertions) * (len(output) + 1) > most_chars:
        return False
    chars = 0
    for each in assertions:
        if not isinstance(each, dict):
            break  # it is refused
        kind, value = each.get("type"), each.get("value")
        if not isinstance(kind, str) or kind.removeprefix(NOT) not in _SEARCHING:
            return False
        chars += len(value) if isinstance(value, str) else most_chars if isinstance(value, list | dict) else 0
    return chars <= most_chars


def value_problem(kind: str, value: object) -> str | None:
    """Why an assertion ``kind`` is unknown or cannot have this value; ``None`` if it can."""
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
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= MOST_WEIGHT:
        words = f"its weight is no number from 0 to {MOST_WEIGHT:g}"
        raise AssertionsError(f"assertion {number} ({kind}): {words}")
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


def _occur(output: str, value: Any) -> Iterator[bool]:
    """Whether each text of a list is in the output."""
    return (text in output for text in _texts(value))


def _occur_folded(output: str, value: Any) -> Iterator[bool]:
    folded = output.casefold()
    return (text.casefold() in folded for text in _texts(value))


def _is_json(output: str, schema: Any) -> bool:
    return any(schema is None or conforms(found, schema) for found in _whole(output))


def _contains_json(output: str, schema: Any) -> bool:
    return any(schema is None or conforms(found, schema) for found in _within(output))


TYPES: Mapping[str, Callable[[str, Any], bool]] = {
    "equals": _equals,
    "contains": lambda output, value: _text(value) in output,
    "icontains": lambda output, value: _text(value).casefold() in output.casefold(),
    "contains-all": lambda output, value: all(_occur(output, value)),
    "contains-any": lambda output, value: any(_occur(output, value)),
    "icontains-all": lambda output, value: all(_occur_folded(output, value)),
    "icontains-any": lambda output, value: any(_occur_folded(output, value)),
    "starts-with": lambda output, value: output.startswith(_text(value)),
    "regex": lambda output, value: search(_text(value), output) is not None,
    "is-json": _is_json,
    "contains-json": _contains_json,
}
"""The check of each assertion; the prefix ``not-`` asks for the opposite."""

_JSON_TYPES = frozenset(("is-json", "contains-json"))
_SEARCHING = frozenset(("equals", "contains", "icontains", "starts-with"))
_LIST_TYPES = frozenset(("contains-all", "contains-any", "icontains-all", "icontains-any"))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else json.dumps(value, ensure_ascii=False)


def _texts(value: Any) -> list[str]:
    """A list of texts; one text with commas is split."""
    if isinstance(value, str):
        return separated(value)
    if isinstance(value, Sequence) and not any(isinstance(each, Mapping | list) for each in value):
        return [_text(each) for each in value]
    return []


_FIELD = re.compile(
    r'[\s,]*(?:"(?P<quoted>(?:\\["\\]|""|[^"\\]|\\(?!["\\]))*)"(?!")\s*(?=,|\Z)|(?P<plain>[^\s",][^,]*))'
)
_ESCAPED = re.compile(r'\\(["\\])|""')


def separated(text: str) -> list[str]:
    """The parts between commas, as promptfoo reads them: one in quotation marks may have commas of its own.

    None where a quotation mark does not end, or text follows it.
    """
    parts, at = list[str](), 0
    while found := _FIELD.match(text, at):
        at, quoted, plain = found.end(), found["quoted"], found["plain"]
        parts.append(plain.strip() if quoted is None else _ESCAPED.sub(lambda mark: mark[1] or '"', quoted))
    return [] if text[at:].strip(" \t\r\n,") else parts


def _whole(output: str) -> Iterator[Any]:
    """The output as a JSON value, if it is one."""
    try:
        yield strict_json(output)
    except (ValueError, RecursionError):
        return


def _within(output: str) -> Iterator[Any]:
    """The outermost JSON objects and arrays in a text, from left to right."""
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    start, left = -1, _SCANNED * len(output) + _NESTED_CHARS
    for _ in range(MAX_JSON_STARTS):
        found = [at for mark in "{[" if (at := output.find(mark, start + 1)) >= 0]
        if not found:
            return
        start = min(found)
        try:
            value, end = decoder.raw_decode(output, start)
        except json.JSONDecodeError as error:
            unended = error.msg.startswith("Unterminated string")
            left -= (len(output) - start) // _QUICK if unended else error.pos - start + 1
        except (ValueError, RecursionError):
            left -= _NESTED_CHARS
        else:
            yield value
            start = end - 1
        if left < 0:
            return


def strict_json(text: str) -> Any:
    """Parse a JSON text. Raises ``ValueError``, also for NaN, and `RecursionError`."""
    return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
