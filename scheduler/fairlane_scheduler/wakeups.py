"""What scripts have marked as worth a look: a lane, a run's work on a lane, or the workers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys, RunRef
from fairlane_scheduler.leader import NotLeader

AT_ONCE = 1000
WORKERS = "*"

_WORK = re.compile(r"(.*)\|([A-Za-z0-9_-]{1,64}/[A-Za-z0-9_-]{1,64})", re.DOTALL)


@dataclass(slots=True)
class Marks:
    """What to look at. ``more``: there is still something marked. ``due_ms``: when the next back-off ends."""

    lanes: set[str] = field(default_factory=set)
    work: list[tuple[str, RunRef]] = field(default_factory=list)
    workers: bool = False
    more: bool = False
    due_ms: int | None = None


class Wakeups:
    """Takes marks, each once, and only for the leader: it would never see what another took.

    One round trip a tick, so what else a tick needs to know comes with it.
    """

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def take(self, epoch: int) -> Marks:
        """All that is marked, a bounded number at a time. Raises `NotLeader`, and then takes nothing."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hget(self._keys.leader, "epoch")
        pipeline.spop(self._keys.dirty, AT_ONCE)
        pipeline.zrange(self._keys.delayed, 0, 0, withscores=True)
        leading, taken, soonest = pipeline.execute()
        if int(leading or 0) != epoch:
            self._put_back(taken)
            raise NotLeader
        marks = _read(sorted(raw.decode() for raw in taken))
        marks.due_ms = int(soonest[0][1]) if soonest else None
        return marks

    def _put_back(self, taken: list[bytes]) -> None:
        if taken:
            self._redis.sadd(self._keys.dirty, *taken)
            self._redis.publish(self._keys.wake, "")


def _read(entries: list[str]) -> Marks:
    marks = Marks(more=len(entries) == AT_ONCE)
    for entry in entries:
        if entry == WORKERS:
            marks.workers = True
            continue
        marks.lanes.add(entry)
        # A lane's name may look like "<lane>|<run ref>" itself: then both readings are looked at.
        if work := _WORK.fullmatch(entry):
            marks.lanes.add(work[1])
            marks.work.append((work[1], RunRef.parse(work[2])))
    return marks
