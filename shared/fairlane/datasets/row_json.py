"""Makes a row of what an application gives, and says what is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlane.core.errors import SubmissionError
from fairlane.datasets.json_check import NotJson, check_object
from fairlane.datasets.values import fields_of, plain_row, remedy_for

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
    """How to make rows of what is none."""
    if isinstance(row, str):
        return "Each row is a dict. Of a file pass the path, not its lines."
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
    if fields is None:
        return check_row(row, number)  # its error says what a row is
    given = fields if type(fields) is dict else dict(fields)
    try:
        check_object("", given, 0)
    except NotJson:
        return check_row(plain_row(given), number)
    return given


def take_row(row: object, number: int) -> dict[str, Any]:
    """`to_row`, as a copy that shares no list and no object with ``row``."""
    taken: dict[str, Any] = _copied(to_row(row, number))
    return taken


def _copied(value: Any) -> Any:
    """A checked value that shares no list and no object with the one that was given."""
    if isinstance(value, dict):
        return {name: _copied(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_copied(part) for part in value]
    return tuple(_copied(part) for part in value) if isinstance(value, tuple) else value
