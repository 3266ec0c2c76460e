"""Makes JSON of the values that libraries put into rows: NumPy's scalars, dates, decimals, records.

`rows` uses it for rows that are not JSON yet; it knows libraries by their values' types and imports none.
"""

from __future__ import annotations

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
"""Levels of lists and objects below which nothing is changed: the check of the row refuses such depths."""

_REMEDIES: Mapping[type, str] = {
    bytes: 'Decode it: value.decode(), or base64.b64encode(value).decode("ascii") for what is no text.',
    bytearray: "Decode it: value.decode().",
    set: "Give a list: sorted(value).",
    frozenset: "Give a list: sorted(value).",
    complex: "Give a number or a text.",
}


class _Absent:
    """No value at all: a gap of a table."""


_ABSENT = _Absent()


def fields_of(row: object) -> Mapping[Any, Any] | None:
    """The fields of a mapping, a dataclass, a pydantic model or a named tuple; ``None`` for anything else."""
    if isinstance(row, Mapping):
        return row
    if isinstance(row, type):
        return None
    if dataclasses.is_dataclass(row):
        return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    for name, arguments in (("model_dump", {"mode": "json"}), ("_asdict", {})):
        dump = getattr(row, name, None)
        if callable(dump):
            fields = dump(**arguments)
            return fields if isinstance(fields, Mapping) else None
    return None


def plain_row(fields: Mapping[Any, Any]) -> dict[Any, Any]:
    """A row of plain JSON values as far as they have one; a field without a value, such as NaN, is left out.

    A date becomes its ISO 8601 text, a `Decimal` its digits, an `Enum` its value, an array a list.
    """
    return _object(fields, 0)


def remedy_for(value: object) -> str | None:
    """How to make JSON of a value of that type, where there is an obvious way."""
    return _REMEDIES.get(type(value))


def _object(fields: Mapping[Any, Any], depth: int) -> dict[Any, Any]:
    made = ((key, _plain(value, depth)) for key, value in fields.items())
    return {key: value for key, value in made if value is not _ABSENT}


def _plain(value: Any, depth: int) -> Any:
    if value is None or type(value) in (str, bool, int) or depth >= MAX_DEPTH:
        return value
    if isinstance(value, float):
        return _ABSENT if math.isnan(value) else float(value)
    if isinstance(value, Enum) and not isinstance(value, str | int):
        return _plain(value.value, depth)
    if isinstance(value, Decimal):
        return _ABSENT if value.is_nan() else str(value)
    if _is_gap(value):
        return _ABSENT
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID | PurePath):
        return str(value)
    if type(value).__module__ == "numpy":
        return _numpy(value, depth)
    if isinstance(value, list | tuple) and not hasattr(value, "_asdict"):
        return [None if part is _ABSENT else part for part in (_plain(part, depth + 1) for part in value)]
    fields = fields_of(value)
    return value if fields is None else _object(fields, depth + 1)


def _is_gap(value: Any) -> bool:
    """Whether it is pandas' ``NA`` or ``NaT``; pandas itself need not be here."""
    return type(value).__name__ in ("NAType", "NaTType") and type(value).__module__.startswith("pandas.")


def _numpy(value: Any, depth: int) -> Any:
    """A NumPy scalar or array as Python has it; a moment as text, since Python has no nanoseconds."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind == "M" and not getattr(value, "shape", ()):
        text = str(value)
        return _ABSENT if text == "NaT" else text
    if kind == "M":
        return _plain(list(value), depth)
    if kind in "biufUO":
        return _plain(value.tolist(), depth)
    return value
