"""Deletes keys that cannot expire on their own: index entries of deleted runs, and abandoned uploads."""

from __future__ import annotations

from fairlane.store.write.runs.inbox import Inbox

EVERY_MS = 60_000
AT_ONCE, MOST_PAGES = 1000, 10


class Janitor:
    """Sweeps one team after the other, the oldest runs first."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._due_ms = self._cursor = 0

    def tick(self, monotonic_ms: int) -> int:
        """Sweep if it is due. Returns milliseconds until the next sweep."""
        if monotonic_ms >= self._due_ms:
            for team in self._inbox.teams():
                self._sweep(team)
            self._tidy()
            self._due_ms = monotonic_ms + EVERY_MS
        return self._due_ms - monotonic_ms

    def _tidy(self) -> None:
        for _ in range(MOST_PAGES):
            self._cursor = self._inbox.tidy(self._cursor)
            if self._cursor == 0:
                return

    def _sweep(self, team: str) -> None:
        first = 0
        for _ in range(MOST_PAGES):
            read, removed = self._inbox.forget_expired(team, first, AT_ONCE)
            first += read - removed
            if read < AT_ONCE:
                return
