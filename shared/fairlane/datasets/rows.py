"""Rows: read from a file or an iterable, checked, and stored in compressed pages."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import from_json

from fairlane.core.errors import BrokenPage, SubmissionError
from fairlane.datasets.array import read_array
from fairlane.datasets.json_check import SHORT_INT
from fairlane.datasets.lines import Broken, read_lines, read_table, read_tabs
from fairlane.datasets.row_json import (
    FIELD,
    check_row,
    encode_row,
    is_simple,
    size_of,
    take_row,
    to_row,
    to_text,
)
from fairlane.datasets.tables import Table, read_parquet, table_rows

MAX_ROW_BYTES = 1024 * 1024
MAX_PAGE_BYTES = 64 * 1024 * 1024
"""Largest page as JSON: a small blob that inflates beyond it is an attack, not a dataset."""

MAX_PAGE_ROWS = 10_000
"""Rows of a page: the most that a run's ``page_rows`` may be."""

MAX_PAGE_VALUES = 4_000_000
"""Commas and opening brackets of a page, also those inside texts: an upper bound of its values. Each value
takes some 100 bytes of memory once it is read."""

_PIECE_BYTES = 1024 * 1024  # of a page, inflated before it is measured
_FEW_VALUES = 100_000  # a page with no more is read at once: they are some 10 MB

_DATASET_REMEDY = (
    "Give a path (.jsonl, .json, .csv, .tsv, .parquet), a DataFrame or table, or an iterable of rows."
)
_LEVEL = 1  # speed counts, for rows are written once and read twice; level 6 would save only a tenth more
_SPACE = re.compile(r"[ \t\n\r]*")
_decode_at = json.JSONDecoder().raw_decode


def read_rows(dataset: str | os.PathLike[str] | Iterable[Any] | Table) -> Iterator[dict[str, Any]]:
    """Rows in order, some in memory at a time; a file's text is UTF-8, with or without a byte order mark.

    ``.jsonl`` has an object a line, blank lines aside; ``.json`` an array of objects; ``.csv`` and ``.tsv`` a
    header and text alone. A table is one of pandas, polars or Arrow. Any other iterable yields dicts, data
    classes, pydantic models or named tuples.
    What a program does to a row later does not reach the row that was read.
    Raises `SubmissionError`: at once if it is no dataset, else with the bad row's number from 1.
    """
    if isinstance(dataset, str | os.PathLike):
        return _read_file(Path(dataset))
    if isinstance(dataset, Mapping):
        raise _one_row(dataset)
    try:
        rows = None if isinstance(dataset, list | tuple) else table_rows(dataset)
    except Broken as error:
        raise SubmissionError(FIELD, f"a {type(dataset).__name__}", str(error), error.remedy) from None
    if rows is None:
        rows = _iterated(dataset)
    return (
        row.copy() if type(row) is dict and is_simple(row) else take_row(row, number)
        for number, row in enumerate(rows, start=1)
    )


def _iterated(dataset: Any) -> Iterator[Any]:
    """An iterator over the elements; a sequence of a user's own may have ``__getitem__`` alone."""
    try:
        if not isinstance(dataset, (bytes, bytearray, type)):
            return iter(dataset)
    except TypeError:
        pass
    problem = f"a {type(dataset).__name__} is no dataset"
    raise SubmissionError(FIELD, dataset, problem, _remedy_of(dataset))


def _one_row(dataset: Mapping[Any, Any]) -> SubmissionError:
    if type(dataset).__name__.endswith("DatasetDict"):  # of Hugging Face: splits by name
        name = next(iter(dataset), "train")
        return SubmissionError(FIELD, sorted(dataset), "has several splits", f"Name one: dataset[{name!r}].")
    lengths = {len(column) if _is_column(column) else -1 for column in dataset.values()}
    if len(lengths) == 1 and lengths.isdisjoint({-1}):
        problem = f"a dict of {len(dataset)} lists of {lengths.pop():,} values each are columns, not rows"
        remedy = "Give pandas.DataFrame(columns); of a dataset of Hugging Face, dataset.select(range(10))."
        return SubmissionError(FIELD, sorted(map(str, dataset)), problem, remedy)
    return SubmissionError(FIELD, dataset, "a dict is one row, not a dataset", "Put it into a list: [{…}].")


def _is_column(value: object) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | Mapping)


def _remedy_of(dataset: object) -> str:
    if isinstance(dataset, AsyncIterable):
        return "Write its rows into an open run: AsyncClient.open(…), then `await rows.extend(…)`."
    if hasattr(dataset, "to_table"):  # of pyarrow.dataset
        return "Pass its rows: dataset.to_table()."
    return _DATASET_REMEDY


def _read_file(path: Path) -> Iterator[dict[str, Any]]:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        problem = (
            f"it ends in {path.suffix}, which is not read" if path.suffix else "it is no path of a dataset"
        )
        raise SubmissionError(FIELD, str(path), problem, _DATASET_REMEDY)
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
    """The rows of an open file; closes it after the last. Raises `SubmissionError` for a bad row."""
    return _checked(name, file, _READERS[suffix])


def _checked(
    path: str | Path, file: BinaryIO, reader: Callable[[BinaryIO], Iterator[object]]
) -> Iterator[dict[str, Any]]:
    number = 0
    with file:
        rows = reader(file)
        try:
            for number, row in enumerate(rows, start=1):
                yield to_row(row, number)
        except Broken as error:
            raise SubmissionError(FIELD, str(path), str(error), error.remedy, row=number + 1) from None
        except OSError as error:
            remedy = "Read from a disk that answers."
            problem = f"reading failed: {error.strerror}"
            raise SubmissionError(FIELD, str(path), problem, remedy, row=number + 1) from None


_READERS: Mapping[str, Callable[[BinaryIO], Iterator[object]]] = {
    ".jsonl": read_lines,
    ".ndjson": read_lines,
    ".json": read_array,
    ".csv": read_table,
    ".tsv": read_tabs,
    ".parquet": read_parquet,
}


class Page(list[dict[str, Any]]):
    """Rows, with the JSON of each: their size was measured by it, and `encode_page` joins it.

    ``full``: rows of each page of its run but the last, where that may have changed since the page before.
    """

    __slots__ = ("full", "texts")

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[bytes] = []
        self.full: int | None = None

    def part(self, start: int, end: int) -> Page:
        """The rows from ``start`` to before ``end``."""
        part = Page()
        part.extend(self[start:end])
        part.texts = self.texts[start:end]
        return part


def pages(
    rows: Iterable[Mapping[str, Any]], page_rows: int, max_row_bytes: int = MAX_ROW_BYTES
) -> Iterator[Page]:
    """Rows in pages of ``page_rows``; the last may be shorter.

    Raises `SubmissionError` for a row that is no JSON, is larger than ``max_row_bytes`` when encoded, or
    makes its page larger than `MAX_PAGE_BYTES`.
    """
    page, page_bytes = Page(), 2
    for number, given in enumerate(rows, start=1):
        row = dict(given)
        text = encode_row(row, number, max_row_bytes)
        page_bytes += len(text) + 1
        if page_bytes > MAX_PAGE_BYTES:
            problem = f"{len(page) + 1} rows in a row have over {MAX_PAGE_BYTES:,} bytes as JSON"
            raise SubmissionError(FIELD, row, problem, "Shorten the rows.", row=number)
        page.append(row)
        page.texts.append(text)
        if len(page) == page_rows:
            yield page
            page, page_bytes = Page(), 2
    if page:
        yield page


def encode_page(rows: list[dict[str, Any]]) -> bytes:
    """Compressed JSON of a page that `pages` made."""
    if isinstance(rows, Page):
        return encode_texts(rows.texts)
    return zlib.compress(to_text(rows).encode(), _LEVEL)


def encode_texts(texts: Iterable[bytes]) -> bytes:
    """A page of rows of which each is JSON already, as `encode_row` makes it."""
    return zlib.compress(b"[%b]" % b",".join(texts), _LEVEL)


def decode_page(blob: bytes) -> list[dict[str, Any]]:
    """The rows of a page. Raises `BrokenPage` for anything that `encode_page` would not have written."""
    return _rows(*_inflated(blob))


def inflates_within(blob: bytes, most_bytes: int) -> bool:
    """Whether a page has at most ``most_bytes`` of JSON, or is broken; it reads no more than that of it."""
    if len(blob) > most_bytes:
        return False
    inflater = zlib.decompressobj()
    try:
        inflater.decompress(blob, most_bytes)
    except zlib.error:
        return True
    return inflater.eof or not inflater.unconsumed_tail


def bounded_rows(blob: bytes, most_bytes: int) -> list[dict[str, Any] | str]:
    """Like `decode_page`, with an error text in place of each row above ``most_bytes`` of JSON."""
    text, values = _inflated(blob)
    rows: list[dict[str, Any] | str] = [*_rows(text, values)]
    if len(text) <= most_bytes:
        return rows
    return [_bounded(row, most_bytes) for row in rows]


def _bounded(row: dict[str, Any] | str, most_bytes: int) -> dict[str, Any] | str:
    size = size_of(row)
    return row if size <= most_bytes else f"it has {size:,} bytes as JSON, at most {most_bytes:,} are allowed"


def _inflated(blob: bytes) -> tuple[bytes, int]:
    """The text of a page, and how many values it has at most. Both are bounded as they come out."""
    inflater, parts, size, values = zlib.decompressobj(), list[bytes](), 0, 0
    try:
        while not inflater.eof:
            part = inflater.decompress(blob, _PIECE_BYTES)
            blob = inflater.unconsumed_tail
            parts.append(part)
            size += len(part)
            values += sum(part.count(sign) for sign in (b",", b"[", b"{"))
            if values > MAX_PAGE_VALUES:
                raise BrokenPage(f"a page of rows holds more than {MAX_PAGE_VALUES:,} values")
            if size > MAX_PAGE_BYTES or not (part or inflater.eof):
                raise BrokenPage(f"a page of rows is cut short, or larger than {MAX_PAGE_BYTES:,} bytes")
    except zlib.error as error:
        raise BrokenPage(f"a page of rows cannot be read: {error}") from error
    return b"".join(parts), values


def _rows(text: bytes, values: int) -> list[dict[str, Any]]:
    """The rows of a page of at most ``values``; of a large one, what follows too many rows is not read."""
    try:
        if values <= _FEW_VALUES:
            rows, checked = _few_values(text)
        else:
            checked = False
            rows = list(islice(_elements(text.decode()), MAX_PAGE_ROWS + 1))
    except (ValueError, RecursionError) as error:
        raise BrokenPage(f"a page of rows cannot be read: {error}") from error
    if not isinstance(rows, list):
        raise BrokenPage("a page of rows is no list of objects")
    if len(rows) > MAX_PAGE_ROWS:
        raise BrokenPage(f"a page of rows holds more than {MAX_PAGE_ROWS:,} rows")
    if checked:
        return rows
    try:
        return [check_row(row, number) for number, row in enumerate(rows, start=1)]
    except SubmissionError as error:
        raise BrokenPage(f"a page of rows holds what is no row: {error}") from error


def _few_values(text: bytes) -> tuple[Any, bool]:
    """The JSON of a page, and whether it is certainly a list of sound rows, as nearly all pages are.

    pydantic's parser is the faster one, and takes only valid Unicode. What it does not read, Python's may.
    """
    try:
        rows = from_json(text)
    except ValueError:
        return json.loads(text), False
    if not isinstance(rows, list) or set(map(type, rows)) != {dict}:
        return rows, False
    values = list(chain.from_iterable(map(dict.values, rows)))
    kinds = set(map(type, values)) - {str, bool, type(None)}
    sound = kinds <= {int, float} and all(
        -SHORT_INT < each < SHORT_INT and each - each == 0  # and finite
        for each in values
        if each.__class__ is int or each.__class__ is float
    )
    return rows, sound


def _elements(document: str) -> Iterator[Any]:
    """The elements of a JSON list as they are read. Raises ``ValueError``, `BrokenPage` for no list."""
    at = _after_space(document, 0)
    if not document.startswith("[", at):
        raise BrokenPage("a page of rows is no list of objects")
    at = _after_space(document, at + 1)
    if document.startswith("]", at):
        at = _after_space(document, at + 1)
    else:
        while True:
            value, at = _decode_at(document, at)
            yield value
            at = _after_space(document, at)
            sign, at = document[at : at + 1], _after_space(document, at + 1)
            if sign == "]":
                break
            if sign != ",":
                raise ValueError(f"a comma or the list's end is missing at character {at}")
    if at < len(document):
        raise ValueError(f"more follows the list at character {at}")


def _after_space(document: str, at: int) -> int:
    found = _SPACE.match(document, at)
    return at if found is None else found.end()
