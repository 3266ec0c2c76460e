"""Reads rows one by one from ``.jsonl``, ``.json`` and ``.csv`` files, or from any iterable of dicts."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from fairlane.errors import SubmissionError

FIELD = "dataset"
LONGEST_LINE = 16 * 1024 * 1024
READ_CHARS = 64 * 1024
_SPACE = " \t\r\n"


def read_rows(dataset: str | os.PathLike[str] | Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows in order, few in memory at a time. Raises `SubmissionError` that names the row, from 1."""
    if isinstance(dataset, str | os.PathLike):
        yield from _read_file(Path(dataset))
        return
    if isinstance(dataset, Mapping | bytes) or not isinstance(dataset, Iterable):
        raise SubmissionError(
            FIELD,
            type(dataset).__name__,
            "is no dataset",
            "Give a path (.jsonl, .json, .csv), a list of dicts, or an iterable of dicts.",
        )
    for number, row in enumerate(dataset, start=1):
        yield check_row(row, number)


def check_row(row: object, number: int) -> dict[str, Any]:
    """The row as a dict. Raises `SubmissionError` where it is none, or has keys that are not text."""
    if not isinstance(row, Mapping):
        raise SubmissionError(FIELD, row, "a row must be an object", "Name its fields.", row=number)
    for key in row:
        if not isinstance(key, str):
            raise SubmissionError(FIELD, key, "a field name must be text", "Rename the field.", row=number)
    return dict(row)


def _read_file(path: Path) -> Iterator[dict[str, Any]]:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise SubmissionError(
            FIELD, str(path), f"{path.suffix or 'no suffix'} is not read", "Use .jsonl, .json or .csv."
        )
    try:
        with path.open(encoding="utf-8-sig", newline="" if path.suffix.lower() == ".csv" else None) as file:
            yield from reader(file)
    except FileNotFoundError:
        raise SubmissionError(FIELD, str(path), "there is no such file", "Check the path.") from None
    except OSError as error:
        raise SubmissionError(FIELD, str(path), f"cannot be read: {error.strerror}", "") from error
    except UnicodeDecodeError as error:
        raise SubmissionError(
            FIELD, str(path), f"is not UTF-8 (byte {error.start})", "Convert the file to UTF-8."
        ) from error


def _read_jsonl(file: TextIO) -> Iterator[dict[str, Any]]:
    number = 0
    while line := file.readline(LONGEST_LINE):
        if not line.strip():
            continue
        number += 1
        if len(line) >= LONGEST_LINE:
            raise SubmissionError(
                FIELD, f"{line[:40]}…", f"a line is longer than {LONGEST_LINE} characters", "", row=number
            )
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SubmissionError(
                FIELD, line.strip(), f"is not JSON: {error}", "Write one object a line.", row=number
            ) from error
        yield check_row(row, number)


def _read_json(file: TextIO) -> Iterator[dict[str, Any]]:
    """An array of objects, decoded one element at a time."""
    decoder, buffer, number, ended = json.JSONDecoder(), "", 0, False

    def fill() -> bool:
        nonlocal buffer, ended
        more = file.read(
            max(READ_CHARS, len(buffer))
        )  # doubling: a long element is not scanned again and again
        ended = not more
        buffer += more
        return not ended

    def broken(problem: str) -> SubmissionError:
        return SubmissionError(
            FIELD, buffer[:80], problem, "Write an array of objects: [{…}, {…}].", row=number or None
        )

    fill()
    buffer = buffer.lstrip(_SPACE)
    if not buffer.startswith("["):
        raise broken("is no JSON array")
    buffer, separator = buffer[1:], ""
    while True:
        buffer = buffer.lstrip(_SPACE)
        if not buffer and fill():
            continue
        if buffer.startswith("]") and separator != ",":
            return
        number += 1
        while True:
            try:
                row, end = decoder.raw_decode(buffer)
            except (ValueError, RecursionError) as error:
                if len(buffer) > LONGEST_LINE or not fill():
                    raise broken(f"is not JSON: {error}") from error
            else:
                break
        yield check_row(row, number)
        buffer = buffer[end:].lstrip(_SPACE)
        while not buffer and fill():
            buffer = buffer.lstrip(_SPACE)
        separator = buffer[:1]
        if separator not in (",", "]"):
            raise broken("elements must be separated by commas")
        if separator == ",":
            buffer = buffer[1:]


def _read_csv(file: TextIO) -> Iterator[dict[str, Any]]:
    reader = csv.reader(file, strict=True)
    try:
        header = next(reader, None)
        if header is None:
            return
        if len(set(header)) != len(header):
            raise SubmissionError(FIELD, header, "two columns have one name", "Rename one of them.")
        number = 0
        for cells in reader:
            if not cells:
                continue
            number += 1
            if len(cells) != len(header):
                raise SubmissionError(
                    FIELD,
                    cells,
                    f"has {len(cells)} cells, the header has {len(header)}",
                    "Quote cells that contain commas.",
                    row=number,
                )
            yield dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise SubmissionError(FIELD, f"line {reader.line_num}", f"is not CSV: {error}", "") from error


_READERS: dict[str, Callable[[TextIO], Iterator[dict[str, Any]]]] = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
}
