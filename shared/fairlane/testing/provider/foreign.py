"""Other users of the same key: their requests, evenly spaced in time."""

from __future__ import annotations

import copy
import heapq
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Self

from fairlane.testing.provider.shapes import MS_PER_MINUTE

NEVER = 1 << 62
"""A time that does not come."""


class Foreign:
    """Requests that others send: ``(start_s, duration_s, requests_per_minute)``, counted from ``start_ms``.

    The k-th of a stretch comes at its start + k minutes / rate, rounded down to the millisecond.
    """

    def __init__(self, stretches: Sequence[tuple[float, float, float]], start_ms: int) -> None:
        self._stretches: list[tuple[int, Fraction, int]] = []
        for start, duration, per_minute in stretches:
            gap_ms = MS_PER_MINUTE / Fraction(str(per_minute))
            count = math.ceil(Fraction(str(duration)) * 1000 / gap_ms)
            self._stretches.append((start_ms + round(start * 1000), gap_ms, count))
        self._due = [(begins_ms, number, 0) for number, (begins_ms, _, _) in enumerate(self._stretches)]
        heapq.heapify(self._due)

    @property
    def next_ms(self) -> int:
        """When the next of them comes; `NEVER` where none does."""
        return self._due[0][0] if self._due else NEVER

    def arrive(self) -> None:
        """The next of them is there; go on to the one after it."""
        _, number, ordinal = self._due[0]
        begins_ms, gap_ms, count = self._stretches[number]
        ordinal += 1
        if ordinal < count:
            at_ms = begins_ms + ordinal * gap_ms.numerator // gap_ms.denominator
            heapq.heapreplace(self._due, (at_ms, number, ordinal))
        else:
            heapq.heappop(self._due)

    def clone(self) -> Self:
        """A copy that goes its own way."""
        twin = copy.copy(self)
        twin._due = self._due.copy()
        return twin
