"""Leases as the recoverer sees them: which have lapsed, and what each one was for."""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairlane.model.job import Attempt
from fairlane.model.run import RunRef
from fairlane.model.tokens import Estimate
from fairlane.store.keys import Stored

UNTAKEN_MS = 5000
"""A permit that no worker has claimed for so many milliseconds has probably reached none: a live worker
claims one within milliseconds, and reconnects to a broker within seconds."""


class Untaken(NamedTuple):
    """Permits of a lane that no worker has taken for `UNTAKEN_MS`, and when the oldest was granted."""

    lane: str
    permits: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The record that an attempt holds a permit. ``worker`` is ``None`` until the attempt is claimed."""

    attempt: Attempt
    worker: str | None
    granted_ms: int
    tokens: Estimate

    @property
    def ref(self) -> RunRef:
        """The attempt's run."""
        return RunRef(self.attempt.team, self.attempt.run)


class Leases(Stored):
    """Reads leases; `Attempts.recover` changes them."""

    def lapsed(self, now_ms: int, limit: int = 200) -> list[Lease]:
        """Leases whose deadline has passed, the oldest first."""
        ids = self._redis.zrangebyscore(self._keys.leases, "-inf", now_ms, start=0, num=limit)
        records = self._redis.hmget(self._keys.leased, ids) if ids else []
        strays = [name for name, record in zip(ids, records, strict=True) if record is None]
        if strays:
            self._redis.zrem(self._keys.leases, *strays)
        return [_lease(json.loads(record)) for record in records if record is not None]

    def of_worker(self, worker: str) -> list[Lease]:
        """Every lease that a worker holds."""
        found = (_lease(json.loads(record)) for record in self._redis.hvals(self._keys.leased))
        return [lease for lease in found if lease.worker == worker]

    def untaken(self, now_ms: int) -> list[Untaken]:
        """By lane, permits that no worker claims: perhaps workers and scheduler use different brokers."""
        found: dict[str, list[int]] = {}
        for record in map(json.loads, self._redis.hvals(self._keys.leased)):
            if record.get("worker") is None and now_ms - record["granted_ms"] >= UNTAKEN_MS:
                found.setdefault(record["lane"], []).append(record["granted_ms"])
        return [Untaken(lane, len(granted), min(granted)) for lane, granted in sorted(found.items())]

    def count(self) -> int:
        """Attempts in flight, over all lanes."""
        return int(self._redis.zcard(self._keys.leases))


def _lease(record: dict[str, Any]) -> Lease:
    ref = RunRef.parse(record["ref"])
    return Lease(
        attempt=Attempt(
            run=ref.run, team=ref.team, job=record["job"], number=record["number"], lane=record["lane"]
        ),
        worker=record.get("worker"),
        granted_ms=record["granted_ms"],
        tokens=Estimate(record["input"], record["output"], record.get("most", 0), record.get("guessed") == 1),
    )
