"""Checks that values inside a row are JSON, and names the first that is not."""

from __future__ import annotations

import math
from typing import Any

MAX_DEPTH = 100
"""Most levels of lists and objects inside a row: far below the recursion limit of JSON decoders."""

SHORT_INT = 1 << 64
"""Integers below this need no further check."""

_MAX_INT_BITS = 14_000  # Python reads and writes integers of up to 4,300 digits


class NotJson(Exception):
    """A value inside a row is not JSON; ``surrogate``: it is a text that holds half a surrogate pair."""

    def __init__(self, path: str, value: object, problem: str, *, surrogate: bool = False) -> None:
        super().__init__(problem)
        self.path, self.value, self.surrogate = path, value, surrogate


def check_object(path: str, fields: dict[Any, Any], depth: int) -> None:
    """Check the fields of an object at ``path`` of a row. Raises `NotJson`."""
    for key, value in fields.items():
        if isinstance(key, str) and key.isascii() and _is_plain(value):
            continue
        if not isinstance(key, str):
            raise NotJson(path, key, "a field name must be text")
        _check_text(path, key)
        _check(f"{path}.{key}" if path else key, value, depth)


def _is_plain(value: object) -> bool:
    """Whether little has to be looked at to see that a value is JSON, as most are."""
    if isinstance(value, str):
        return value.isascii()
    return value is None or (isinstance(value, int) and -SHORT_INT < value < SHORT_INT)


def _check(path: str, value: object, depth: int) -> None:
    if isinstance(value, str):
        _check_text(path, value)
    elif value is None or isinstance(value, bool):
        pass
    elif isinstance(value, int):
        if value.bit_length() > _MAX_INT_BITS:
            raise NotJson(path, "an integer", "an integer has too many digits")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(path, value, "JSON has no such number")
    elif depth >= MAX_DEPTH:
        raise NotJson(path.partition(".")[0], "…", f"is nested deeper than {MAX_DEPTH} levels")
    elif isinstance(value, dict):
        check_object(path, value, depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            _check(f"{path}[{index}]", part, depth + 1)
    else:
        raise NotJson(path, value, f"a {type(value).__name__} is no JSON")


def _check_text(path: str, text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        problem = "the text holds half a surrogate pair, which UTF-8 cannot carry"
        raise NotJson(path, text, problem, surrogate=True) from None
