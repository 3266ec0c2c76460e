"""Rows as a stream from an iterable of dicts, or from a ``.jsonl``, ``.json`` or ``.csv`` file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from fairlane.datasets.array import read_array
from fairlane.datasets.lines import Broken, numbered_lines
from fairlane.datasets.rows import FIELD, check_row
from fairlane.datasets.table import read_table
from fairlane.errors import SubmissionError

_REMEDY = "Give a path (.jsonl, .json, .csv), a list of dicts, or an iterable of dicts."


def read_rows(dataset: str | os.PathLike[str] | Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows in order, one in memory at a time; a file's text is UTF-8, with or without a byte order mark.

    ``.jsonl`` has an object a line, blank lines aside; ``.json`` an array of objects; ``.csv`` a header and
    text alone. Raises `SubmissionError`, at once for what is no dataset, else at the row (from 1) at fault.
    """
    if isinstance(dataset, str | os.PathLike):
        return _read_file(Path(dataset))
    if isinstance(dataset, Mapping):
        raise SubmissionError(
            FIELD, dataset, "a dict is one row, not a dataset", "Put it into a list: [{…}]."
        )
    if isinstance(dataset, (bytes, bytearray)) or not isinstance(dataset, Iterable):
        raise SubmissionError(FIELD, dataset, f"a {type(dataset).__name__} is no dataset", _REMEDY)
    if type(dataset).__name__ == "DataFrame":  # iterates over the names of its columns
        remedy = 'Pass frame.to_dict("records").'
        raise SubmissionError(FIELD, "a DataFrame", "does not iterate over its rows", remedy)
    return (check_row(row, number) for number, row in enumerate(dataset, start=1))


def _read_file(path: Path) -> Iterator[dict[str, Any]]:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        problem = (
            f"it ends in {path.suffix}, which is not read" if path.suffix else "it is no path of a dataset"
        )
        raise SubmissionError(FIELD, str(path), problem, _REMEDY)
    try:
        file = path.expanduser().open("rb")
    except FileNotFoundError:
        remedy = f"Check the path; relative ones start at {Path.cwd()}."
        raise SubmissionError(FIELD, str(path), "there is no such file", remedy) from None
    except (OSError, RuntimeError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SubmissionError(FIELD, str(path), f"cannot be read: {problem}", "Check the path.") from None
    return _checked(path, file, reader)


def read_file(name: str, file: BinaryIO, suffix: str) -> Iterator[dict[str, Any]]:
    """The rows of an open file, which is closed after the last. Raises `SubmissionError` at the row at
    fault.
    """
    return _checked(name, file, _READERS[suffix])


def _checked(
    path: str | Path, file: BinaryIO, reader: Callable[[BinaryIO], Iterator[object]]
) -> Iterator[dict[str, Any]]:
    number = 0
    with file:
        rows = reader(file)
        try:
            for number, row in enumerate(rows, start=1):
                yield check_row(row, number)
        except Broken as error:
            raise SubmissionError(FIELD, str(path), str(error), error.remedy, row=number + 1) from None
        except OSError as error:
            remedy = "Read from a disk that answers."
            problem = f"reading failed: {error.strerror}"
            raise SubmissionError(FIELD, str(path), problem, remedy, row=number + 1) from None


def _read_lines(file: BinaryIO) -> Iterator[object]:
    for number, line in numbered_lines(file):
        if line.isspace():
            continue
        try:
            row = json.loads(line.rstrip("\r\n"))
        except json.JSONDecodeError as error:
            problem = f"line {number}, column {error.colno} is no JSON: {error.msg}"
            raise Broken(problem, "Write one JSON object a line.") from None
        except (ValueError, RecursionError) as error:
            raise Broken(f"line {number} is no JSON: {error}", "Write one JSON object a line.") from None
        yield row


_READERS: Mapping[str, Callable[[BinaryIO], Iterator[object]]] = {
    ".jsonl": _read_lines,
    ".ndjson": _read_lines,
    ".json": read_array,
    ".csv": read_table,
}
