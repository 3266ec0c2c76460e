"""Rows in pages that their readers can hold: of fewer rows where these are long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fairlane.core.errors import SubmissionError
from fairlane.datasets.row_json import FIELD, encode_row
from fairlane.datasets.rows import MAX_PAGE_BYTES, MAX_PAGE_VALUES, MAX_ROW_BYTES, Page

_SHORT_BYTES = 1000
"""Of a shorter row the values are not counted: it has at most as many as bytes."""

_LEAST_CUT = 8
"""Long rows make pages of an eighth of the rows or fewer, so that few runs are cut twice."""


class PageSize:
    """How large a page grows, as its readers measure it: its JSON in bytes, and its values."""

    def __init__(self) -> None:
        self._bytes, self._values = 2, 0

    def add(self, text: bytes) -> bool:
        """Add a row's JSON if the page can still be read with it; whether it can."""
        added_bytes, added_values = self._bytes + len(text) + 1, self._values + _values(text)
        if added_bytes > MAX_PAGE_BYTES or added_values > MAX_PAGE_VALUES:
            return False
        self._bytes, self._values = added_bytes, added_values
        return True


def _values(text: bytes) -> int:
    if len(text) <= _SHORT_BYTES:
        return len(text) + 1
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


class Paging:
    """Pages of ``page_rows`` rows each; the last may be shorter. It is iterated over once.

    Where so many rows make a page that no reader would take, ``page_rows`` shrinks to one of its divisors,
    also for the rows before: whoever stored their pages cuts those, too.
    """

    def __init__(
        self, rows: Iterable[Mapping[str, Any]], page_rows: int, max_row_bytes: int = MAX_ROW_BYTES
    ) -> None:
        self._rows, self._max_row_bytes = rows, max_row_bytes
        self.page_rows = page_rows

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
        """A page that is too large with row ``number`` in smaller ones; the last one is not full."""
        while True:
            self.page_rows = _divided(self.page_rows, page, number)
            starts = range(0, len(page) + 1, self.page_rows)
            parts = [page.part(start, start + self.page_rows) for start in starts]
            if all(_fits(part) for part in parts):
                return parts


def _divided(page_rows: int, page: Page, number: int) -> int:
    """The next smaller number of rows a page: any page of the old number is a whole number of new ones."""
    if page_rows == 1:
        problem = f"the row has over {MAX_PAGE_BYTES:,} bytes or {MAX_PAGE_VALUES:,} values as JSON"
        raise SubmissionError(FIELD, f"{len(page.texts[-1]):,} bytes", problem, "Shorten it.", row=number)
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
