"""Files whose lines are rows: JSON lines, and CSV with a header. UTF-8, of bounded length."""

import codecs
import csv
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

MAX_ROW_CHARS = 16 * 1024 * 1024
"""Most characters of one row in memory. A run's own limit is lower, but applies after a row was read."""


_NAMES = {",": "commas", "\t": "tabs"}
_OTHERS = {";": "a semicolon", "\t": "a tab", "|": "a bar"}


class MalformedFile(Exception):
    """A file's content does not fit its format, from the row after the last one read."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


_LINE_ENDS = "Save it with LF or CRLF line ends."


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An ``object_pairs_hook`` for JSON decoders. Raises `MalformedFile` for a repeated key."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in fields if names.count(name) > 1)
        raise MalformedFile(
            f"the key {twice!r} stands twice in an object", "Give every key of an object once."
        )
    return fields


def numbered_lines(file: BinaryIO) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and lines with their ends. Raises `MalformedFile` for bad UTF-8 and long lines."""
    number = 0
    while line := file.readline(MAX_ROW_CHARS + 1):
        number += 1
        if len(line) > MAX_ROW_CHARS:
            remedy = _LINE_ENDS if b"\r" in line and b"\n" not in line else "Write one row a line."
            raise MalformedFile(f"line {number} is longer than {MAX_ROW_CHARS:,} bytes", remedy)
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
            if not line:
                continue
        try:
            yield number, line.decode()
        except UnicodeDecodeError as error:
            raise not_utf8(f"line {number}, byte {error.start + 1}") from None


def not_utf8(where: str) -> MalformedFile:
    """The error for a file in another encoding."""
    return MalformedFile(f"{where} is not UTF-8", "Save the file as UTF-8.")


def read_lines(file: BinaryIO) -> Iterator[object]:
    """The JSON value of each line, blank lines aside. Raises `MalformedFile`."""
    for number, line in numbered_lines(file):
        if line.isspace():
            continue
        try:
            row = json.loads(line.rstrip("\r\n"), object_pairs_hook=unique_keys)
        except MalformedFile as error:
            raise MalformedFile(f"line {number}: {error}", error.remedy) from None
        except json.JSONDecodeError as error:
            problem = f"line {number}, column {error.colno} is no JSON: {error.msg}"
            remedy = _LINE_ENDS if "\r" in line.rstrip("\r\n") else "Write one JSON object a line."
            raise MalformedFile(problem, remedy) from None
        except (ValueError, RecursionError) as error:
            raise MalformedFile(
                f"line {number} is no JSON: {error}", "Write one JSON object a line."
            ) from None
        yield row


def read_table(file: BinaryIO, delimiter: str = ",") -> Iterator[object]:
    """Records under the header's names; cells are text, never numbers. Raises `MalformedFile`.

    Lines of empty cells are skipped like empty lines: spreadsheets write them at the end.
    """
    reader = csv.reader((line for _, line in numbered_lines(file)), strict=True, delimiter=delimiter)
    try:
        header: list[str] | None = None
        for cells in reader:
            if not cells:
                continue
            if header is None:
                header = _header(cells)
                continue
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                if delimiter == "," and len(header) == 1 and (other := other_separator(*header)):
                    raise other
                found = f"{len(cells)} cell{'' if len(cells) == 1 else 's'}"
                problem = f"line {reader.line_num} has {found}, the header has {len(header)}"
                remedy = f'Quote cells that hold {_NAMES[delimiter]} or line ends: "a{delimiter} b".'
                raise MalformedFile(problem, remedy)
            yield dict(zip(header, cells, strict=True))
    except csv.Error as error:
        kind = "TSV" if delimiter != "," else "CSV"
        if "new-line character" in str(error):  # Python's message addresses the program that opened the file
            raise MalformedFile(
                f"line {reader.line_num} holds a lone CR outside quotes", _LINE_ENDS
            ) from None
        limit = f"A cell has at most {csv.field_size_limit():,} characters; use .jsonl for longer texts."
        remedy = limit if "limit" in str(error) else 'Quote cells with ", and double a quote inside them.'
        raise MalformedFile(f"line {reader.line_num} is no {kind}: {error}", remedy) from None


def read_tabs(file: BinaryIO) -> Iterator[object]:
    """`read_table` of cells that tabs separate. Raises `MalformedFile`."""
    return read_table(file, "\t")


def other_separator(column: str) -> MalformedFile | None:
    """The error for a one-column CSV file whose header shows another separator than a comma."""
    mark = next((mark for mark in _OTHERS if mark in column), None)
    if mark is None:
        return None
    return MalformedFile(
        f"has a single column, {column!r}: is {_OTHERS[mark]} the separator?",
        f"Separate columns by commas, or pass csv.DictReader(file, delimiter={mark!r}) from Python.",
    )


def _header(cells: list[str]) -> list[str]:
    for column, name in enumerate(cells, start=1):
        if not name.strip():
            raise MalformedFile(f"column {column} has no name", "Name every column in the first line.")
        if name in cells[: column - 1]:
            raise MalformedFile(f"two columns are named {name!r}", "Give every column a name of its own.")
    return cells
