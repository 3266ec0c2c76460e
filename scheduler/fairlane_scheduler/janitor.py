"""Sweeps what has no expiry of its own: index entries of runs that are gone."""

from __future__ import annotations

from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys, RunRef

EVERY_MS = 60_000
AT_ONCE = 1000


class Janitor:
    """One team after the other, the oldest runs first."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys
        self._due_ms = 0

    def tick(self, teams: list[str], monotonic_ms: int) -> int:
        """One sweep if it is due; milliseconds until the next."""
        if monotonic_ms >= self._due_ms:
            for team in teams:
                self._sweep(team)
            self._due_ms = monotonic_ms + EVERY_MS
        return self._due_ms - monotonic_ms

    def _sweep(self, team: str) -> None:
        index = self._keys.runs(team)
        runs = [run.decode() for run in self._redis.zrange(index, 0, AT_ONCE - 1)]
        pipeline = self._redis.pipeline(transaction=False)
        for run in runs:
            pipeline.exists(self._keys.state(RunRef(team, run)))
        gone = [run for run, exists in zip(runs, pipeline.execute(), strict=True) if not exists]
        if gone:
            self._redis.zrem(index, *gone)
