"""Reads how far the conversations of a run are, where they go side by side."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from fairlane.model.run import RunRef
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys

ENDED_AT_ONCE = 10_000


class TurnStates(NamedTuple):
    """A run's items at one moment, as bitmaps. ``seen``: how many had ended; ``steps``: jobs of an item."""

    fed: bytes
    done: bytes
    seen: int
    steps: int

    def was_fed(self, item: int) -> bool:
        """Whether it was fed by then."""
        return _has(self.fed, item)

    def had_ended(self, item: int) -> bool:
        """Whether all its jobs had their records by then."""
        first = item * self.steps
        return all(_has(self.done, job) for job in range(first, first + self.steps))


class HandedRows(NamedTuple):
    """How many rows were fed: ``first`` without a gap from the first one on, ``total`` in all."""

    first: int
    total: int


class Ended(NamedTuple):
    """Items that ended since, in that order; ``fed``: how many were fed; ``ended``: how many had ended."""

    items: list[int]
    fed: int
    ended: int


class TurnReader:
    """Reads one deployment's runs."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def states(self, ref: RunRef, steps: int) -> TurnStates:
        """All items of a run."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.get(self._keys.fed(ref))
        pipeline.get(self._keys.done(ref))
        pipeline.llen(self._keys.finished(ref))
        fed, done, seen = pipeline.execute()
        return TurnStates(fed or b"", done or b"", seen, steps)

    def ended(self, ref: RunRef, seen: int) -> Ended:
        """Items that ended after the first ``seen``: at most `ENDED_AT_ONCE`."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.lrange(self._keys.finished(ref), seen, seen + ENDED_AT_ONCE - 1)
        pipeline.hget(self._keys.state(ref), "cursor")
        pipeline.llen(self._keys.finished(ref))
        items, fed, ended = pipeline.execute()
        return Ended([int(item) for item in items], int(fed or 0), ended)

    def memory(self, ref: RunRef, fields: Collection[str]) -> dict[bytes, bytes]:
        """Those fields of the run's memory that are set."""
        names = list(fields)
        found = self._redis.hmget(self._keys.memory(ref), names) if names else []
        return {name.encode(): value for name, value in zip(names, found, strict=True) if value is not None}


def _has(bitmap: bytes, bit: int) -> bool:
    return bit >> 3 < len(bitmap) and bool(bitmap[bit >> 3] & 0x80 >> (bit & 7))
