"""Requests of clients that still lie in a team's inbox: what no scheduler has read yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairlane.model.run import RunRef
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.run_queries import answers, read_hostile
from fairlane.store.write.runs.inbox import extended_by, submitted_by


@dataclass(frozen=True, slots=True)
class AskedRuns:
    """Reads the inboxes of teams, which their clients may write."""

    redis: RedisClient
    keys: Keys

    def latest(self, team: str, limit: int) -> list[str]:
        """Ids of the last submissions that wait to be admitted."""
        found = []
        for raw in self.redis.lrange(self.keys.inbox(team), -2 * limit, -1):
            if run := submitted_by(raw):
                found.append(run)
        return found[-limit:]

    def is_lost(self, ref: RunRef) -> bool:
        """Whether a run was submitted and has no state, and nothing asks for it any more."""

        def read() -> list[Any]:
            pipeline = self.redis.pipeline(transaction=True)
            pipeline.hexists(self.keys.state(ref), "state")
            pipeline.exists(self.keys.spec(ref))
            pipeline.lrange(self.keys.inbox(ref.team), 0, -1)
            return answers(pipeline)

        known, waits, requests = read_hostile(read) or (0, 1, [])
        return bool(waits and not known) and ref.run not in map(submitted_by, requests)

    def awaits_rows(self, ref: RunRef) -> bool:
        """Whether a run is open, and no request that waits adds rows or closes it."""

        def read() -> list[Any]:
            pipeline = self.redis.pipeline(transaction=True)
            pipeline.hget(self.keys.state(ref), "open")
            pipeline.lrange(self.keys.inbox(ref.team), 0, -1)
            return answers(pipeline)

        is_open, requests = read_hostile(read) or (None, [])
        return is_open == b"1" and ref.run not in map(extended_by, requests)
