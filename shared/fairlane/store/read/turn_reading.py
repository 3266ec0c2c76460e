"""Reads the progress of a run's conversations that go side by side."""

from collections.abc import Collection
from typing import NamedTuple

from fairlane.model.run import RunRef, RunSpec
from fairlane.store.keys import Stored
from fairlane.store.write.runs.lost_jobs import has_bit

ENDED_AT_ONCE = 10_000
BYTES_AT_ONCE = 4096  # of a bitmap


class TurnStates(NamedTuple):
    """A run's items at one moment, as bitmaps. ``seen``: how many had ended; ``steps``: jobs of an item.

    ``unlisted``: how many of those that had ended are missing in their list, as Redis has lost a part of it.
    """

    fed: bytes
    done: bytes
    seen: int
    steps: int
    unlisted: int = 0

    def was_fed(self, item: int) -> bool:
        """Whether the item had been fed."""
        return has_bit(self.fed, item)

    def had_ended(self, item: int) -> bool:
        """Whether all jobs of the item had records."""
        first = item * self.steps
        return all(has_bit(self.done, job) for job in range(first, first + self.steps))


class HandedRows(NamedTuple):
    """How many rows were fed: ``total``; and ``first``, from the first one on without a gap."""

    first: int
    total: int


class Ended(NamedTuple):
    """Items that have ended since the last read, in order; ``fed`` and ``ended``: how many were by now.

    ``unlisted``: as in `TurnStates`; where it has changed, some of ``items`` may be lost.
    """

    items: list[int]
    fed: int
    ended: int
    unlisted: int = 0


class TurnReader(Stored):
    """Reads one deployment's runs."""

    def states(self, ref: RunRef, steps: int) -> TurnStates:
        """All items of a run."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.get(self._keys.fed(ref))
        pipeline.get(self._keys.done(ref))
        pipeline.hget(self._keys.state(ref), "items_done")
        pipeline.llen(self._keys.finished(ref))
        fed, done, ended, listed = pipeline.execute()
        seen = int(ended or 0)
        return TurnStates(fed or b"", done or b"", seen, steps, seen - listed)

    def ended(self, ref: RunRef, seen: int, unlisted: int) -> Ended:
        """Items that ended after the first ``seen``: at most `ENDED_AT_ONCE`."""
        first = max(0, seen - unlisted)
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.lrange(self._keys.finished(ref), first, first + ENDED_AT_ONCE - 1)
        pipeline.hmget(self._keys.state(ref), "cursor", "items_done")
        pipeline.llen(self._keys.finished(ref))
        items, counts, listed = pipeline.execute()
        fed, ended = (int(count or 0) for count in counts)
        return Ended([int(item) for item in items], fed, ended, ended - listed)

    def handed_rows(self, ref: RunRef, spec: RunSpec, since: int = 0) -> HandedRows:
        """Rows of a run of any order that were fed; the first ``since`` are known to be."""
        fed = int(self._redis.hget(self._keys.state(ref), "cursor") or 0)
        first = self.first_unfed(ref, since * spec.cells_per_row) if spec.order.turns else fed
        return HandedRows(first // spec.cells_per_row, fed // spec.cells_per_row)

    def first_unfed(self, ref: RunRef, since: int = 0) -> int:
        """The first item that is not fed; those before ``since`` are."""
        byte = since // 8
        while part := self._redis.getrange(self._keys.fed(ref), byte, byte + BYTES_AT_ONCE - 1):
            rest = part.lstrip(b"\xff")
            byte += len(part) - len(rest)
            if rest:
                return 8 * byte + next(bit for bit in range(8) if not has_bit(rest, bit))
        return 8 * byte

    def unfed_before(self, ref: RunRef, item: int) -> int | None:
        """How many items before this one are not fed; ``None`` if it is."""
        bits = self._redis.getrange(self._keys.fed(ref), 0, item // 8)
        if has_bit(bits, item):
            return None
        before = int.from_bytes(bits.ljust(item // 8 + 1, b"\0")) >> 8 - item % 8
        return item - before.bit_count()

    def memory(self, ref: RunRef, fields: Collection[str]) -> dict[bytes, bytes]:
        """The fields of the run's memory among ``fields`` that are set."""
        names = list(fields)
        found = self._redis.hmget(self._keys.memory(ref), names) if names else []
        return {name.encode(): value for name, value in zip(names, found, strict=True) if value is not None}
