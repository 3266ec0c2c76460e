"""Which sessions rows belong to, read a page at a time; what a client wrote there is hostile until read."""

from __future__ import annotations

from collections import OrderedDict

from fairlane.logs import get_logger
from fairlane.run import RunSpec
from fairlane.sessions import BrokenSessions, Seat, decode_seats
from fairlane.store.keys import RunRef
from fairlane.store.runs import Runs

PAGES_KEPT = 32

log = get_logger("rows")


class Seats:
    """The most recently used pages, over all runs."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._pages: OrderedDict[tuple[RunRef, int], list[Seat]] = OrderedDict()

    def of(self, ref: RunRef, spec: RunSpec, row: int) -> Seat | None:
        """A row's seat; ``None`` where nothing is evaluated by session, or where it cannot be told.

        The evaluations of a session that misses rows are skipped at the run's end (``lib/session.lua``).
        """
        if not spec.session_evals:
            return None
        number, offset = divmod(row, spec.page_rows)
        key = (ref, number)
        if key not in self._pages:
            self._pages[key] = self._read(ref, spec, number)
            while len(self._pages) > PAGES_KEPT:
                self._pages.popitem(last=False)
        self._pages.move_to_end(key)
        page = self._pages[key]
        return page[offset] if offset < len(page) else None

    def forget(self, ref: RunRef) -> None:
        """A run has ended: its pages are not needed again."""
        for key in [key for key in self._pages if key[0] == ref]:
            del self._pages[key]

    def _read(self, ref: RunRef, spec: RunSpec, number: int) -> list[Seat]:
        blob = self._runs.seats(ref, number)
        try:
            return decode_seats(blob or b"", spec.sessions)
        except BrokenSessions as error:
            log.warning(
                "sessions_unreadable", run=ref.run, team=ref.team, page=number, error=str(error)[:200]
            )
            return []
