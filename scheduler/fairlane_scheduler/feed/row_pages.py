"""Keeps pages of rows of the runs that are fed; large ones are decoded by child processes."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import Future
from typing import Any

from fairlane.core.errors import BrokenPage, CutOff, UnreadableRow, WorkRaised
from fairlane.core.events import Event
from fairlane.core.lru import Lru
from fairlane.datasets.rows import MAX_PAGE_BYTES, MAX_ROW_BYTES, bounded_rows, inflates_within
from fairlane.model.run import RunRef, RunSpec
from fairlane.sandbox.pieces import ReadPage
from fairlane.sandbox.pool import Pool
from fairlane.store.write.runs.runs import Runs
from fairlane.telemetry.logs import get_logger

PAGES_KEPT = 32
LARGE_PAGES_KEPT = 8  # of up to 64 MiB each

AT_ONCE_BYTES = 1 << 18
"""Bytes of JSON of a page that is decoded in a tick: it takes some milliseconds."""

log = get_logger("rows")

Row = dict[str, Any]
_Page = list[Row | str] | list[bytes]
_Key = tuple[RunRef, int]


class PageAwaited(Exception):
    """A child process decodes the page; it is asked for again in a later tick."""


class RowPages:
    """Keeps the most recently used pages of all runs; for an unreadable page or row it keeps the reason.

    Large pages are decoded by ``pool``, and kept as a text for each row. Without a pool all are decoded at
    once.
    """

    def __init__(self, runs: Runs, most_row_bytes: int = MAX_ROW_BYTES, pool: Pool | None = None) -> None:
        self._runs = runs
        self._most_row_bytes = most_row_bytes
        self._pool = pool
        self._pages = Lru[_Key, _Page | str](PAGES_KEPT)
        self._large_pages = Lru[_Key, _Page](LARGE_PAGES_KEPT)
        self._awaited: dict[_Key, Future[list[bytes]]] = {}
        self.cut_off = Counter[RunRef]()
        """Pages, by run, whose decoding went past a limit."""

    def row(self, ref: RunRef, spec: RunSpec, index: int) -> Row:
        """One row. Raises `UnreadableRow`, `PageAwaited` while a child decodes its page, and `NoChild`."""
        number, offset = divmod(index, spec.page_rows)
        key = (ref, number)
        page: _Page | str | None = self._large_pages.get(key)
        if page is None:
            page = self._pages.get(key)
        if page is None:
            page = self._read(key)
        if isinstance(page, str):
            raise UnreadableRow(page)
        if not offset < len(page):
            raise UnreadableRow(f"row {index + 1} is missing: page {number} has {len(page)} rows")
        row = page[offset]
        if isinstance(row, bytes):
            row = json.loads(row)
        if isinstance(row, str):
            raise UnreadableRow(f"row {index + 1}: {row}")
        return row

    def forget(self, ref: RunRef) -> None:
        """Drop the pages of a run that has ended."""
        self._pages.drop_where(lambda key: key[0] == ref)
        self._large_pages.drop_where(lambda key: key[0] == ref)
        for key in [key for key in self._awaited if key[0] == ref]:
            self._awaited.pop(key).cancel()
        self.cut_off.pop(ref, None)

    def _read(self, key: _Key) -> _Page | str:
        awaited = self._awaited.get(key)
        if awaited is not None:
            if not awaited.done():
                raise PageAwaited
            del self._awaited[key]
            return self._decoded(key, awaited)
        blob = self._blob(key)
        if isinstance(blob, str):
            self._pages.put(key, blob)
            return blob
        if self._pool is not None and not inflates_within(blob, AT_ONCE_BYTES):
            piece = ReadPage(blob, self._most_row_bytes)
            self._awaited[key] = self._pool.submit(key[0].team, piece)
            raise PageAwaited
        try:
            page: _Page | str = bounded_rows(blob, self._most_row_bytes)
        except BrokenPage as error:
            page = self._unreadable(key, error)
        self._pages.put(key, page)
        return page

    def _decoded(self, key: _Key, done: Future[list[bytes]]) -> _Page | str:
        """The page that a child has decoded, or the reason why there is none. Raises `NoChild`."""
        try:
            page = done.result()
        except (BrokenPage, CutOff, WorkRaised) as error:
            if isinstance(error, CutOff):
                self.cut_off[key[0]] += 1
            reason = self._unreadable(key, error)
            self._pages.put(key, reason)
            return reason
        self._large_pages.put(key, page)
        return page

    def _blob(self, key: _Key) -> bytes | str:
        """A page as it is stored, or the reason why there is none."""
        ref, number = key
        if self._runs.page_bytes(ref, [number])[0] > MAX_PAGE_BYTES:
            return f"page {number} of the run's rows is larger than {MAX_PAGE_BYTES:,} bytes"
        blob = self._runs.page(ref, number)
        return f"page {number} of the run's rows is gone from Redis" if blob is None else blob

    @staticmethod
    def _unreadable(key: _Key, error: Exception) -> str:
        (ref, number), words = key, str(error)[:200]
        log.warning(Event.PAGE_UNREADABLE, run=ref.run, team=ref.team, page=number, error=words)
        return f"page {number} of the run's rows cannot be read: {words}"
