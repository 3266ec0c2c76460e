"""Controllers of peers, rewritten for virtual time: when may a call start, and what does its outcome change?

Each has the rules and constants of the source it names, but none of its code. Each gets as many slots as
Fairlane. Times are seconds of virtual time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Protocol

from tests.benchmarks.zoo.world import World

NEVER = math.inf


class Peer(Protocol):
    """One client's controller. ``holds_slot``: a call keeps its slot while it waits to be retried."""

    attempts: int
    holds_slot: bool

    def wait_s(self, now_s: float, in_flight: int) -> float:
        """Seconds until a call may start: 0 is now, `NEVER` is after the next outcome."""
        ...

    def started(self, now_s: float) -> None:
        """A call has started."""
        ...

    def succeeded(self, now_s: float) -> None:
        """A call has succeeded."""
        ...

    def limited(self, now_s: float, retry_after_s: float | None) -> None:
        """A call was refused by rate."""
        ...

    def retry_in_s(self, tried: int, retry_after_s: float | None, rng: random.Random) -> float:
        """Seconds that a call waits for its retry after its ``tried``-th failure."""
        ...


class _Bucket:
    """A token bucket that holds one second of its rate."""

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        self._level, self._at_s = max(1.0, per_second), 0.0

    def set_rate(self, per_second: float, now_s: float) -> None:
        self._refill(now_s)
        self.per_second = per_second
        self._level = min(self._level, max(1.0, per_second))

    def wait_s(self, now_s: float) -> float:
        self._refill(now_s)
        return max(0.0, (1 - 1e-9 - self._level) / self.per_second)

    def take(self, now_s: float) -> None:
        self._refill(now_s)
        self._level -= 1

    def _refill(self, now_s: float) -> None:
        self._level = min(max(1.0, self.per_second), self._level + (now_s - self._at_s) * self.per_second)
        self._at_s = now_s


class Pacing:
    """Pacing at the limit that the provider has at the start. It knows this limit and never adapts.

    Of several limits, it uses the one that is tightest for a call of mean length. A refused call waits for
    its Retry-After; without one, for 1 s, doubled at each retry, and 60 s at most.
    """

    attempts, holds_slot = 1000, False

    def __init__(self, world: World, slots: int) -> None:
        self._slots = slots
        work = world.work
        outputs = work.output_tokens
        if world.charge == "reserved":
            outputs = float(world.largest_output)
        cost = {
            "requests": 1.0,
            "day": 1.0,
            "input": float(work.input_tokens),
            "output": outputs * world.output_factor,
            "tokens": work.input_tokens + outputs * world.output_factor,
        }
        rates = [limit.per_minute / 60 / cost[limit.axis] for limit in world.limits if limit.axis != "day"]
        self._bucket = _Bucket(min(rates))

    def wait_s(self, now_s: float, in_flight: int) -> float:
        """See `Peer`."""
        return self._bucket.wait_s(now_s) if in_flight < self._slots else NEVER

    def started(self, now_s: float) -> None:
        """See `Peer`."""
        self._bucket.take(now_s)

    def succeeded(self, now_s: float) -> None:
        """See `Peer`."""

    def limited(self, now_s: float, retry_after_s: float | None) -> None:
        """See `Peer`."""

    def retry_in_s(self, tried: int, retry_after_s: float | None, rng: random.Random) -> float:
        """See `Peer`."""
        return retry_after_s if retry_after_s is not None else min(60.0, 2.0 ** min(tried - 1, 10))


class Aimd:
    """AIMD on the rate as `mlflow.genai.evaluate` has it (plan of its pull requests 20937 to 20940).

    The rate starts at 10/s. A refusal halves it, at most every 5 s and never below 1/s. Each success adds
    1/rate, up to 50/s. A call has three retries: after 1 s, doubled each time, plus a random wait of up to
    0.5 s, and after 60 s at the latest.
    """

    attempts, holds_slot = 4, False
    _START, _FACTOR, _COOLDOWN_S, _LEAST, _MOST = 10.0, 0.5, 5.0, 1.0, 50.0

    def __init__(self, world: World, slots: int) -> None:
        self._slots, self._bucket, self._cut_s = slots, _Bucket(self._START), -NEVER

    def wait_s(self, now_s: float, in_flight: int) -> float:
        """See `Peer`."""
        return self._bucket.wait_s(now_s) if in_flight < self._slots else NEVER

    def started(self, now_s: float) -> None:
        """See `Peer`."""
        self._bucket.take(now_s)

    def succeeded(self, now_s: float) -> None:
        """See `Peer`."""
        rate = self._bucket.per_second
        self._bucket.set_rate(min(self._MOST, rate + 1 / rate), now_s)

    def limited(self, now_s: float, retry_after_s: float | None) -> None:
        """See `Peer`."""
        if now_s - self._cut_s >= self._COOLDOWN_S:
            self._cut_s = now_s
            self._bucket.set_rate(max(self._LEAST, self._bucket.per_second * self._FACTOR), now_s)

    def retry_in_s(self, tried: int, retry_after_s: float | None, rng: random.Random) -> float:
        """See `Peer`."""
        return min(60.0, 2.0 ** min(tried - 1, 10) + rng.uniform(0.0, 0.5))


class Inspect:
    """Inspect's adaptive connections (``inspect_ai/util/_concurrency.py``): slow start, then AIMD.

    It starts at 20 calls at once and doubles after as many successes, until the first retry. From then on it
    adds 5 % after as many successes; a retry multiplies by 0.8, at most every 15 s. Bounds are 1 and 200.
    A call keeps its connection while it waits for its retry: 3 s, doubled up to 30 minutes, plus up to 1 s.
    """

    attempts, holds_slot = 1000, True
    _START, _MOST, _FACTOR, _COOLDOWN_S, _ROUND, _GROWTH = 20, 200, 0.8, 15.0, 4, 0.05

    def __init__(self, world: World, slots: int) -> None:
        self._limit, self._successes, self._retried, self._until_s = self._START, 0, False, -NEVER

    def wait_s(self, now_s: float, in_flight: int) -> float:
        """See `Peer`."""
        return 0.0 if in_flight < self._limit else NEVER

    def started(self, now_s: float) -> None:
        """See `Peer`."""

    def succeeded(self, now_s: float) -> None:
        """See `Peer`."""
        if now_s < self._until_s:
            return
        self._successes += 1
        if self._successes < max(self._limit, self._ROUND):
            return
        self._successes = 0
        grown = (
            self._limit * 2
            if not self._retried
            else _up(self._limit + max(1, round(self._limit * self._GROWTH)))
        )
        self._limit = min(self._MOST, grown)

    def limited(self, now_s: float, retry_after_s: float | None) -> None:
        """See `Peer`."""
        self._successes, self._retried = 0, True
        if now_s >= self._until_s:
            self._until_s = now_s + self._COOLDOWN_S
            self._limit = max(1, _down(int(self._limit * self._FACTOR)))

    def retry_in_s(self, tried: int, retry_after_s: float | None, rng: random.Random) -> float:
        """See `Peer`."""
        return min(1800.0, 3 * 2.0 ** min(tried - 1, 20) + rng.uniform(0.0, 1.0))


class DataDesigner:
    """NeMo Data Designer's throttle (``engine/models/clients/throttle_manager.py``): AIMD on calls at once.

    It starts at its maximum, here 100. The first of consecutive 429s multiplies by 0.75; each blocks for its
    Retry-After, or 2 s. 25 successes in a row add one, up to 1.1 times the lowest limit that was refused.
    """

    attempts, holds_slot = 1000, False
    _MOST, _FACTOR, _STREAK, _COOLDOWN_S, _OVERSHOOT = 100, 0.75, 25, 2.0, 0.10

    def __init__(self, world: World, slots: int) -> None:
        self._limit, self._ceiling, self._streak, self._in_row, self._until_s = self._MOST, 0, 0, 0, 0.0

    def wait_s(self, now_s: float, in_flight: int) -> float:
        """See `Peer`."""
        if now_s < self._until_s:
            return self._until_s - now_s
        return 0.0 if in_flight < self._limit else NEVER

    def started(self, now_s: float) -> None:
        """See `Peer`."""

    def succeeded(self, now_s: float) -> None:
        """See `Peer`."""
        self._in_row, self._streak = 0, self._streak + 1
        if self._streak >= self._STREAK:
            self._streak = 0
            soft = self._MOST if not self._ceiling else math.floor(self._ceiling * (1 + self._OVERSHOOT))
            self._limit = max(self._limit, min(self._limit + 1, soft, self._MOST))

    def limited(self, now_s: float, retry_after_s: float | None) -> None:
        """See `Peer`."""
        self._until_s = now_s + (retry_after_s or self._COOLDOWN_S)
        self._in_row, self._streak = self._in_row + 1, 0
        if self._in_row == 1:
            refused, self._limit = self._limit, max(1, math.floor(self._limit * self._FACTOR))
            self._ceiling = min(self._ceiling or refused, refused)

    def retry_in_s(self, tried: int, retry_after_s: float | None, rng: random.Random) -> float:
        """See `Peer`."""
        return 0.0


class Botocore:
    """botocore's adaptive mode (``botocore/retries/adaptive.py``): a token bucket whose rate is CUBIC's.

    It sends without a limit until the first throttling error. CUBIC then has beta 0.7 and scale constant 0.4;
    the rate is at least 0.5/s and at most twice the measured rate. A call has three attempts. The waits
    between them are random: up to 1 s, then up to 2 s, and never more than 20 s.
    """

    attempts, holds_slot = 3, True
    _SCALE, _BETA, _SMOOTHING, _PART_S, _LEAST, _MOST_TIMES = 0.4, 0.7, 0.8, 0.5, 0.5, 2.0

    def __init__(self, world: World, slots: int) -> None:
        self._slots, self._bucket, self._enabled = slots, _Bucket(1.0), False
        self._most, self._failed_s, self._zero_s = 0.0, 0.0, 0.0
        self._measured, self._count, self._part = 0.0, 0, 0.0

    def wait_s(self, now_s: float, in_flight: int) -> float:
        """See `Peer`."""
        if in_flight >= self._slots:
            return NEVER
        return self._bucket.wait_s(now_s) if self._enabled else 0.0

    def started(self, now_s: float) -> None:
        """See `Peer`."""
        if self._enabled:
            self._bucket.take(now_s)

    def succeeded(self, now_s: float) -> None:
        """See `Peer`."""
        self._measure(now_s)
        passed_s = now_s - self._failed_s
        self._follow(self._SCALE * (passed_s - self._zero_s) ** 3 + self._most, now_s)

    def limited(self, now_s: float, retry_after_s: float | None) -> None:
        """See `Peer`."""
        self._measure(now_s)
        rate = min(self._measured, self._bucket.per_second) if self._enabled else self._measured
        self._most, self._failed_s, self._enabled = rate, now_s, True
        self._zero_s = (rate * (1 - self._BETA) / self._SCALE) ** (1 / 3)
        self._follow(rate * self._BETA, now_s)

    def retry_in_s(self, tried: int, retry_after_s: float | None, rng: random.Random) -> float:
        """See `Peer`."""
        return min(20.0, rng.random() * 2.0 ** min(tried - 1, 10))

    def _follow(self, rate: float, now_s: float) -> None:
        self._bucket.set_rate(max(self._LEAST, min(rate, self._MOST_TIMES * self._measured)), now_s)

    def _measure(self, now_s: float) -> None:
        part = math.floor(now_s / self._PART_S) * self._PART_S
        self._count += 1
        if part > self._part:
            rate = self._count / (part - self._part)
            self._measured = rate * self._SMOOTHING + self._measured * (1 - self._SMOOTHING)
            self._count, self._part = 0, part


def _up(value: int) -> int:
    return value if value < 10 else (value + 4) // 5 * 5


def _down(value: int) -> int:
    return max(1, value) if value < 10 else value // 5 * 5


PEERS: dict[str, Callable[[World, int], Peer]] = {
    "pacing": Pacing,
    "aimd": Aimd,
    "inspect": Inspect,
    "datadesigner": DataDesigner,
    "botocore": Botocore,
}
"""All peers, by the name that reports show."""
