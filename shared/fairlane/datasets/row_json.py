"""Makes rows from an application's objects, and checks that their values are JSON."""

import json
import math
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, cast

from fairlane.core.errors import SubmissionError
from fairlane.datasets.values import MAX_DEPTH, fields_of, plain_row, remedy_for

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


def digest_of(value: object) -> bytes:
    """16 bytes that are equal for equal JSON, whatever the order of its names."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def _is_plain(value: object) -> bool:
    """Whether a cheap check shows that a value is JSON, as for most values."""
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


FIELD = "dataset"

_REMEDY = "Use text, finite numbers, true, false, null, lists and objects with text as keys."
_REPAIR = 'Replace it: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").'


def check_row(row: object, number: int) -> dict[str, Any]:
    """``row``, the ``number``-th from 1, as a dict. Raises `SubmissionError` for a value that is not JSON."""
    if not isinstance(row, Mapping):
        raise SubmissionError(FIELD, row, f"a row is no {type(row).__name__}", _of_row(row), row=number)
    fields = row if type(row) is dict else dict(row)
    try:
        check_object("", fields, 0)
    except NotJson as error:
        problem = f"field {error.path}: {error}" if error.path else str(error)
        remedy = (_REPAIR if error.surrogate else remedy_for(error.value)) or _REMEDY
        raise SubmissionError(FIELD, error.value, problem, remedy, row=number) from None
    return fields


def _of_row(row: object) -> str:
    """The remedy for an object that is not a row."""
    if isinstance(row, str):
        of_texts = '[{"text": each} for each in dataset], with the prompt "{{ text }}"'
        return f"Each row is a dict: {of_texts}. Of a file pass the path, not its lines."
    if isinstance(row, list) and row and all(isinstance(each, Mapping) and "role" in each for each in row):
        return 'Each row is a dict: [{"chat": each} for each in dataset], with request="chat".'
    if isinstance(row, tuple) and len(row) == 2 and type(row[1]).__name__ == "Series":
        return "Pass the DataFrame itself, not its iterrows()."
    if type(row).__name__ in ("DataFrame", "Table", "RecordBatch"):
        return "Pass the table itself; of a dataset of Hugging Face, dataset.with_format(None)."
    return "Each row is a dict that names its fields."


def to_row(row: object, number: int) -> dict[str, Any]:
    """`check_row` for what an application gives: records of other kinds too, and values that become JSON.

    A field whose value is NaN, or another gap of a table, is left out. Raises `SubmissionError`, also where
    the code of a record's own class fails.
    """
    try:
        return _to_row(row, number)
    except SubmissionError:
        raise
    except Exception as error:
        shown, remedy = f"a {type(row).__name__}", "Give a dict of its fields."
        problem = f"its fields cannot be read: {type(error).__name__}: {error}"
        raise SubmissionError(FIELD, shown, problem, remedy, row=number) from error


def _to_row(row: object, number: int) -> dict[str, Any]:
    fields = row if isinstance(row, Mapping) else fields_of(row)
    if fields is None and _is_record(row):
        fields = dict(cast(Any, row))
    if fields is None:
        return check_row(row, number)  # its error says what a row is
    given = fields if type(fields) is dict else dict(fields)
    try:
        check_object("", given, 0)
    except NotJson:
        return check_row(plain_row(given), number)
    return given


def _is_record(row: object) -> bool:
    """Whether it has keys, as `sqlite3.Row` and a pandas Series do, but no columns, as a table does."""
    kind = type(row)
    return hasattr(kind, "keys") and hasattr(kind, "__getitem__") and not hasattr(kind, "columns")


def take_row(row: object, number: int) -> dict[str, Any]:
    """`to_row`, as a copy that shares no list and no object with ``row``."""
    taken: dict[str, Any] = _copied(to_row(row, number))
    return taken


def _copied(value: Any) -> Any:
    """A deep copy of a checked value."""
    if isinstance(value, dict):
        return {name: _copied(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_copied(part) for part in value]
    return tuple(_copied(part) for part in value) if isinstance(value, tuple) else value
