"""The interface of all limits, and the exact token bucket."""

from __future__ import annotations

import copy
import math
from fractions import Fraction
from typing import Protocol, Self

MS_PER_MINUTE = 60_000

Rate = float | Fraction


class Gate(Protocol):
    """Admits an amount at a time, or not. Times must never decrease.

    ``steady``: an amount that it holds now, it also holds later if nobody takes any.
    """

    steady: bool

    def holds(self, amount: int, now_ms: int) -> bool:
        """Whether it admits ``amount`` now."""
        ...

    def spend(self, amount: int, now_ms: int) -> None:
        """Take ``amount``, which it holds."""
        ...

    def wait_ms(self, amount: int, now_ms: int) -> int:
        """Milliseconds until it first admits ``amount`` if nobody else takes any; 0 if it does now."""
        ...

    def clone(self) -> Self:
        """An independent copy."""
        ...


class Shape(Gate, Protocol):
    """A limit per minute, which may change.

    It admits an amount above its capacity only if nothing else is taken.
    """

    per_minute: Fraction

    def set_rate(self, per_minute: Rate, now_ms: int) -> None:
        """Allow ``per_minute`` from now on; amounts taken before stay taken."""
        ...

    def remaining(self, now_ms: int) -> int:
        """The whole amount that is left now, never below 0."""
        ...

    def full_in_ms(self, now_ms: int) -> int:
        """The value of a reset header: milliseconds until it is full, or until the window ends."""
        ...


class TokenBucket:
    """A bucket that starts full, holds ``rate * burst`` (at least 1) and refills by the millisecond.

    Levels are integers in a unit in which the refill of a millisecond and the capacity are whole, so it never
    rounds. In any window of t it admits at most ``rate * t + capacity``, and it never rejects an amount that
    it holds. Only a full bucket admits an amount above the capacity; it then owes the rest.
    """

    steady = True

    def __init__(self, per_minute: Rate, burst_seconds: float, now_ms: int) -> None:
        self._burst = Fraction(str(burst_seconds)) / 60
        self._unit = 1
        self._gain = self._level = self._capacity = 0
        self._at_ms = now_ms
        self.set_rate(per_minute, now_ms)
        self._level = self._capacity

    def set_rate(self, per_minute: Rate, now_ms: int) -> None:
        """Refill by ``per_minute`` from now on; the level stays, up to the new capacity."""
        self._refill(now_ms)
        self.per_minute = Fraction(str(per_minute))
        capacity = max(self.per_minute * self._burst, Fraction(1))
        gain = self.per_minute / MS_PER_MINUTE
        unit = math.lcm(self._unit, gain.denominator, capacity.denominator)
        self._gain, self._capacity = int(gain * unit), int(capacity * unit)
        self._level = min(self._capacity, self._level * (unit // self._unit))
        self._unit = unit

    def holds(self, amount: int, now_ms: int) -> bool:
        """Whether it admits ``amount`` now."""
        self._refill(now_ms)
        return self._level >= min(amount * self._unit, self._capacity)

    def spend(self, amount: int, now_ms: int) -> None:
        """Take ``amount``, which it holds."""
        self._refill(now_ms)
        self._level -= amount * self._unit

    def take(self, amount: int, now_ms: int) -> bool:
        """Take ``amount`` if the bucket holds it; otherwise change nothing and return ``False``."""
        if not self.holds(amount, now_ms):
            return False
        self.spend(amount, now_ms)
        return True

    def remaining(self, now_ms: int) -> int:
        """Whole tokens that are left now, never below 0."""
        self._refill(now_ms)
        return max(0, self._level // self._unit)

    def wait_ms(self, amount: int, now_ms: int) -> int:
        """Milliseconds until it holds ``amount`` if nobody else takes any; 0 if it does now."""
        self._refill(now_ms)
        return self._time_to(min(amount * self._unit, self._capacity))

    def full_in_ms(self, now_ms: int) -> int:
        """Milliseconds until it is full if nobody takes any."""
        self._refill(now_ms)
        return self._time_to(self._capacity)

    def clone(self) -> Self:
        """An independent copy."""
        return copy.copy(self)

    def _time_to(self, level: int) -> int:
        return max(0, -((self._level - level) // self._gain))

    def _refill(self, now_ms: int) -> None:
        if now_ms > self._at_ms:
            self._level = min(self._capacity, self._level + (now_ms - self._at_ms) * self._gain)
            self._at_ms = now_ms
