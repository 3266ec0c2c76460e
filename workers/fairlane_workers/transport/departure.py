"""Lets a call leave its worker only while its permit is good, and measures when it leaves.

After a worker claims an attempt, it renders the prompt, fetches credentials and may open a connection; the
process may also be paused. Without this check, all calls that a pause delayed would reach the provider at
once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

USUAL_S = 60.0
"""How long the shortest delay of a connection's calls counts."""

BEYOND_USUAL = 1.5
"""Delays normally vary by less than this factor. It lets calls reach a provider that is always slow to
connect."""


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
    """Until when one call may be sent, and when it is. Times are monotonic, in ms.

    ``claimed_ms``: when the worker sent the claim. ``good_ms``: how long after the claim the call may be
    sent; 0 if its lane has no limit.
    """

    now_ms: Callable[[], int]
    usual: UsualDelay
    claimed_ms: int
    good_ms: int
    left_ms: int | None = field(default=None)

    def leave(self) -> None:
        """Note that the first byte is about to be sent. Only a call's first request counts.

        Raises `PermitExpiredError` if the permit has expired.
        """
        if self.left_ms is not None:
            return
        now_ms = self.now_ms()
        delay_ms, usual_ms = now_ms - self.claimed_ms, self.usual.least_ms
        self.usual.note(delay_ms)
        if self.good_ms and delay_ms > max(self.good_ms, BEYOND_USUAL * usual_ms):
            raise PermitExpiredError(f"{delay_ms} ms after its claim, the call was not sent yet")
        self.left_ms = now_ms
