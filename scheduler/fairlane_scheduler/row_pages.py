"""Rows of runs, read a page at a time; what a client wrote there is hostile until it has been read."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from fairlane.datasets.pages import MAX_PAGE_BYTES, MAX_ROW_BYTES, BrokenPage, bounded_rows
from fairlane.errors import FairlaneError
from fairlane.logs import get_logger
from fairlane.run import RunSpec
from fairlane.store.keys import RunRef
from fairlane.store.runs import Runs

PAGES_KEPT = 32

log = get_logger("rows")

Row = dict[str, Any]


class UnreadableRow(FairlaneError, ValueError):
    """A row that is not there, or is no row: its item cannot run."""


class RowPages:
    """The most recently used pages, over all runs. What cannot be read of them is kept as the reason why."""

    def __init__(self, runs: Runs, most_row_bytes: int = MAX_ROW_BYTES) -> None:
        self._runs, self._most_row_bytes = runs, most_row_bytes
        self._pages: OrderedDict[tuple[RunRef, int], list[Row | str] | str] = OrderedDict()

    def row(self, ref: RunRef, spec: RunSpec, index: int) -> Row:
        """One row. Raises `UnreadableRow`."""
        number, offset = divmod(index, spec.page_rows)
        page = self._page(ref, number)
        if isinstance(page, str):
            raise UnreadableRow(page)
        if not offset < len(page):
            raise UnreadableRow(f"row {index + 1} is missing: page {number} has {len(page)} rows")
        row = page[offset]
        if isinstance(row, str):
            raise UnreadableRow(f"row {index + 1}: {row}")
        return row

    def forget(self, ref: RunRef) -> None:
        """A run has ended: its pages are not needed again."""
        for key in [key for key in self._pages if key[0] == ref]:
            del self._pages[key]

    def _page(self, ref: RunRef, number: int) -> list[Row | str] | str:
        key = (ref, number)
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = self._read(ref, number)
            while len(self._pages) > PAGES_KEPT:
                self._pages.popitem(last=False)
        self._pages.move_to_end(key)
        return page

    def _read(self, ref: RunRef, number: int) -> list[Row | str] | str:
        if self._runs.page_bytes(ref, [number])[0] > MAX_PAGE_BYTES:
            return f"page {number} of the run's rows is larger than {MAX_PAGE_BYTES:,} bytes"
        blob = self._runs.page(ref, number)
        if blob is None:
            return f"page {number} of the run's rows is gone from Redis"
        try:
            return bounded_rows(blob, self._most_row_bytes)
        except BrokenPage as error:
            log.warning("page_unreadable", run=ref.run, team=ref.team, page=number, error=str(error)[:200])
            return f"page {number} of the run's rows cannot be read: {str(error)[:200]}"
