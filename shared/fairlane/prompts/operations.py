"""The operators, methods and filters of a template whose result can be far larger than what they are given."""

from __future__ import annotations

import html
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2.filters import do_int, do_round, make_attrgetter
from jinja2.runtime import Undefined

from fairlane.prompts.meter import MeteredContext, TooMuchWork, bounded

_MAX_INT_BITS = 4096
_MAX_INDENT = 100
_MAX_DIGITS = 4300
_MAX_FORMAT = 1000
_WIDE_FORMAT = re.compile(r"%(?:\([^)]*\))?[^a-zA-Z%]*(?:\d{4}|\*)")


def multiply(context: MeteredContext, left: Any, right: Any) -> Any:
    """``left * right`` where neither a number nor a repetition grows without bound."""
    if isinstance(left, int) and isinstance(right, (str, list, tuple)):
        left, right = right, left
    if isinstance(left, (str, list, tuple)) and isinstance(right, int):
        bounded(len(left) * max(0, right))
        for _ in range(min(right, 2)):
            context.weigh(left)
        result = left * right
        context.weigh(result)
        return result
    if isinstance(left, int) and isinstance(right, int):
        _bounded_bits(left.bit_length() + right.bit_length())
    return operator.mul(left, right)


def power(left: Any, right: Any) -> Any:
    """``left ** right`` within `_MAX_INT_BITS` bits."""
    if isinstance(left, int) and isinstance(right, int):
        _bounded_bits(left.bit_length() * abs(right))
    return operator.pow(left, right)


def add(context: MeteredContext, left: Any, right: Any) -> Any:
    """``left + right``, weighed before and after."""
    context.weigh(left)
    context.weigh(right)
    if isinstance(left, str) and isinstance(right, str):
        bounded(len(left) + len(right))
    return left + right


def modulo(context: MeteredContext, left: Any, right: Any) -> Any:
    """``left % right``, where a string on the left is a printf format."""
    if not isinstance(left, str):
        return operator.mod(left, right)
    context.weigh(right)
    return printf(left, right)


def printf(template: str, values: Any) -> str:
    """``template % values`` without widths that only produce padding."""
    if len(template) > _MAX_FORMAT:
        raise TooMuchWork(f"a format has at most {_MAX_FORMAT} characters")
    if _WIDE_FORMAT.search(template):
        raise TooMuchWork("a format's width has at most three digits")
    if isinstance(values, dict):  # a key may be named many times
        bounded(template.count("%") * sum(len(str(value)) for value in values.values()))
    return template % values


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """``text.replace``, refused before it would exceed the longest text allowed."""
    found = text.count(old) if count < 0 else min(count, text.count(old))
    bounded(len(text) + found * (len(new) - len(old)))
    return text.replace(old, new, count)


def join(separator: str, parts: Iterable[str]) -> str:
    """``separator.join``, refused before it would exceed the longest text allowed."""
    pieces = list(parts)
    bounded(sum(map(len, pieces)) + len(separator) * len(pieces))
    return separator.join(pieces)


def _bounded_bits(bits: int) -> None:
    if bits > _MAX_INT_BITS:
        raise TooMuchWork(f"an integer of {bits:,} bits is larger than the {_MAX_INT_BITS:,} allowed")


def _filter_join(context: MeteredContext, value: Any, separator: str = "", attribute: Any = None) -> str:
    get = make_attrgetter(context.environment, attribute)
    pieces: list[str] = []
    for part in value:
        item = get(part)
        context.weigh(item)
        pieces.append(str(item))
    return join(str(separator), pieces)


def _filter_format(_context: MeteredContext, template: Any, *args: Any, **kwargs: Any) -> str:
    return printf(str(template), kwargs or args)


def _filter_indent(_context: MeteredContext, text: Any, width: int | str = 4, first: bool = False) -> str:
    margin = width if isinstance(width, str) else " " * min(width, _MAX_INDENT)
    lines = str(text).split("\n")
    bounded(len(text) + len(margin) * len(lines))
    indented = "\n".join(f"{margin}{line}" if line else line for line in lines[1:])
    head = f"{margin}{lines[0]}" if first else lines[0]
    return head if len(lines) == 1 else f"{head}\n{indented}"


def _filter_int(_context: MeteredContext, value: Any, default: int = 0, base: int = 10) -> int:
    return default if isinstance(value, str) and len(value) > _MAX_DIGITS else do_int(value, default, base)


def _filter_round(_context: MeteredContext, value: Any, precision: int = 0, method: Any = "common") -> Any:
    return do_round(value, max(-300, min(precision, 300)), method)


def _filter_sum(context: MeteredContext, values: Any, attribute: Any = None, start: float = 0) -> Any:
    get = make_attrgetter(context.environment, attribute)
    total: Any = start
    for value in values:
        total = add(context, total, get(value))
    return total


def _filter_tojson(_context: MeteredContext, value: Any, indent: int | None = None) -> str:
    """Plain JSON: Jinja's own escapes ``<``, ``&`` and quotes for HTML, which no model should have to read."""
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    return json.dumps(value, ensure_ascii=False, indent=None if indent is None else min(indent, 8))


def _filter_escape(_context: MeteredContext, value: Any) -> str:
    return html.escape(str(value))


def _filter_safe(_context: MeteredContext, value: Any) -> str:
    """Nothing is escaped, so there is nothing to exempt; templates from elsewhere may still say it."""
    return str(value)


OWN_FILTERS: Mapping[str, Callable[..., Any]] = {
    "e": _filter_escape,
    "escape": _filter_escape,
    "format": _filter_format,
    "indent": _filter_indent,
    "int": _filter_int,
    "join": _filter_join,
    "replace": lambda _context, text, old, new, count=None: replace(
        str(text), str(old), str(new), -1 if count is None else count
    ),
    "round": _filter_round,
    "safe": _filter_safe,
    "sum": _filter_sum,
    "tojson": _filter_tojson,
}
"""Filters of ours; each takes the context first."""

JINJA_FILTERS = (
    "abs capitalize count d default dictsort first float groupby last length list lower map max min reject "
    "rejectattr reverse select selectattr sort string title trim truncate unique upper urlencode wordcount"
).split()
"""Jinja's own filters whose result is never much larger than what they are given."""

JINJA_TESTS = (
    "boolean defined divisibleby eq equalto == even false float ge >= gt > greaterthan in integer iterable le <= "
    "lessthan lt < lower mapping ne != none number odd sameas sequence string true undefined upper"
).split()

METHODS: Mapping[type, Mapping[str, Callable[..., Any]]] = {
    str: {
        name: getattr(str, name)
        for name in (
            "capitalize casefold count endswith find index isalnum isalpha isdecimal isdigit islower isnumeric "
            "isspace istitle isupper lower lstrip partition removeprefix removesuffix rfind rindex rpartition rsplit "
            "rstrip split splitlines startswith strip swapcase title upper"
        ).split()
    }
    | {"join": join, "replace": replace},
    dict: {"get": dict.get, "items": dict.items, "keys": dict.keys, "values": dict.values},
    list: {"count": list.count, "index": list.index},
    tuple: {"count": tuple.count, "index": tuple.index},
    float: {"is_integer": float.is_integer},
}
"""The methods a template may call on the types that JSON has."""

LOOP_ATTRIBUTES = frozenset(
    "index index0 revindex revindex0 first last length previtem nextitem cycle changed".split()
)
