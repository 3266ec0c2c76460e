"""Lets a call leave its worker only while its permit is valid, and bounds how many are between claim and
sending.

After a worker claims an attempt, it fetches credentials and may open a connection; the process may also be
paused. Without this check, all calls that a pause delayed would reach the provider at once.

A worker that is short of CPU sends its claimed calls one after another. If it claimed all granted calls, the
permits of the last ones would expire, and their jobs would be requeued: wasted work when CPU is scarcest. So
a worker claims no more calls than it sends in time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

USUAL_S = 60.0
"""Seconds for which the shortest delay of a connection's calls counts."""

BEYOND_USUAL = 1.5
"""Delays normally vary by less than this factor. It lets calls reach a provider that is always slow to
connect."""

MOST_AT_FIRST = 64
"""Calls that may be on their way at first: a burst that a worker with a free core sends within 0.1 s."""

LEAST = 4
"""Calls that may be on their way however late they are: connecting to a provider takes time, too."""

GOOD_PART = 0.75
"""While calls leave within this part of their permits' validity, the bound grows."""


class PermitExpiredError(Exception):
    """The permit expired before the call could be sent; nothing was sent."""


class UsualDelay:
    """The shortest delay from claim to first byte within the last 60 s, in ms. It tells a pause, which makes
    some delays longer, from a distant provider, which makes all delays longer.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._began_ms = now_ms()
        self._before: int | None = None
        self._present: int | None = None

    def note(self, delay_ms: int) -> None:
        """Note the delay of one call."""
        self._turn()
        self._present = delay_ms if self._present is None else min(self._present, delay_ms)

    @property
    def least_ms(self) -> int:
        """The shortest delay; 0 if none was noted."""
        self._turn()
        noted = [each for each in (self._before, self._present) if each is not None]
        return min(noted, default=0)

    def _turn(self) -> None:
        now_ms, half_ms = self._now_ms(), int(USUAL_S * 500)
        if now_ms - self._began_ms >= half_ms:
            recent = now_ms - self._began_ms < 2 * half_ms
            self._began_ms, self._before, self._present = now_ms, self._present if recent else None, None


@dataclass(slots=True)
class Departure:
    """One call between claim and first byte. Times are monotonic, in ms.

    ``claimed_ms``: when the worker sent the claim. ``good_ms``: how long after the claim the call may be
    sent; 0 if its lane has no limit, and ``None`` until the claim is answered. ``on_end``: called once, when
    the call leaves or is not made.
    """

    now_ms: Callable[[], int]
    usual: UsualDelay
    claimed_ms: int
    good_ms: int | None = None
    on_end: Callable[[Departure], None] | None = None
    delay_ms: int | None = None
    most_ms: float = 0.0
    expired: bool = False

    @property
    def left_ms(self) -> int | None:
        """When the call was sent; ``None`` if it was not."""
        return None if self.delay_ms is None or self.expired else self.claimed_ms + self.delay_ms

    def leave(self) -> None:
        """Note that the first byte is about to be sent. Only a call's first request counts.

        Raises `PermitExpiredError` if the permit has expired.
        """
        if self.left_ms is not None:
            return
        delay_ms, good_ms = self.now_ms() - self.claimed_ms, self.good_ms or 0
        self.delay_ms, self.most_ms = delay_ms, max(good_ms, BEYOND_USUAL * self.usual.least_ms)
        self.usual.note(delay_ms)
        self.expired = good_ms > 0 and delay_ms > self.most_ms
        self.end()
        if self.expired:
            raise PermitExpiredError(f"{delay_ms} ms after its claim, the call was not sent yet")

    def end(self) -> None:
        """Note that the call has left, or is not made."""
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(self)


class Departures:
    """The calls of one lane at one worker that are on their way to the provider. Used on one event loop.

    The bound doubles with every round of calls that leave early, until a permit expires. Each expiry halves
    it; from the first one on it grows by one a round. That is slow start and congestion avoidance (Jacobson,
    "Congestion avoidance and control", 1988). A lane without limits has no bound.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """``now_ms``: a monotonic clock, in ms."""
        self._now_ms = now_ms
        self._usual = UsualDelay(now_ms)
        self._most = float(MOST_AT_FIRST)
        self._bounded = True
        self._under_way = 0
        self._cut_ms: int | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def begin(self) -> Departure:
        """Wait for the lane's turn; the claim is sent right after. The caller must `Departure.end` it."""
        if self._bounded and (self._waiting or self._under_way >= self._most):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._free()
                raise
        else:
            self._under_way += 1
        return Departure(self._now_ms, self._usual, self._now_ms(), on_end=self._ended)

    @property
    def under_way(self) -> int:
        """Calls between claim and first byte."""
        return self._under_way

    def _ended(self, departure: Departure) -> None:
        good_ms, delay_ms = departure.good_ms, departure.delay_ms
        self._bounded = self._bounded if good_ms is None else good_ms > 0
        if good_ms and delay_ms is not None:
            if departure.expired:
                self._cut(departure.claimed_ms)
            elif self._waiting and delay_ms <= GOOD_PART * departure.most_ms:
                self._most += 1 if self._cut_ms is None else 1 / self._most
        self._free()

    def _cut(self, claimed_ms: int) -> None:
        """Halve the bound, once for all calls that were on their way at the same time."""
        if self._cut_ms is None or claimed_ms > self._cut_ms:
            self._most = max(LEAST, min(self._most, self._under_way) / 2)
            self._cut_ms = self._now_ms()

    def _free(self) -> None:
        """Note that one call has left or ended, and let waiting calls begin."""
        self._under_way -= 1
        while self._waiting and (not self._bounded or self._under_way < self._most):
            turn = self._waiting.popleft()
            if not turn.done():
                self._under_way += 1
                turn.set_result(None)
