"""Limits as the zoo's providers enforce them: token bucket, fixed window, sliding window."""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

ROUNDING = 1e-6
"""Share of an amount by which sums of floats may fall short."""
MS_PER_MINUTE = 60_000.0
NEVER = math.inf


class Gate(Protocol):
    """One limit over time. Times are milliseconds and never decrease.

    ``factor`` scales the limit's initial rate. ``others`` is the share of the initial rate that other users
    of the same API key take before our calls.
    """

    per_minute: float

    def set_rate(self, factor: float, others: float, now_ms: float) -> None:
        """Apply both shares from ``now_ms`` on."""
        ...

    def earliest_ms(self, amount: float, now_ms: float) -> float:
        """The first time at which it admits ``amount``, if no call comes before and the rate stays."""
        ...

    def spend(self, amount: float, now_ms: float) -> None:
        """Take an amount, even one that exceeds what is left."""
        ...

    def refund(self, amount: float, taken_ms: float, now_ms: float) -> None:
        """Return a part of an amount that was taken at ``taken_ms``."""
        ...

    def remaining(self, now_ms: float) -> float:
        """The amount that is left, as a ``remaining`` header reports it."""
        ...

    def renewed_in_ms(self, now_ms: float) -> float:
        """Milliseconds until a bucket is full, a window ends, or a sliding window is empty."""
        ...


class Bucket:
    """A token bucket that starts full. It holds ``depth_s`` seconds of its rate, and at least ``least``."""

    def __init__(self, per_minute: float, depth_s: float, least: float, now_ms: float) -> None:
        self.per_minute, self._depth_s, self._least = per_minute, depth_s, least
        self._figure, self._at_ms = per_minute, now_ms
        self._capacity = max(least, per_minute / 60 * depth_s)
        self._gain, self._level = per_minute / MS_PER_MINUTE, self._capacity

    def set_rate(self, factor: float, others: float, now_ms: float) -> None:
        """See `Gate`."""
        self._refill(now_ms)
        self.per_minute = self._figure * factor
        self._gain = self._figure * max(0.0, factor - others) / MS_PER_MINUTE
        self._capacity = max(self._least, self.per_minute / 60 * self._depth_s)
        self._level = min(self._level, self._capacity)

    def earliest_ms(self, amount: float, now_ms: float) -> float:
        """See `Gate`."""
        self._refill(now_ms)
        wanted = min(amount, self._capacity) * (1 - ROUNDING)
        if self._level >= wanted:
            return now_ms
        return now_ms + (wanted - self._level) / self._gain if self._gain > 0 else NEVER

    def spend(self, amount: float, now_ms: float) -> None:
        """See `Gate`. Refused calls put the bucket at most one capacity and one call below zero."""
        self._refill(now_ms)
        self._level = max(-self._capacity - amount, self._level - amount)

    def refund(self, amount: float, taken_ms: float, now_ms: float) -> None:
        """See `Gate`."""
        self._refill(now_ms)
        self._level = min(self._capacity, self._level + amount)

    def remaining(self, now_ms: float) -> float:
        """See `Gate`."""
        self._refill(now_ms)
        return max(0.0, self._level)

    def renewed_in_ms(self, now_ms: float) -> float:
        """See `Gate`."""
        self._refill(now_ms)
        missing = self._capacity - self._level
        return missing / self._gain if self._gain > 0 else MS_PER_MINUTE

    def _refill(self, now_ms: float) -> None:
        if now_ms > self._at_ms:
            self._level = min(self._capacity, self._level + (now_ms - self._at_ms) * self._gain)
            self._at_ms = now_ms


class FixedWindow:
    """Fixed windows of ``length_ms``. Each window's amount, less others' share, is available at its start."""

    def __init__(
        self, per_minute: float, length_ms: float, least: float, now_ms: float, phase_ms: float, spent: float
    ) -> None:
        self.per_minute, self._figure, self._least = per_minute, per_minute, least
        self._length_ms, self._ends_ms = length_ms, now_ms - phase_ms + length_ms
        self._factor, self._others = 1.0, 0.0
        self._used = spent * self._count()

    def set_rate(self, factor: float, others: float, now_ms: float) -> None:
        """See `Gate`."""
        self._roll(now_ms)
        self._factor, self._others = factor, others
        self.per_minute = self._figure * factor

    def earliest_ms(self, amount: float, now_ms: float) -> float:
        """See `Gate`."""
        self._roll(now_ms)
        count = self._count()
        fits = self._used + min(amount, count) <= count * (1 + ROUNDING)
        return now_ms if fits else self._ends_ms

    def spend(self, amount: float, now_ms: float) -> None:
        """See `Gate`."""
        self._roll(now_ms)
        self._used += amount

    def refund(self, amount: float, taken_ms: float, now_ms: float) -> None:
        """See `Gate`. An amount that was taken in an earlier window is not refunded."""
        self._roll(now_ms)
        if taken_ms >= self._ends_ms - self._length_ms:
            self._used = max(0.0, self._used - amount)

    def remaining(self, now_ms: float) -> float:
        """See `Gate`."""
        self._roll(now_ms)
        ahead = (self._ends_ms - now_ms) / self._length_ms
        reserved = self._whole() * self._others * ahead
        return max(0.0, self._count() - self._used + reserved)

    def renewed_in_ms(self, now_ms: float) -> float:
        """See `Gate`."""
        self._roll(now_ms)
        return self._ends_ms - now_ms

    def _whole(self) -> float:
        return self.per_minute * self._length_ms / MS_PER_MINUTE

    def _count(self) -> float:
        ours = self._figure * max(0.0, self._factor - self._others) * self._length_ms / MS_PER_MINUTE
        return max(self._least, math.floor(ours * (1 + ROUNDING)))

    def _roll(self, now_ms: float) -> None:
        if now_ms >= self._ends_ms:
            passed = math.floor((now_ms - self._ends_ms) / self._length_ms) + 1
            self._ends_ms += passed * self._length_ms
            self._used = 0.0


class SlidingWindow:
    """At most ``rate * length_ms`` in any interval of that length; it keeps each amount taken."""

    def __init__(self, per_minute: float, length_ms: float, least: float) -> None:
        self.per_minute, self._figure, self._least = per_minute, per_minute, least
        self._length_ms = length_ms
        self._share = 1.0
        self._log: deque[list[float]] = deque()
        self._used = 0.0

    def set_rate(self, factor: float, others: float, now_ms: float) -> None:
        """See `Gate`."""
        self.per_minute = self._figure * factor
        self._share = max(0.0, factor - others)

    def earliest_ms(self, amount: float, now_ms: float) -> float:
        """See `Gate`."""
        self._lapse(now_ms)
        count = self._count()
        over = self._used + min(amount, count) - count * (1 + ROUNDING)
        if over <= 0:
            return now_ms
        for at_ms, taken in self._log:
            over -= taken
            if over <= 0:
                return at_ms + self._length_ms
        return NEVER

    def spend(self, amount: float, now_ms: float) -> None:
        """See `Gate`."""
        self._lapse(now_ms)
        self._used += amount
        if self._log and self._log[-1][0] == now_ms:
            self._log[-1][1] += amount
        else:
            self._log.append([now_ms, amount])

    def refund(self, amount: float, taken_ms: float, now_ms: float) -> None:
        """See `Gate`."""
        self._lapse(now_ms)
        for entry in reversed(self._log):
            if entry[0] <= taken_ms:
                returned = min(amount, entry[1]) if entry[0] == taken_ms else 0.0
                entry[1] -= returned
                self._used -= returned
                return

    def remaining(self, now_ms: float) -> float:
        """See `Gate`."""
        self._lapse(now_ms)
        return max(0.0, self._count() - self._used)

    def renewed_in_ms(self, now_ms: float) -> float:
        """See `Gate`."""
        self._lapse(now_ms)
        return self._log[-1][0] + self._length_ms - now_ms if self._log else 0.0

    def _count(self) -> float:
        count = self._figure * self._share * self._length_ms / MS_PER_MINUTE
        return max(self._least, math.floor(count * (1 + ROUNDING)))

    def _lapse(self, now_ms: float) -> None:
        log, before_ms = self._log, now_ms - self._length_ms
        while log and log[0][0] <= before_ms:
            self._used -= log.popleft()[1]
        if not log:
            self._used = 0.0
