"""The limits a provider judges by: exact token buckets, and a count of what is in flight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from fairlane.testing.provider.config import SimulatedModel

MS_PER_MINUTE = 60_000

Axis = Literal["requests", "tokens", "concurrency"]


class TokenBucket:
    """A bucket that starts full, holds ``rate * burst`` (at least 1) and refills by the millisecond.

    Levels are integers in a unit in which both the refill of a millisecond and the capacity are whole, so
    nothing is ever rounded: in any window of t it gives out at most ``rate * t + capacity``, and it never
    refuses what it holds. An amount above the capacity is given only by a full bucket, which then owes the
    rest.
    """

    def __init__(self, per_minute: float, burst_seconds: float, now_ms: int) -> None:
        rate = Fraction(str(per_minute))
        capacity = max(rate * Fraction(str(burst_seconds)) / 60, Fraction(1))
        gain = rate / MS_PER_MINUTE
        self.per_minute = per_minute
        self._unit = math.lcm(gain.denominator, capacity.denominator)
        self._gain = int(gain * self._unit)
        self._capacity = int(capacity * self._unit)
        self._level = self._capacity
        self._at_ms = now_ms

    def holds(self, amount: int, now_ms: int) -> bool:
        """Whether ``amount`` could be taken now."""
        self._refill(now_ms)
        return self._level >= self._needed(amount)

    def take(self, amount: int, now_ms: int) -> bool:
        """Take ``amount`` if the bucket holds it; otherwise change nothing and return ``False``."""
        if not self.holds(amount, now_ms):
            return False
        self._level -= amount * self._unit
        return True

    def remaining(self, now_ms: int) -> int:
        """Whole tokens it holds now, never below 0."""
        self._refill(now_ms)
        return max(0, self._level // self._unit)

    def wait_ms(self, amount: int, now_ms: int) -> int:
        """Milliseconds until it holds ``amount`` if nobody else takes any; 0 if it does now."""
        self._refill(now_ms)
        return self._time_to(self._needed(amount))

    def full_in_ms(self, now_ms: int) -> int:
        """Milliseconds until it is full if nobody takes any."""
        self._refill(now_ms)
        return self._time_to(self._capacity)

    def _needed(self, amount: int) -> int:
        return min(amount * self._unit, self._capacity)

    def _time_to(self, level: int) -> int:
        return max(0, -((self._level - level) // self._gain))

    def _refill(self, now_ms: int) -> None:
        if now_ms > self._at_ms:
            self._level = min(self._capacity, self._level + (now_ms - self._at_ms) * self._gain)
            self._at_ms = now_ms


@dataclass(frozen=True, slots=True)
class Level:
    """One axis as headers tell it: tokens a minute, whole tokens left, milliseconds to a full refill."""

    limit: int
    remaining: int
    reset_ms: int


class Limits:
    """All limits of one model, judged together: every one admits a request, or none charges it."""

    def __init__(self, model: SimulatedModel, now_ms: int) -> None:
        def bucket(per_minute: float | None) -> TokenBucket | None:
            return None if per_minute is None else TokenBucket(per_minute, model.burst_seconds, now_ms)

        self._requests = bucket(model.requests_per_minute)
        self._tokens = bucket(model.tokens_per_minute)
        self._max_concurrency = model.max_concurrency
        self.in_flight = 0

    def admit(self, charge: int, now_ms: int) -> Axis | None:
        """Charge a request and its tokens and enter it as in flight, or name the axis that refuses it."""
        if self._max_concurrency is not None and self.in_flight >= self._max_concurrency:
            return "concurrency"
        if self._requests is not None and not self._requests.holds(1, now_ms):
            return "requests"
        if self._tokens is not None and not self._tokens.take(charge, now_ms):
            return "tokens"
        if self._requests is not None:
            self._requests.take(1, now_ms)
        self.in_flight += 1
        return None

    def release(self) -> None:
        """One admitted request is no longer in flight."""
        self.in_flight -= 1

    def wait_ms(self, charge: int, now_ms: int) -> int:
        """Milliseconds until both buckets hold what a request of ``charge`` tokens costs."""
        return max(
            0 if self._requests is None else self._requests.wait_ms(1, now_ms),
            0 if self._tokens is None else self._tokens.wait_ms(charge, now_ms),
        )

    def levels(self, now_ms: int) -> dict[Literal["requests", "tokens"], Level]:
        """The limited axes as they stand now."""
        levels: dict[Literal["requests", "tokens"], Level] = {}
        if self._requests is not None:
            levels["requests"] = _level(self._requests, now_ms)
        if self._tokens is not None:
            levels["tokens"] = _level(self._tokens, now_ms)
        return levels


def _level(bucket: TokenBucket, now_ms: int) -> Level:
    return Level(int(bucket.per_minute), bucket.remaining(now_ms), bucket.full_in_ms(now_ms))
