"""Deletes keys that cannot expire on their own: index entries of deleted runs, and abandoned uploads."""

from collections.abc import Iterator

from fairlane.core.clock import Clock
from fairlane.store.write.runs.inbox import Inbox

EVERY_MS = 60_000  # from the end of one sweep to the next
TURN_MS = 25  # of a tick: then the sweep goes on in a later one
AT_ONCE = 500  # index entries of a page, which takes some 5 ms


class Janitor:
    """Sweeps one team after the other, page by page; a tick takes a turn of it, however much there is."""

    def __init__(self, inbox: Inbox, clock: Clock) -> None:
        self._inbox, self._clock = inbox, clock
        self._due_ms = 0
        self._pages: Iterator[None] | None = None

    def tick(self) -> None:
        """Go on with the sweep for a turn, or begin the next one if it is due."""
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
