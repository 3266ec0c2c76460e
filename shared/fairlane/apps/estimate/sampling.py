"""Samples the rows of a dataset."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from fairlane.model.run import Order
from fairlane.model.sessions import key_of

SAMPLED_ROWS = 200
VALUES_KEPT = 1024
CONVERSATIONS_COUNTED = 100_000

Row = Mapping[str, Any]

NO_ORDER = Order()


@dataclass(frozen=True, slots=True)
class Sample:
    """Some of a dataset's ``count`` rows, which form about ``sessions``.

    ``turns``: for each of ``rows``, how many rows of its conversation precede it; empty without
    conversations. ``longest``: how many rows the longest conversation has.
    """

    rows: tuple[Row, ...]
    count: int
    sessions: int = 0
    turns: tuple[int, ...] = ()
    longest: int = 0


def take_sample(
    rows: Iterable[Row],
    count: int | None = None,
    session_field: str | None = None,
    most: int = SAMPLED_ROWS,
    order: Order = NO_ORDER,
) -> Sample:
    """At most ``most`` rows of a dataset; no more are held at a time.

    Without ``count`` it reads all rows, and draws among them with equal probability and a fixed seed. With
    ``count`` it takes the first rows, and reads no others. With conversations, a row is taken only if its
    conversation is among the first `CONVERSATIONS_COUNTED`: the turns of others are not counted.
    """
    if count is not None:
        return _first(rows, count, session_field, most, order)
    kept, seen, known, draw = list[tuple[Row, int]](), 0, 0, random.Random(0)
    sessions, turns = Distinct(), Turns(order)
    for row in rows:  # reservoir sampling (Vitter 1985, algorithm R)
        seen += 1
        if session_field is not None:
            sessions.add(row.get(session_field))
        before = turns.before(row)
        if before is None:
            continue
        known += 1
        if len(kept) < most:
            kept.append((row, before))
        elif (place := draw.randrange(known)) < most:
            kept[place] = row, before
    return _sample(kept, seen, sessions.count, turns)


def _first(rows: Iterable[Row], count: int, session_field: str | None, most: int, order: Order) -> Sample:
    first, sessions, turns = tuple(islice(rows, min(most, count))), Distinct(), Turns(order)
    whole = count if len(first) == most else len(first)
    if session_field is not None and first:
        for row in first:
            sessions.add(row.get(session_field))
    kept = [(row, turns.before(row) or 0) for row in first]
    return _sample(kept, whole, round(sessions.count * whole / max(1, len(first))), turns)


def _sample(kept: Sequence[tuple[Row, int]], count: int, sessions: int, turns: Turns) -> Sample:
    before = tuple(each for _, each in kept) if turns.counts else ()
    return Sample(tuple(row for row, _ in kept), count, sessions, before, turns.longest)


class Turns:
    """Counts the rows of each conversation as a dataset is read; ``longest`` has the most so far."""

    def __init__(self, order: Order) -> None:
        self.counts, self._field = order.conversation, order.conversation_field
        self.longest = 0
        self._rows: dict[bytes, int] = {}

    def before(self, row: Row) -> int | None:
        """How many rows of its conversation were read before; ``None`` if its conversation is not counted."""
        if not self.counts:
            return 0
        key = b""
        if self._field is not None:
            if row.get(self._field) is None:
                self.longest = max(self.longest, 1)
                return 0
            key = hashlib.blake2b(key_of(row[self._field]).encode(), digest_size=8).digest()
        before = self._rows.get(key, 0)
        if not before and len(self._rows) >= CONVERSATIONS_COUNTED:
            return None
        self._rows[key] = before + 1
        self.longest = max(self.longest, before + 1)
        return before


class Distinct:
    """Counts distinct values: exactly up to `VALUES_KEPT`, then by their smallest hashes, to about 3 %.

    K minimum values: Bar-Yossef et al. 2002, "Counting distinct elements in a data stream".
    """

    def __init__(self) -> None:
        self._smallest: set[int] = set()

    def add(self, value: object) -> None:
        """Add a value; ignores ``None``."""
        if value is None:
            return
        text = json.dumps(value, sort_keys=True, default=str)
        self._smallest.add(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()))
        if len(self._smallest) > 2 * VALUES_KEPT:
            self._smallest = set(sorted(self._smallest)[:VALUES_KEPT])

    @property
    def count(self) -> int:
        """About how many distinct values there are; exact below `VALUES_KEPT`."""
        kept = sorted(self._smallest)[:VALUES_KEPT]
        return len(kept) if len(kept) < VALUES_KEPT else round((VALUES_KEPT - 1) / (kept[-1] / 2**64))
