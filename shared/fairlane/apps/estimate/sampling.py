"""Rows that stand for a dataset."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

SAMPLED_ROWS = 200
VALUES_KEPT = 1024

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """Some of a dataset's ``count`` rows, which make ``sessions``, at about."""

    rows: tuple[Row, ...]
    count: int
    sessions: int = 0


def take_sample(
    rows: Iterable[Row], count: int | None = None, session_field: str | None = None, most: int = SAMPLED_ROWS
) -> Sample:
    """At most ``most`` rows of a dataset; no more are held at a time.

    Without ``count`` all rows are read, and each is as likely to be taken as another, by the same draw each
    time. With it the first ones are taken, and no others are read.
    """
    if count is not None:
        return _first(rows, count, session_field, most)
    kept, seen, draw, sessions = list[Row](), 0, random.Random(0), Distinct()
    for seen, row in enumerate(rows, start=1):  # reservoir sampling (Vitter 1985, algorithm R)
        if session_field is not None:
            sessions.add(row.get(session_field))
        if len(kept) < most:
            kept.append(row)
        elif (place := draw.randrange(seen)) < most:
            kept[place] = row
    return Sample(tuple(kept), seen, sessions.count)


def _first(rows: Iterable[Row], count: int, session_field: str | None, most: int) -> Sample:
    first, sessions = tuple(islice(rows, min(most, count))), Distinct()
    whole = count if len(first) == most else len(first)
    if session_field is not None and first:
        for row in first:
            sessions.add(row.get(session_field))
    return Sample(first, whole, round(sessions.count * whole / max(1, len(first))))


class Distinct:
    """Counts distinct values: exactly up to `VALUES_KEPT`, then by their smallest hashes, to about 3 %.

    K minimum values: Bar-Yossef et al. 2002, "Counting distinct elements in a data stream".
    """

    def __init__(self) -> None:
        self._smallest: set[int] = set()

    def add(self, value: object) -> None:
        """``None`` is no value."""
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
