"""A newcomer: a caller who knows no limit, until an answer tells of one.

It separates what a cold start costs from what a player loses later. It begins as a lane does, with 600 calls
a minute, and lets one more call start for each answer (slow start, RFC 5681). Two things end that: an answer
whose headers report the limits, and the first refusal, whose Retry-After it obeys.
"""

from __future__ import annotations

import heapq
import math

from tests.benchmarks.zoo.world import World

STARTS_PER_MS = 600 / 60_000
MOST_GROWTH = 0.5
"""The share of its rate by which one answer raises it at most."""
MS_PER_S = 1000


class Newcomer:
    """When a caller without knowledge sends its next call. Times are milliseconds from the start."""

    def __init__(self, world: World) -> None:
        self._signals, self._way_ms = world.signals, world.one_way_ms
        self._told = world.signals.view in ("true", "minute") and world.signals.on_success
        self._median_ms = world.latency.median_s * MS_PER_S
        self._rate, self._next_ms = STARTS_PER_MS, 0.0
        self._answers: list[tuple[float, float]] = []  # when an answer is back, and its latency
        self.learns = True
        """Whether nobody has told it of a limit yet."""

    def from_ms(self, now_ms: float) -> float:
        """The first time, from ``now_ms`` on, at which its rate lets a call start."""
        while self.learns and self._answers and self._answers[0][0] <= max(now_ms, self._next_ms):
            back_ms, latency_ms = heapq.heappop(self._answers)
            if self._told:
                self.learns, self._next_ms = False, back_ms
            else:
                grown = self._rate + min(MOST_GROWTH * self._rate, 1 / max(1.0, latency_ms))
                self._next_ms = min(self._next_ms, max(back_ms, self._next_ms - 1 / self._rate + 1 / grown))
                self._rate = grown
        return max(now_ms, self._next_ms)

    def sent(self, now_ms: float, latency_ms: float) -> None:
        """Note a call that is admitted."""
        if self.learns:
            taken_ms = latency_ms + 2 * self._way_ms
            heapq.heappush(self._answers, (now_ms + taken_ms, taken_ms))
            self._next_ms = max(self._next_ms, now_ms - 1 / self._rate) + 1 / self._rate

    def refused(self, now_ms: float, wait_ms: float | None) -> None:
        """Note the first refusal. ``wait_ms``: the exact wait; ``None`` if only the end of a call helps."""
        signals = self._signals
        self.learns, self._next_ms = False, now_ms + 2 * self._way_ms
        if signals.wait_form == "none":
            return
        shown_ms = signals.wait_error * (self._median_ms if wait_ms is None else wait_ms)
        if signals.wait_form in ("seconds", "date"):
            shown_ms = MS_PER_S * math.ceil(shown_ms / MS_PER_S)
        self._next_ms += shown_ms
