"""Rows in compressed pages: what a client uploads and scheduler and workers read again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fairlane.datasets.rows import FIELD, check_row
from fairlane.errors import FairlaneError, SubmissionError

MAX_ROW_BYTES = 1024 * 1024
MAX_PAGE_BYTES = 64 * 1024 * 1024
"""Largest page as JSON: a small blob that inflates beyond it is an attack, not a dataset."""

_LEVEL = 1  # rows are written once and read twice: speed counts, and level 6 saves only a tenth more
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class BrokenPage(FairlaneError):
    """A page of rows in Redis that is not what a client writes."""


def pages(
    rows: Iterable[Mapping[str, Any]], page_rows: int, max_row_bytes: int = MAX_ROW_BYTES
) -> Iterator[list[dict[str, Any]]]:
    """Rows by the page, each of ``page_rows`` but the last.

    Raises `SubmissionError` for a row that is no JSON, is larger than ``max_row_bytes`` when encoded, or
    makes its page larger than `MAX_PAGE_BYTES`.
    """
    page: list[dict[str, Any]] = []
    page_bytes = 2
    for number, given in enumerate(rows, start=1):
        row = dict(given)
        size = _row_bytes(row, number)
        page_bytes += size + 1
        if size > max_row_bytes:
            problem = f"the row has {size:,} bytes as JSON, at most {max_row_bytes:,} are allowed"
            raise SubmissionError(FIELD, row, problem, "Shorten its longest field.", row=number)
        if page_bytes > MAX_PAGE_BYTES:
            problem = f"{len(page) + 1} rows in a row have over {MAX_PAGE_BYTES:,} bytes as JSON"
            raise SubmissionError(FIELD, row, problem, "Shorten the rows.", row=number)
        page.append(row)
        if len(page) == page_rows:
            yield page
            page, page_bytes = [], 2
    if page:
        yield page


def encode_page(rows: list[dict[str, Any]]) -> bytes:
    """Compressed JSON of a page that `pages` made."""
    return zlib.compress(_encode(rows).encode(), _LEVEL)


def decode_page(blob: bytes) -> list[dict[str, Any]]:
    """The rows of a page. Raises `BrokenPage` for anything that `encode_page` would not have written."""
    return _rows(_inflated(blob))


def bounded_rows(blob: bytes, most_bytes: int) -> list[dict[str, Any] | str]:
    """Like `decode_page`, with the reason in place of a row that is larger than ``most_bytes`` as JSON."""
    text = _inflated(blob)
    rows: list[dict[str, Any] | str] = [*_rows(text)]
    if len(text) <= most_bytes:
        return rows
    return [_bounded(row, most_bytes) for row in rows]


def _bounded(row: dict[str, Any] | str, most_bytes: int) -> dict[str, Any] | str:
    size = len(_encode(row).encode(errors="replace"))
    return row if size <= most_bytes else f"it has {size:,} bytes as JSON, at most {most_bytes:,} are allowed"


def _inflated(blob: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(blob, MAX_PAGE_BYTES)
        if not inflater.eof:
            raise BrokenPage(f"a page of rows is cut short, or larger than {MAX_PAGE_BYTES:,} bytes")
    except zlib.error as error:
        raise BrokenPage(f"a page of rows cannot be read: {error}") from error
    return text


def _rows(text: bytes) -> list[dict[str, Any]]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BrokenPage(f"a page of rows cannot be read: {error}") from error
    if not isinstance(rows, list):
        raise BrokenPage("a page of rows is no list of objects")
    try:
        return [check_row(row, number) for number, row in enumerate(rows, start=1)]
    except SubmissionError as error:
        raise BrokenPage(f"a page of rows holds what is no row: {error}") from error


def _row_bytes(row: dict[str, Any], number: int) -> int:
    try:
        return len(_encode(row).encode())
    except (TypeError, ValueError, RecursionError) as error:
        check_row(row, number)  # says which value it is
        raise SubmissionError(FIELD, "a row", f"is no JSON: {error}", "Simplify it.", row=number) from error
