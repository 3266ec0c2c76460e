"""Converts values of libraries to JSON: NumPy's scalars, dates, decimals, records. `rows` uses it for rows
that are not JSON; it knows libraries by type names, and imports none.
"""

import dataclasses
import math
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

MAX_DEPTH = 100
"""Most levels of lists and objects inside a row: far below the recursion limit of JSON decoders.

Deeper values are not converted, and the check of the row refuses them.
"""

_LIST = "Give a list: list(value)."
_TEXT = "Give a text: str(value)."
_REMEDIES: Mapping[str, str] = {
    "bytes": 'Decode it: value.decode(), or base64.b64encode(value).decode("ascii") for what is no text.',
    "bytearray": "Decode it: value.decode().",
    "set": "Give a list: sorted(value).",
    "frozenset": "Give a list: sorted(value).",
    "deque": _LIST,
    "range": _LIST,
    "Series": _LIST,
    "complex": "Give a number or a text.",
    "Fraction": "Give a number or a text: float(value) or str(value).",
    "timedelta": "Give seconds: value.total_seconds().",
    "timedelta64": 'Give seconds: value / numpy.timedelta64(1, "s").',
    "Period": _TEXT,
    "Interval": _TEXT,
    "Promise": _TEXT,  # Django's lazy texts
    "DataFrame": 'Give its rows: value.to_dict("records").',
    "Image": 'Give its bytes as a text: "data:image/png;base64,…".',
    "Tensor": "Give a list: value.tolist().",
    "ModelMetaclass": (  # a class of pydantic, in place of a response_format
        'Give {"type": "json_schema", "json_schema": {"name": "…", "schema": Model.model_json_schema()}}; '
        "run.parsed(Model) reads the outputs."
    ),
}
"""Remedies by the name of a value's class or base class."""


class _Absent:
    """The type of `_ABSENT`, which stands for a gap of a table."""


_ABSENT = _Absent()


class _TooDeep(Exception):
    """A value is nested deeper than `MAX_DEPTH`, or holds itself."""


def fields_of(row: object) -> Mapping[Any, Any] | None:
    """The fields of a mapping, a data class, a pydantic model, a class of attrs or a named tuple.

    ``None`` for anything else. Raises what the class's own code raises.
    """
    if isinstance(row, Mapping):
        return row
    if isinstance(row, type):
        return None
    if dataclasses.is_dataclass(row):
        return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    if (attributes := getattr(type(row), "__attrs_attrs__", None)) is not None:
        return {attribute.name: getattr(row, attribute.name) for attribute in attributes}
    for name, arguments in (("model_dump", {"mode": "json"}), ("_asdict", {})):
        dump = getattr(row, name, None)
        if callable(dump):
            fields = dump(**arguments)
            return fields if isinstance(fields, Mapping) else None
    return None


def plain_row(fields: Mapping[Any, Any]) -> dict[Any, Any]:
    """A row with its values as JSON, where they have such a form; leaves out gaps such as NaN.

    A date becomes its ISO 8601 text, a `Decimal` its digits, an `Enum` its value, an array a list.
    """
    try:
        return _object(fields, 0, _ABSENT)
    except _TooDeep:
        return dict(fields)


def plain(value: Any) -> Any:
    """An argument or a parameter as JSON, where it has such a form, converted like the values of rows. A gap
    such as NaN stays, and is no JSON: without the argument the call would be a different one.
    """
    try:
        return _plain(value, 0, None)
    except _TooDeep:
        return value


def scalar(value: Any) -> Any:
    """A NumPy number, truth value or text as its Python type; anything else unchanged."""
    return plain(value) if _is_numpy(value) and not getattr(value, "shape", ()) else value


def remedy_for(value: object) -> str | None:
    """How to convert a value of that type to JSON, if there is an obvious way."""
    return next(
        (_REMEDIES[kind.__name__] for kind in type(value).__mro__ if kind.__name__ in _REMEDIES), None
    )


def _object(fields: Mapping[Any, Any], depth: int, gap: _Absent | None) -> dict[Any, Any]:
    made = ((key, _plain(value, depth, gap)) for key, value in fields.items())
    return {key: value for key, value in made if value is not _ABSENT}


def _plain(value: Any, depth: int, gap: _Absent | None) -> Any:
    """The value as JSON; ``gap`` in place of a gap, or the gap itself if ``gap`` is ``None``."""
    if value is None or type(value) in (str, bool, int):
        return value
    if isinstance(value, float):
        return gap or value if math.isnan(value) else float(value)
    if isinstance(value, Enum) and not isinstance(value, str | int):
        return _plain(value.value, depth, gap)
    if isinstance(value, Decimal):
        return gap or value if value.is_nan() else str(value)
    if _is_gap(value):
        return gap or value
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID | PurePath):
        return str(value)
    if _is_numpy(value):
        return _numpy(value, depth, gap)
    if depth >= MAX_DEPTH:
        raise _TooDeep
    if isinstance(value, list | tuple) and not hasattr(value, "_asdict"):
        parts = (_plain(part, depth + 1, gap) for part in value)
        return [None if part is _ABSENT else part for part in parts]
    fields = fields_of(value)
    return value if fields is None else _object(fields, depth + 1, gap)


def _is_gap(value: Any) -> bool:
    """Whether it is pandas' ``NA`` or ``NaT``, without an import of pandas."""
    return type(value).__name__ in ("NAType", "NaTType") and type(value).__module__.startswith("pandas.")


def _is_numpy(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "dtype")


def _numpy(value: Any, depth: int, gap: _Absent | None) -> Any:
    """A NumPy scalar or array as Python values, ``None`` where an array is masked; a datetime as text, since
    Python has no nanoseconds.
    """
    kind = value.dtype.kind
    if kind == "M" and not getattr(value, "shape", ()):
        text = str(value)
        return gap or value if text == "NaT" else text
    if kind == "M":
        return _plain(list(value), depth, gap)
    if kind == "f" and value.dtype.itemsize > 8:  # Python has no such float: `tolist` would return it again
        value = value.astype("float64")
    return _plain(value.tolist(), depth, gap) if kind in "biufUO" else value
