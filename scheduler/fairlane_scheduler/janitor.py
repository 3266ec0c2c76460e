"""Sweeps what has no expiry of its own: index entries of runs that are gone, uploads that became none."""

from __future__ import annotations

from fairlane.store.connect import RedisClient
from fairlane.store.inbox import Inbox
from fairlane.store.keys import Keys, RunRef

EVERY_MS = 60_000
AT_ONCE, MOST_PAGES = 1000, 10


class Janitor:
    """One team after the other, the oldest runs first."""

    def __init__(self, redis: RedisClient, keys: Keys, inbox: Inbox) -> None:
        self._redis, self._keys, self._inbox = redis, keys, inbox
        self._due_ms = self._cursor = 0

    def tick(self, monotonic_ms: int) -> int:
        """One sweep if it is due; milliseconds until the next."""
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
        index, there = self._keys.runs(team), 0
        for _ in range(MOST_PAGES):
            runs = [run.decode() for run in self._redis.zrange(index, there, there + AT_ONCE - 1)]
            gone = self._gone(team, runs)
            if gone:
                self._redis.zrem(index, *gone)
            there += len(runs) - len(gone)
            if len(runs) < AT_ONCE:
                return

    def _gone(self, team: str, runs: list[str]) -> list[str]:
        pipeline = self._redis.pipeline(transaction=False)
        for run in runs:
            pipeline.exists(self._keys.state(RunRef(team, run)))
        return [run for run, exists in zip(runs, pipeline.execute(), strict=True) if not exists]
