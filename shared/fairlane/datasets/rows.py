"""Rows: read from a file or an iterable, checked, and stored in compressed pages."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import from_json, to_json

from fairlane.core.errors import BrokenPage, SubmissionError
from fairlane.datasets.array import elements_of
from fairlane.datasets.files import READERS, Reader, no_dataset, open_file, remedy_of
from fairlane.datasets.lines import MalformedFile
from fairlane.datasets.row_json import FIELD, SHORT_INT, check_row, take_row, to_row
from fairlane.datasets.tables import Table, table_rows

MAX_ROW_BYTES = 1024 * 1024
MAX_PAGE_BYTES = 64 * 1024 * 1024
"""Largest page as JSON: a small blob that inflates beyond it is an attack, not a dataset."""

MAX_PAGE_ROWS = 10_000
"""Most rows of a page, and so the largest ``page_rows`` of a run."""

MAX_PAGE_VALUES = 4_000_000
"""Commas and opening brackets of a page, also those inside texts: an upper bound of its values. Each value
takes some 100 bytes of memory once it is read."""

_PIECE_BYTES = 1024 * 1024  # of a page, inflated before it is measured
_FEW_VALUES = 100_000  # a page with no more is read at once: they are some 10 MB

_LEVEL = 1  # speed counts, for rows are written once and read twice; level 6 would save only a tenth more
to_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def read_rows(dataset: str | os.PathLike[str] | Iterable[Any] | Table) -> Iterator[dict[str, Any]]:
    """Rows in order, a few in memory at a time; a file is UTF-8, with or without a byte order mark.

    ``.jsonl`` has an object a line, blank lines aside; ``.json`` an array of objects; ``.csv`` and ``.tsv`` a
    header and text alone. A table is one of pandas, polars or Arrow. Any other iterable yields dicts, data
    classes, pydantic models or named tuples. Rows are copies: later changes to an object do not change its
    row. Raises `SubmissionError`: at once if it is no dataset, else with the bad row's number from 1.
    """
    if isinstance(dataset, str | os.PathLike):
        path = Path(dataset)
        return _checked(path, *open_file(path))
    if isinstance(dataset, Mapping):
        raise no_dataset(dataset)
    try:
        rows = None if isinstance(dataset, list | tuple) else table_rows(dataset)
    except MalformedFile as error:
        raise SubmissionError(FIELD, f"a {type(dataset).__name__}", str(error), error.remedy) from None
    if rows is None:
        rows = _iterated(dataset)
    return (
        row.copy() if type(row) is dict and is_simple(row) else take_row(row, number)
        for number, row in enumerate(rows, start=1)
    )


def _iterated(dataset: Any) -> Iterator[Any]:
    """An iterator over the elements; a sequence class may have ``__getitem__`` alone."""
    try:
        if not isinstance(dataset, (bytes, bytearray, type)):
            return iter(dataset)
    except TypeError:
        pass
    problem = f"a {type(dataset).__name__} is no dataset"
    raise SubmissionError(FIELD, dataset, problem, remedy_of(dataset))


def read_file(name: str, file: BinaryIO, suffix: str) -> Iterator[dict[str, Any]]:
    """The rows of an open file; closes it after the last. Raises `SubmissionError` for a bad row."""
    return _checked(name, file, READERS[suffix])


def _checked(path: str | Path, file: BinaryIO, reader: Reader) -> Iterator[dict[str, Any]]:
    number = 0
    with file:
        rows = reader(file)
        try:
            for number, row in enumerate(rows, start=1):
                yield row if type(row) is dict and is_simple(row) else to_row(row, number)
        except MalformedFile as error:
            raise SubmissionError(FIELD, str(path), str(error), error.remedy, row=number + 1) from None
        except SubmissionError:
            raise
        except Exception as error:  # noqa: BLE001 - the client of a remote file system has its own errors
            remedy, reason = "Read from a disk that answers.", reason_of(error)
            raise SubmissionError(
                FIELD, str(path), f"reading failed: {reason}", remedy, row=number + 1
            ) from None


def reason_of(error: Exception) -> str:
    """Why a file cannot be read."""
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"


def is_simple(row: dict[Any, Any]) -> bool:
    """Whether a row is certainly JSON: flat, with built-in types and moderate numbers, like most rows.

    It is one loop without calls, since it looks at each of a million rows.
    """
    try:
        for key, value in row.items():
            if type(key) is not str or not (key.isascii() or key.encode()):
                return False
            kind = type(value)
            if kind is str:
                if not (value.isascii() or value.encode()):
                    return False
            elif kind is int:
                if not -SHORT_INT < value < SHORT_INT:
                    return False
            elif kind is float:
                if value - value != 0:  # not finite
                    return False
            elif kind is not bool and value is not None:
                return False
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True


def encode_row(row: dict[str, Any], number: int, max_row_bytes: int) -> bytes:
    """The JSON of the ``number``-th row, from 1.

    Raises `SubmissionError` for a row that is no JSON, or is larger than ``max_row_bytes`` as JSON.
    """
    if is_simple(row):
        text = to_json(row)
        size = len(text)
    else:  # the encoder of values of any other type is Python's
        size = size_of(check_row(row, number))
        text = to_text(row).encode()
    if size > max_row_bytes:
        problem = f"the row has {size:,} bytes as JSON, at most {max_row_bytes:,} are allowed"
        remedy = "Shorten its longest field, or raise scheduler.limits.row_bytes, here and at the scheduler."
        raise SubmissionError(FIELD, row, problem, remedy, row=number)
    return text


def size_of(row: object) -> int:
    """Bytes of a checked row as JSON, ten times as fast as with the encoder of pages."""
    return len(to_json(row))


class Page(list[dict[str, Any]]):
    """Rows, with the JSON of each, which gave its size and which `encode_page` joins. ``full``: rows of each
    page of its run except the last; it may have shrunk since the page before.
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


_LEAST_CUT = 8
"""The least factor by which pages of long rows shrink, so that few runs shrink twice."""


class PageSize:
    """The size of a page as its readers measure it: bytes of JSON, and values."""

    def __init__(self) -> None:
        self._bytes, self._values = 2, 0

    def add(self, text: bytes) -> bool:
        """Add a row's JSON; false, and not added, if readers would refuse the page."""
        values = 1 + len(text) - len(text.translate(None, b",[{"))  # one pass: it sees each of a million rows
        added_bytes, added_values = self._bytes + len(text) + 1, self._values + values
        if added_bytes > MAX_PAGE_BYTES or added_values > MAX_PAGE_VALUES:
            return False
        self._bytes, self._values = added_bytes, added_values
        return True


class Paging:
    """Pages of ``page_rows`` rows each; the last may be shorter. It can be iterated once. If readers would
    refuse so large a page, ``page_rows`` shrinks to one of its divisors. The caller then cuts the pages that
    it has stored. ``fixed``: the row that makes a page too large is refused instead.
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]],
        page_rows: int,
        max_row_bytes: int = MAX_ROW_BYTES,
        *,
        fixed: bool = False,
    ) -> None:
        self._rows, self._max_row_bytes = rows, max_row_bytes
        self.page_rows = page_rows
        self._fixed = fixed

    def __iter__(self) -> Iterator[Page]:
        """The pages. Raises `SubmissionError` for a row that is no JSON, or larger than is allowed."""
        page, size = Page(), PageSize()
        for number, given in enumerate(self._rows, start=1):
            row = dict(given)
            text = encode_row(row, number, self._max_row_bytes)
            fits = size.add(text)
            page.append(row)
            page.texts.append(text)
            if fits and len(page) < self.page_rows:
                continue
            *full, page = self._cut(page, number) if not fits else (page, Page())
            yield from self._marked(full)
            size = _size_of(page)
        if page:
            yield from self._marked([page])

    def _marked(self, pages: Iterable[Page]) -> Iterator[Page]:
        for page in pages:
            page.full = self.page_rows
            yield page

    def _cut(self, page: Page, number: int) -> list[Page]:
        """Cut a page that row ``number`` makes too large into smaller ones; the last one is not full."""
        while True:
            if self.page_rows == 1 or self._fixed:
                rows = "the row has" if self.page_rows == 1 else f"{len(page)} rows in a row have"
                problem = f"{rows} over {MAX_PAGE_BYTES:,} bytes or {MAX_PAGE_VALUES:,} values as JSON"
                shown = f"{len(page.texts[-1]):,} bytes"
                raise SubmissionError(FIELD, shown, problem, "Shorten it.", row=number)
            self.page_rows = _divided(self.page_rows)
            starts = range(0, len(page) + 1, self.page_rows)
            parts = [page.part(start, start + self.page_rows) for start in starts]
            if all(_fits(part) for part in parts):
                return parts


def _divided(page_rows: int) -> int:
    """The next smaller number of rows a page: each old page is a whole number of new pages."""
    by = next(by for by in range(min(_LEAST_CUT, page_rows), page_rows + 1) if page_rows % by == 0)
    return page_rows // by


def _fits(page: Page) -> bool:
    size = PageSize()
    return all(size.add(text) for text in page.texts)


def _size_of(page: Page) -> PageSize:
    size = PageSize()
    for text in page.texts:
        size.add(text)
    return size


def encode_page(rows: list[dict[str, Any]]) -> bytes:
    """Compressed JSON of a page."""
    if isinstance(rows, Page):
        return encode_texts(rows.texts)
    return zlib.compress(to_text(rows).encode(), _LEVEL)


def encode_texts(texts: Iterable[bytes]) -> bytes:
    """A compressed page of rows that `encode_row` made."""
    return zlib.compress(b"[%b]" % b",".join(texts), _LEVEL)


def decode_page(blob: bytes) -> list[dict[str, Any]]:
    """The rows of a page. Raises `BrokenPage` for anything that `encode_page` would not have written."""
    return _rows(*_inflated(blob))


def inflates_within(blob: bytes, most_bytes: int) -> bool:
    """Whether a page has at most ``most_bytes`` of JSON, or is broken; inflates no more than that."""
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
    if size <= most_bytes:
        return row
    remedy = "Shorten its longest field, or raise scheduler.limits.row_bytes at schedulers"
    return f"it has {size:,} bytes as JSON, at most {most_bytes:,} are allowed. {remedy}"


def _inflated(blob: bytes) -> tuple[bytes, int]:
    """The text of a page, and an upper bound of its values. Both are checked while it inflates."""
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
    """The rows of a page of at most ``values``; stops at too many rows."""
    try:
        few = values <= _FEW_VALUES
        rows = _few_values(text) if few else list(islice(elements_of(text.decode()), MAX_PAGE_ROWS + 1))
    except (ValueError, RecursionError) as error:
        raise BrokenPage(f"a page of rows cannot be read: {error}") from error
    if not isinstance(rows, list):
        raise BrokenPage("a page of rows is no list of objects")
    if len(rows) > MAX_PAGE_ROWS:
        raise BrokenPage(f"a page of rows holds more than {MAX_PAGE_ROWS:,} rows")
    try:
        return [
            row if type(row) is dict and is_simple(row) else check_row(row, number)
            for number, row in enumerate(rows, start=1)
        ]
    except SubmissionError as error:
        raise BrokenPage(f"a page of rows holds what is no row: {error}") from error


def _few_values(text: bytes) -> Any:
    """The JSON of a page. pydantic's parser is faster, but takes only valid Unicode; Python's takes all."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)
