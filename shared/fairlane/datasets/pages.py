"""Rows in compressed pages: what a client uploads and scheduler and workers read again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fairlane.errors import FairlaneError, SubmissionError

MAX_ROW_BYTES = 1024 * 1024
MAX_PAGE_BYTES = 64 * 1024 * 1024
"""Largest page after inflation: a small blob that inflates beyond it is an attack, not a dataset."""

_LEVEL = 1  # the rows are written once and read twice: speed counts, and level 6 saves a tenth more


class BrokenPage(FairlaneError):
    """A page of rows in Redis that is not what a client writes."""


def pages(
    rows: Iterable[Mapping[str, Any]], page_rows: int, max_row_bytes: int = MAX_ROW_BYTES
) -> Iterator[list[dict[str, Any]]]:
    """Rows by the page, each of ``page_rows`` but the last.

    Raises `SubmissionError` for a row that is no JSON, or larger than ``max_row_bytes`` when encoded.
    """
    page: list[dict[str, Any]] = []
    for number, row in enumerate(rows, start=1):
        size = len(_encode_row(row, number))
        if size > max_row_bytes:
            problem = f"the row has {size:,} bytes, at most {max_row_bytes:,} are allowed"
            raise SubmissionError("dataset", dict(row), problem, "Shorten it.", row=number)
        page.append(dict(row))
        if len(page) == page_rows:
            yield page
            page = []
    if page:
        yield page


def encode_page(rows: list[dict[str, Any]]) -> bytes:
    """Compressed JSON of a page."""
    return zlib.compress(_dumps(rows).encode(), _LEVEL)


def decode_page(blob: bytes) -> list[dict[str, Any]]:
    """The rows of a page. Raises `BrokenPage` for anything that `encode_page` would not have written."""
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(blob, MAX_PAGE_BYTES)
        if inflater.unconsumed_tail or not inflater.eof:
            raise BrokenPage(f"a page of rows is cut short, or larger than {MAX_PAGE_BYTES:,} bytes")
        rows = json.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise BrokenPage(f"a page of rows cannot be read: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BrokenPage("a page of rows is no list of objects")
    return rows


def _encode_row(row: Mapping[str, Any], number: int) -> bytes:
    try:
        return _dumps(dict(row)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        remedy = "Use text, numbers, booleans, null, lists and objects."
        raise SubmissionError("dataset", dict(row), f"is not JSON: {error}", remedy, row=number) from error


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
