"""Limits that move by what a client does: one on acceleration, and one that shrinks when it is overrun."""

from __future__ import annotations

import copy
from collections import deque
from fractions import Fraction
from typing import Self

from fairlane.testing.provider.shapes import MS_PER_MINUTE

EPISODE_MS = 1000
"""Refusals within this time of the first belong to one overrun."""

_WHOLE = 10**9
_LEAST = _WHOLE // 20
_GROWTH = 2
"""A minute at the nominal limit would give back one part in this many of it."""


class Acceleration:
    """Lets a request through while the rate does not grow too fast.

    The requests admitted in the last minute, this one among them, are at most ``factor`` times those of
    the minute before it, or ``floor`` where that is more.
    """

    steady = False

    def __init__(self, factor: float, floor: int) -> None:
        self._factor, self._floor = Fraction(str(factor)), floor
        self._recent: deque[tuple[int, int]] = deque()
        self._earlier: deque[tuple[int, int]] = deque()
        self._recent_count = self._earlier_count = 0

    def holds(self, amount: int, now_ms: int) -> bool:
        """Whether ``amount`` requests may come now."""
        self._age(now_ms)
        wanted = self._recent_count + amount
        factor = self._factor
        return wanted <= self._floor or wanted * factor.denominator <= factor.numerator * self._earlier_count

    def spend(self, amount: int, now_ms: int) -> None:
        """``amount`` requests came."""
        self._recent_count += amount
        if self._recent and self._recent[-1][0] == now_ms:
            amount += self._recent.pop()[1]
        self._recent.append((now_ms, amount))

    def wait_ms(self, amount: int, now_ms: int) -> int:
        """Milliseconds until ``amount`` more may come, if none does before."""
        if self.holds(amount, now_ms):
            return 0
        later, at_ms = self.clone(), now_ms
        while later._recent and not later.holds(amount, at_ms):
            at_ms = later._recent[0][0] + MS_PER_MINUTE
        return at_ms - now_ms

    def clone(self) -> Self:
        """A copy that goes its own way."""
        twin = copy.copy(self)
        twin._recent, twin._earlier = self._recent.copy(), self._earlier.copy()
        return twin

    def _age(self, now_ms: int) -> None:
        while self._recent and self._recent[0][0] <= now_ms - MS_PER_MINUTE:
            entry = self._recent.popleft()
            self._recent_count -= entry[1]
            self._earlier_count += entry[1]
            self._earlier.append(entry)
        while self._earlier and self._earlier[0][0] <= now_ms - 2 * MS_PER_MINUTE:
            self._earlier_count -= self._earlier.popleft()[1]


class Shrinking:
    """The share of the nominal limits that is in force, in whole hundredths.

    An overrun, that is a refusal at least `EPISODE_MS` after the one that began the last overrun, multiplies
    the share by ``factor``, down to a twentieth. Every admission adds ``amount / nominal per minute / 2`` to
    it, by the axis of which it uses most, until it is whole: a client that uses all that is in force sees
    that grow by at least half in every minute. Time alone gives nothing back.
    """

    def __init__(self, factor: float, share: float = 1.0) -> None:
        self._factor = Fraction(str(factor))
        self._share = int(Fraction(str(share)) * _WHOLE)
        self._overrun_ms: int | None = None

    @property
    def percent(self) -> int:
        """Hundredths of the nominal limits in force, 5 to 100."""
        return self._share * 100 // _WHOLE

    @property
    def whole(self) -> bool:
        """Whether the nominal limits are in force."""
        return self._share == _WHOLE

    def refused(self, now_ms: int) -> None:
        """A request was refused."""
        if self._overrun_ms is None or now_ms - self._overrun_ms >= EPISODE_MS:
            self._overrun_ms = now_ms
            shrunk = self._share * self._factor.numerator // self._factor.denominator
            self._share = max(_LEAST, shrunk)

    def admitted(self, use: Fraction) -> None:
        """A request was admitted that uses ``use`` of a minute's nominal limit."""
        gained = use.numerator * _WHOLE // (use.denominator * _GROWTH)
        self._share = min(_WHOLE, self._share + gained)
