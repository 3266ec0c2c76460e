"""Looks up which session a row belongs to. Clients wrote these pages, so each is checked when it is read."""

from fairlane.core.errors import BrokenSessions
from fairlane.core.events import Event
from fairlane.core.lru import Lru
from fairlane.model.run import RunRef, RunSpec
from fairlane.model.sessions import SessionMembership, decode_memberships
from fairlane.store.write.runs.runs import Runs
from fairlane.telemetry.logs import get_logger

PAGES_KEPT = 32

log = get_logger("rows")


class SessionIndex:
    """Keeps the most recently used pages of all runs."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._pages = Lru[tuple[RunRef, int], list[SessionMembership]](PAGES_KEPT)

    def of(self, ref: RunRef, spec: RunSpec, row: int) -> SessionMembership | None:
        """A row's membership; ``None`` if the run evaluates no sessions, or the page is unreadable.

        ``lib/run/sessions.lua`` skips the evaluations of an incomplete session when the run ends.
        """
        if not spec.session_evals:
            return None
        number, offset = divmod(row, spec.page_rows)
        page = self._pages.get_or_make((ref, number), lambda: self._read(ref, spec, number))
        return page[offset] if offset < len(page) else None

    def forget(self, ref: RunRef) -> None:
        """Drop the pages of a run that has ended."""
        self._pages.drop_where(lambda key: key[0] == ref)

    def _read(self, ref: RunRef, spec: RunSpec, number: int) -> list[SessionMembership]:
        blob = self._runs.memberships(ref, number)
        try:
            return decode_memberships(blob or b"", spec.sessions)
        except BrokenSessions as error:
            log.warning(
                Event.SESSIONS_UNREADABLE, run=ref.run, team=ref.team, page=number, error=str(error)[:200]
            )
            return []
