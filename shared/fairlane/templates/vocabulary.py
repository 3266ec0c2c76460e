"""The filters, tests, methods and loop attributes that templates may use."""

import html
import json
from collections.abc import Callable, Mapping
from typing import Any

from jinja2.filters import do_int, do_round, make_attrgetter
from jinja2.runtime import Undefined

from fairlane.templates import operations
from fairlane.templates.meter import MeteredContext, NullError, bounded, printed

_MAX_INDENT = 100
_MAX_DIGITS = 4300


def _filter_join(context: MeteredContext, value: Any, separator: str = "", attribute: Any = None) -> str:
    get = make_attrgetter(context.environment, attribute)
    pieces: list[str] = []
    for part in value:
        item = get(part)
        context.weigh(item)
        if item is None:
            raise NullError
        pieces.append(str(printed(item)))
    return operations.join(str(separator), pieces)


def _filter_format(_context: MeteredContext, template: Any, *args: Any, **kwargs: Any) -> str:
    return operations.printf(str(template), kwargs or args)


def _filter_indent(_context: MeteredContext, text: Any, width: int | str = 4, first: bool = False) -> str:
    margin = width if isinstance(width, str) else " " * min(width, _MAX_INDENT)
    lines = str(text).split("\n")
    bounded(len(text) + len(margin) * len(lines))
    indented = "\n".join(f"{margin}{line}" if line else line for line in lines[1:])
    head = f"{margin}{lines[0]}" if first else lines[0]
    return head if len(lines) == 1 else f"{head}\n{indented}"


def _filter_int(_context: MeteredContext, value: Any, default: int = 0, base: int = 10) -> int:
    if isinstance(value, str) and len(value) > _MAX_DIGITS:
        return default
    return operations.whole(do_int(value, default, base))


def _filter_round(_context: MeteredContext, value: Any, precision: int = 0, method: Any = "common") -> Any:
    return do_round(value, max(-300, min(precision, 300)), method)


def _filter_sum(context: MeteredContext, values: Any, attribute: Any = None, start: float = 0) -> Any:
    get = make_attrgetter(context.environment, attribute)
    total: Any = start
    for value in values:
        total = operations.add(context, total, get(value))
    return total


def _filter_tojson(_context: MeteredContext, value: Any, indent: int | None = None) -> str:
    """Plain JSON: Jinja's own filter escapes ``<``, ``&`` and quotes, which a model would have to read."""
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    return json.dumps(value, ensure_ascii=False, indent=None if indent is None else min(indent, 8))


def _filter_escape(_context: MeteredContext, value: Any) -> str:
    return html.escape(str(value))


def _filter_safe(_context: MeteredContext, value: Any) -> str:
    """Does nothing, since nothing is escaped; templates of other tools may use it."""
    return str(value)


OWN_FILTERS: Mapping[str, Callable[..., Any]] = {
    "e": _filter_escape,
    "escape": _filter_escape,
    "format": _filter_format,
    "indent": _filter_indent,
    "int": _filter_int,
    "join": _filter_join,
    "replace": lambda _context, text, old, new, count=None: operations.replace(
        str(text), str(old), str(new), -1 if count is None else count
    ),
    "round": _filter_round,
    "safe": _filter_safe,
    "sum": _filter_sum,
    "tojson": _filter_tojson,
    "trim": lambda _context, text, chars=None: operations.strip(str(text), chars),
}
"""Fairlane's own filters; each takes the context first."""

TEXT_FILTERS = frozenset(
    {
        *("capitalize", "e", "escape", "indent", "lower", "replace", "safe", "string", "title", "trim"),
        *("truncate", "upper", "urlencode", "wordcount", "wordwrap"),
    }
)
"""Filters that make text of any value."""

JINJA_FILTERS = (
    *("abs", "capitalize", "count", "d", "default", "dictsort"),
    *("first", "float", "groupby", "last", "length"),
    *("list", "lower", "map", "max", "min", "reject"),
    *("rejectattr", "reverse", "select", "selectattr", "sort"),
    *("string", "title", "truncate", "unique", "upper", "urlencode", "wordcount"),
)
"""Jinja's filters whose result is never much larger than their input."""

JINJA_TESTS = (
    *("==", "!=", "<", "<=", ">", ">=", "eq", "equalto"),
    *("ne", "lt", "lessthan", "le", "gt", "greaterthan", "ge"),
    *("boolean", "defined", "divisibleby", "even", "false", "float", "in", "integer", "iterable", "lower"),
    *("mapping", "none", "number", "odd", "sameas", "sequence", "string", "true", "undefined", "upper"),
)

_STR_METHODS = (
    *("capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isdecimal"),
    *("isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "lower", "partition"),
    *("removeprefix", "removesuffix", "split"),
    *("splitlines", "startswith", "swapcase", "title", "upper"),
)

_BOUNDED = ("join", "lstrip", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "strip")
"""Replace Python's own methods, which make too long texts or take the product of two lengths."""

METHODS: Mapping[type, Mapping[str, Callable[..., Any]]] = {
    str: {
        **{name: getattr(str, name) for name in _STR_METHODS},
        **{name: getattr(operations, name) for name in _BOUNDED},
    },
    dict: {"get": dict.get, "items": dict.items, "keys": dict.keys, "values": dict.values},
    list: {"count": list.count, "index": list.index},
    tuple: {"count": tuple.count, "index": tuple.index},
    float: {"is_integer": float.is_integer},
}
"""The methods a template may call on the types that JSON has."""

LOOP_ATTRIBUTES = frozenset(
    {"index", "index0", "revindex", "revindex0", "first", "last", "length"}
    | {"previtem", "nextitem", "cycle", "changed"}
)
