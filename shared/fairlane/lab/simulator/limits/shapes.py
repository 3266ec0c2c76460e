"""The interface of all limits, and the exact ones: a token bucket, fixed windows, a log of recent amounts."""

import copy
import math
from collections import deque
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


class FixedWindow:
    """Windows of ``window_ms`` from ``start_ms`` on, each with its whole count at once.

    The first k windows hold ``ceil(k * rate * window)`` together, so some hold one more than others if the
    count of a window is not whole. An unused rest is lost. Only an untouched window admits an amount above
    every count; the windows after it hold less until the amount is paid.
    """

    def __init__(self, per_minute: Rate, window_ms: int, start_ms: int) -> None:
        self._window_ms, self._start_ms = window_ms, start_ms
        self._index = self._used = 0
        self._ends_ms = start_ms + window_ms
        self._numerator, self._denominator = 0, 1
        self.set_rate(per_minute, start_ms)

    def set_rate(self, per_minute: Rate, now_ms: int) -> None:
        """Set the count of this window and the next ones; amounts taken from this one stay taken."""
        self._roll(now_ms)
        self.per_minute = Fraction(str(per_minute))
        count = self.per_minute * self._window_ms / MS_PER_MINUTE
        self._numerator, self._denominator = count.numerator, count.denominator
        self._most = math.ceil(count)
        self.steady = count.denominator == 1
        self._count = self._through(self._index + 1) - self._through(self._index)

    def holds(self, amount: int, now_ms: int) -> bool:
        """Whether it admits ``amount`` now."""
        if now_ms >= self._ends_ms:
            self._roll(now_ms)
        if self._used + amount <= self._count:
            return True
        return amount > self._most and self._used == 0 and self._count > 0

    def spend(self, amount: int, now_ms: int) -> None:
        """Take ``amount``, which it holds."""
        self._roll(now_ms)
        self._used += amount

    def remaining(self, now_ms: int) -> int:
        """The rest of this window's count, never below 0."""
        self._roll(now_ms)
        return max(0, self._count - self._used)

    def wait_ms(self, amount: int, now_ms: int) -> int:
        """Milliseconds until the first window that admits ``amount``; 0 if this one does."""
        if self.holds(amount, now_ms):
            return 0
        reserved = self._through(self._index) + self._used
        index = self._index + 1
        if amount > self._most:
            index = max(index, self._first(reserved))
            while self._through(index + 1) == self._through(index):
                index += 1
        else:
            while True:
                wanted = max(reserved, self._through(index)) + amount
                if self._through(index + 1) >= wanted:
                    break
                index = max(index + 1, self._first(wanted) - 1)
        return self._start_ms + index * self._window_ms - now_ms

    def full_in_ms(self, now_ms: int) -> int:
        """Milliseconds until the window ends."""
        self._roll(now_ms)
        return self._ends_ms - now_ms

    def clone(self) -> Self:
        """An independent copy."""
        return copy.copy(self)

    def _through(self, index: int) -> int:
        """The count of all windows before ``index`` together."""
        return -(-index * self._numerator // self._denominator)

    def _first(self, total: int) -> int:
        """The lowest index before which the windows hold ``total`` together."""
        return (total - 1) * self._denominator // self._numerator + 1

    def _roll(self, now_ms: int) -> None:
        if now_ms < self._ends_ms:
            return
        index = (now_ms - self._start_ms) // self._window_ms
        held = self._through(index) - self._through(self._index)
        self._used, self._index = max(0, self._used - held), index
        self._count = self._through(index + 1) - self._through(index)
        self._ends_ms = self._start_ms + (index + 1) * self._window_ms


class SlidingLog:
    """At most ``rate * window`` (rounded down, at least 1) in any interval of ``window_ms``.

    It admits an amount above that only if the last window is empty.
    """

    steady = True

    def __init__(self, per_minute: Rate, window_ms: int, now_ms: int) -> None:
        self._window_ms = window_ms
        self._log: deque[tuple[int, int]] = deque()
        self._used = 0
        self.set_rate(per_minute, now_ms)

    def set_rate(self, per_minute: Rate, now_ms: int) -> None:
        """Set the count from now on; amounts taken before stay in the log until they lapse."""
        self.per_minute = Fraction(str(per_minute))
        self._count = max(1, math.floor(self.per_minute * self._window_ms / MS_PER_MINUTE))

    def holds(self, amount: int, now_ms: int) -> bool:
        """Whether it admits ``amount`` now."""
        self._lapse(now_ms)
        return self._used + amount <= self._count or (amount > self._count and not self._used)

    def spend(self, amount: int, now_ms: int) -> None:
        """Take ``amount``, which it holds."""
        if not amount:
            return
        self._used += amount
        if self._log and self._log[-1][0] == now_ms:
            amount += self._log.pop()[1]
        self._log.append((now_ms, amount))

    def remaining(self, now_ms: int) -> int:
        """The amount that is left now, never below 0."""
        self._lapse(now_ms)
        return max(0, self._count - self._used)

    def wait_ms(self, amount: int, now_ms: int) -> int:
        """Milliseconds until enough has lapsed to admit ``amount``; 0 if it is admitted now."""
        if self.holds(amount, now_ms):
            return 0
        may_stay = max(0, self._count - amount)
        used, lapses_ms = self._used, now_ms
        for at_ms, taken in self._log:
            if used <= may_stay:
                break
            used, lapses_ms = used - taken, at_ms + self._window_ms
        return lapses_ms - now_ms

    def full_in_ms(self, now_ms: int) -> int:
        """Milliseconds until the log is empty."""
        self._lapse(now_ms)
        return self._log[-1][0] + self._window_ms - now_ms if self._log else 0

    def clone(self) -> Self:
        """An independent copy."""
        twin = copy.copy(self)
        twin._log = self._log.copy()
        return twin

    def _lapse(self, now_ms: int) -> None:
        log, before_ms = self._log, now_ms - self._window_ms
        while log and log[0][0] <= before_ms:
            self._used -= log.popleft()[1]
