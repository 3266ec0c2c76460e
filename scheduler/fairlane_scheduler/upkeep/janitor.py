"""Deletes what nothing needs, such as entries of deleted runs, and keeps runs that others continue."""

from collections.abc import Iterator

from fairlane.core.clock import Clock
from fairlane.store.write.runs.archive_stub import ArchiveStubs
from fairlane.store.write.runs.inbox import Inbox
from fairlane_scheduler.state.backlog import Backlog

EVERY_MS = 60_000  # from the end of one sweep to the next
TURN_MS = 25  # part of a tick that a sweep may take; it continues in a later tick
KEPT_MS = 3_600_000  # a run that an active run continues does not expire sooner
AT_ONCE = 500  # index entries read at once, which takes some 5 ms


class Janitor:
    """Sweeps one team after the other, page by page, for at most `TURN_MS` of a tick."""

    def __init__(self, inbox: Inbox, clock: Clock, backlog: Backlog, stubs: ArchiveStubs) -> None:
        self._inbox, self._clock, self._backlog, self._stubs = inbox, clock, backlog, stubs
        self._due_ms = 0
        self._pages: Iterator[None] | None = None

    def tick(self) -> None:
        """Sweep for `TURN_MS`, or begin the next sweep if it is due."""
        began_ms = self._clock.monotonic_ms()
        if began_ms < self._due_ms:
            return
        if self._pages is None:
            self._pages = self._sweep()
        for _ in self._pages:
            if self._clock.monotonic_ms() - began_ms >= TURN_MS:
                return
        self._pages, self._due_ms = None, began_ms + EVERY_MS

    def _sweep(self) -> Iterator[None]:
        """One step for each page of an index, and for each part of all keys."""
        continued = {old for run in self._backlog.runs() if (old := run.plan.spec.continued)}
        self._stubs.prolong(list(continued), KEPT_MS, 2 * KEPT_MS, 0)
        for team in self._inbox.teams():
            first, read = 0, AT_ONCE
            while read == AT_ONCE:
                read, removed = self._inbox.forget_expired(team, first, AT_ONCE)
                first += read - removed
                yield
        cursor = self._inbox.tidy(0)
        while cursor:
            yield
            cursor = self._inbox.tidy(cursor)
