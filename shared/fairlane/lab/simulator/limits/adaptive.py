"""Limits that depend on the client's behaviour: one on acceleration, and one that shrinks on overruns."""

import copy
from collections import deque
from fractions import Fraction
from typing import Self

from fairlane.lab.simulator.limits.shapes import MS_PER_MINUTE

EPISODE_MS = 1000
"""Rejections within this time (ms) after the first belong to one overrun: retries are no new ones."""

_WHOLE = 10**9
"""The nominal limit in the unit of shares: whole numbers, so that a share never drifts."""
_LEAST = _WHOLE // 20
"""The smallest share, so that a client can always recover."""
_GROWTH = 2
"""A minute at the nominal limit restores one half of it, as `Shrinking` promises."""


class Acceleration:
    """Admits a request as long as the rate does not grow too fast.

    The last minute may have at most ``factor`` times the admitted requests of the minute before it. It may
    have ``floor`` if that is more. This request counts.
    """

    steady = False

    def __init__(self, factor: float, floor: int) -> None:
        self._factor, self._floor = Fraction(str(factor)), floor
        self._recent: deque[tuple[int, int]] = deque()
        self._earlier: deque[tuple[int, int]] = deque()
        self._recent_count = self._earlier_count = 0

    def holds(self, amount: int, now_ms: int) -> bool:
        """Whether it admits ``amount`` requests now."""
        self._age(now_ms)
        wanted = self._recent_count + amount
        factor = self._factor
        return wanted <= self._floor or wanted * factor.denominator <= factor.numerator * self._earlier_count

    def spend(self, amount: int, now_ms: int) -> None:
        """Count ``amount`` admitted requests."""
        self._recent_count += amount
        if self._recent and self._recent[-1][0] == now_ms:
            amount += self._recent.pop()[1]
        self._recent.append((now_ms, amount))

    def wait_ms(self, amount: int, now_ms: int) -> int:
        """Milliseconds until it admits ``amount`` more, if it admits none before."""
        if self.holds(amount, now_ms):
            return 0
        later, at_ms = self.clone(), now_ms
        while later._recent and not later.holds(amount, at_ms):
            at_ms = later._recent[0][0] + MS_PER_MINUTE
        return at_ms - now_ms

    def clone(self) -> Self:
        """An independent copy."""
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

    A rejection at least `EPISODE_MS` after the start of the last overrun starts a new one. Each overrun
    multiplies the share by ``factor``, down to a twentieth. Each admission adds ``amount / nominal per
    minute / 2``, for the axis of which it uses most, until the share is 1. So a client that uses the whole
    share sees it grow by at least half each minute. Time alone restores nothing.
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

    def rejected(self, now_ms: int) -> None:
        """A limit rejected a request."""
        if self._overrun_ms is None or now_ms - self._overrun_ms >= EPISODE_MS:
            self._overrun_ms = now_ms
            shrunk = self._share * self._factor.numerator // self._factor.denominator
            self._share = max(_LEAST, shrunk)

    def admitted(self, use: Fraction) -> None:
        """The limits admitted a request that uses ``use`` of a minute's nominal limit."""
        gained = use.numerator * _WHOLE // (use.denominator * _GROWTH)
        self._share = min(_WHOLE, self._share + gained)
