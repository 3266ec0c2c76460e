"""What a row may be: a JSON object, checked with the place of whatever is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fairlane.errors import SubmissionError

FIELD = "dataset"
MAX_DEPTH = 100
"""Levels of lists and objects inside a row; far below where JSON decoders stop recursing."""

_MAX_INT_BITS = 14_000  # Python reads and writes integers of up to 4,300 digits
_REMEDY = "Use text, finite numbers, true, false, null, lists and objects with text as keys."


class _NotJson(Exception):
    """Something inside a row is no JSON."""

    def __init__(self, path: str, value: object, problem: str) -> None:
        super().__init__(problem)
        self.path, self.value = path, value


def check_row(row: object, number: int) -> dict[str, Any]:
    """``row``, the ``number``-th from 1, as a dict. Raises `SubmissionError` for a value that is no JSON."""
    if not isinstance(row, Mapping):
        remedy = "Each row is a dict that names its fields."
        raise SubmissionError(FIELD, row, f"a row is no {type(row).__name__}", remedy, row=number)
    fields = row if type(row) is dict else dict(row)
    try:
        _check_object("", fields, 0)
    except _NotJson as error:
        problem = f"field {error.path}: {error}" if error.path else str(error)
        raise SubmissionError(FIELD, error.value, problem, _REMEDY, row=number) from None
    return fields


def _check_object(path: str, fields: dict[Any, Any], depth: int) -> None:
    for key, value in fields.items():
        if not isinstance(key, str):
            raise _NotJson(path, key, "a field name must be text")
        _check_text(path, key)
        _check(f"{path}.{key}" if path else key, value, depth)


def _check(path: str, value: object, depth: int) -> None:
    if isinstance(value, str):
        _check_text(path, value)
    elif value is None or isinstance(value, bool):
        pass
    elif isinstance(value, int):
        if value.bit_length() > _MAX_INT_BITS:
            raise _NotJson(path, "an integer", "an integer has too many digits")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _NotJson(path, value, "JSON has no such number")
    elif depth >= MAX_DEPTH:
        raise _NotJson(path.partition(".")[0], "…", f"is nested deeper than {MAX_DEPTH} levels")
    elif isinstance(value, dict):
        _check_object(path, value, depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            _check(f"{path}[{index}]", part, depth + 1)
    else:
        raise _NotJson(path, value, f"a {type(value).__name__} is no JSON")


def _check_text(path: str, text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _NotJson(path, text, "the text holds half a surrogate pair, which UTF-8 cannot carry") from None
