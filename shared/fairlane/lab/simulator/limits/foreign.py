"""Requests of other users of the same limits, evenly spaced in time."""

from __future__ import annotations

import copy
import heapq
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Self

from fairlane.lab.simulator.limits.shapes import MS_PER_MINUTE

NEVER = 1 << 62
"""A time after all others, in milliseconds."""


class Foreign:
    """Requests of others in periods ``(start_s, duration_s, requests_per_minute)`` after ``start_ms``.

    The k-th request of a period arrives at its start + k minutes / rate, rounded down to the millisecond.
    """

    def __init__(self, periods: Sequence[tuple[float, float, float]], start_ms: int) -> None:
        self._periods: list[tuple[int, Fraction, int]] = []
        for start, duration, per_minute in periods:
            gap_ms = MS_PER_MINUTE / Fraction(str(per_minute))
            count = math.ceil(Fraction(str(duration)) * 1000 / gap_ms)
            self._periods.append((start_ms + round(start * 1000), gap_ms, count))
        self._due = [(begins_ms, number, 0) for number, (begins_ms, _, _) in enumerate(self._periods)]
        heapq.heapify(self._due)

    @property
    def next_ms(self) -> int:
        """Time of the next request; `NEVER` if there is none."""
        return self._due[0][0] if self._due else NEVER

    def arrive(self) -> None:
        """Count the next request as arrived, and move to the one after it."""
        _, number, ordinal = self._due[0]
        begins_ms, gap_ms, count = self._periods[number]
        ordinal += 1
        if ordinal < count:
            at_ms = begins_ms + ordinal * gap_ms.numerator // gap_ms.denominator
            heapq.heapreplace(self._due, (at_ms, number, ordinal))
        else:
            heapq.heappop(self._due)

    def clone(self) -> Self:
        """An independent copy."""
        twin = copy.copy(self)
        twin._due = self._due.copy()
        return twin
