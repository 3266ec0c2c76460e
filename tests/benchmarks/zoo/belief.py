"""What a learner believes of the limit that binds: all rates and depths that explain the answers so far.

A belief is many *guesses*, each a limit of the true form with numbers of its own. A guess that an answer
refutes weighs next to nothing. When few are left, new ones are drawn near them, and all answers are played
to these again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.benchmarks.zoo.gates import MS_PER_MINUTE, ROUNDING
from tests.benchmarks.zoo.world import AxisLimit, Step

Numbers = npt.NDArray[np.float64]

RATES, DEPTHS, SIZES = 40, 24, 320
"""The first guesses: rates and depths of a bucket on a grid, and sizes of a window in a row."""
FEW = 0.1
"""The share of guesses below which new ones are drawn."""
TOLERANCE = 1e-3
"""A refuted guess loses weight e-fold for each such share of what it holds by which it was off."""
SCALES = (1.0, 1.0, 4.0, 16.0)
"""How far new guesses are drawn from those that stand, as multiples of the distance between two."""
NEARER, WIDER = 0.6, 1.5
"""How much nearer they are drawn the next time, and how much farther away if none explains all answers."""
LEAST_PARENTS, ROUNDS, MOST_DRAWN = 48, 4, 80
"""New guesses are drawn near so many at least; and so often after one answer, and in all."""
FINEST = 2e-4
"""The logarithm of the factor by which guesses differ at least: one call of five thousand."""

TICK_MS = 1e-3
"""What is added to a wait, so that rounding makes none of them too short."""


@dataclass(frozen=True, slots=True)
class Prior:
    """The ranges of what is unknown: the rate a minute on its axis, and a bucket's depth in seconds."""

    per_minute: tuple[float, float]
    depth_s: tuple[float, float]


@dataclass(slots=True)
class Answer:
    """A call of ``amount`` at ``at_ms``, and whether it was admitted.

    ``wait_ms`` is what its 429 named, if that says anything, rounded up by ``off_ms`` at most.
    """

    at_ms: float
    amount: float
    admitted: bool | None = None
    wait_ms: float | None = None
    off_ms: float = 0.0


class Guesses:
    """Limits of one form, each with numbers of its own, that see the same calls (see `gates`)."""

    def __init__(self, limit: AxisLimit, least: float, rates: Numbers, depths_s: Numbers) -> None:
        self._limit, self._least, self.rates, self.depths_s = limit, least, rates, depths_s
        self.at_ms, self._factor, self._share = 0.0, 1.0, 1.0
        self._ends_ms = limit.span_s * 1000 - limit.phase_s * 1000
        self._log: list[tuple[float, Numbers]] = []
        self._resize()
        self._level = self._capacity * (1 - limit.spent)

    def _resize(self) -> None:
        rate = self.rates * self._factor
        self._gain = self.rates * max(0.0, self._share) / MS_PER_MINUTE
        if self._limit.shape == "bucket":
            self._capacity = np.maximum(self._least, rate / 60 * self.depths_s)
            return
        count = self._gain * self._limit.span_s * 1000 * (1 + ROUNDING)
        self._capacity = np.maximum(self._least, np.floor(count))

    def set_rate(self, step: Step) -> None:
        """Apply a step of the limit, whose form is known."""
        self.advance(step.at_s * 1000)
        was = self._capacity
        self._factor, self._share = step.factor, step.factor - step.others
        self._resize()
        if self._limit.shape == "bucket":
            self._level = np.minimum(self._level, self._capacity)
        else:
            self._level = self._level + self._capacity - was

    def advance(self, now_ms: float) -> None:
        """Bring all levels up to now."""
        match self._limit.shape:
            case "bucket":
                self._level = np.minimum(self._capacity, self._level + (now_ms - self.at_ms) * self._gain)
            case "window":
                if now_ms >= self._ends_ms:
                    length_ms = self._limit.span_s * 1000
                    self._ends_ms += (math.floor((now_ms - self._ends_ms) / length_ms) + 1) * length_ms
                    self._level = self._capacity.copy()
            case "sliding":
                gone = 0
                while gone < len(self._log) and self._log[gone][0] <= now_ms - self._limit.span_s * 1000:
                    self._level = self._level + self._log[gone][1]
                    gone += 1
                del self._log[:gone]
        self.at_ms = now_ms

    def room(self, amount: float) -> Numbers:
        """How much more each of them has now than ``amount`` needs, as a share of all that it holds."""
        room: Numbers = (self._level - self._wanted(amount)) / self._capacity
        return room

    def spend(self, amount: float, by: npt.NDArray[np.bool_] | float = 1.0) -> None:
        """Charge ``amount`` to those of ``by``."""
        taken = np.multiply(by, amount, dtype=np.float64) + np.zeros_like(self.rates)
        self._level = self._level - taken
        if self._limit.shape == "bucket":
            self._level = np.maximum(-self._capacity - amount, self._level)
        if self._limit.shape == "sliding":
            self._log.append((self.at_ms, taken))

    def refund(self, amount: float, taken_ms: float) -> None:
        """Return a part of what was charged at ``taken_ms``."""
        match self._limit.shape:
            case "bucket":
                self._level = np.minimum(self._capacity, self._level + amount)
            case "window":
                if taken_ms >= self._ends_ms - self._limit.span_s * 1000:
                    self._level = np.minimum(self._capacity, self._level + amount)
            case "sliding":
                for number in range(len(self._log) - 1, -1, -1):
                    at_ms, taken = self._log[number]
                    if at_ms <= taken_ms:
                        back = np.minimum(amount, taken) if at_ms == taken_ms else np.zeros_like(taken)
                        self._log[number] = (at_ms, taken - back)
                        self._level = self._level + back
                        return

    def waits_ms(self, amount: float) -> Numbers:
        """For how long a bucket of each would make a call of ``amount`` wait now."""
        lacks = np.maximum(0.0, self._wanted(amount) - self._level)
        waits: Numbers = np.where(lacks > 0, lacks / np.maximum(self._gain, 1e-12) + TICK_MS, 0.0)
        return waits

    def admitted_from(self, amount: float, enough: Callable[[npt.NDArray[np.bool_]], bool]) -> float:
        """The first time, from now on, at which so many windows admit ``amount`` that it is ``enough``."""
        wanted = self._wanted(amount)
        if enough(self._level >= wanted):
            return self.at_ms
        if self._limit.shape == "window":
            return self._ends_ms + TICK_MS
        level, length_ms = self._level, self._limit.span_s * 1000
        for at_ms, taken in self._log:
            level = level + taken
            if enough(level >= wanted):
                return at_ms + length_ms + TICK_MS
        return math.inf

    def _wanted(self, amount: float) -> Numbers:
        wanted: Numbers = np.minimum(amount, self._capacity) * (1 - ROUNDING)
        return wanted


class Belief:
    """The guesses, their weights, and the answers that refute them. Times never decrease."""

    def __init__(
        self, limit: AxisLimit, least: float, prior: Prior, steps: tuple[Step, ...], seed: int
    ) -> None:
        self._limit, self._least, self._prior, self._steps = limit, least, prior, steps
        self._rng = np.random.default_rng(seed)
        self._events: list[Answer | tuple[float, float, float | None]] = []
        self._drawn = 0
        self._two = limit.shape == "bucket"
        rates, depths, self._apart = self._first()
        self._widest = self._apart
        self._begin(rates, depths)

    def _first(self) -> tuple[Numbers, Numbers, Numbers]:
        low, high = np.log(self._prior.per_minute)
        if not self._two:
            rates = np.linspace(low, high, SIZES)
            return rates, np.zeros_like(rates), np.array([(high - low) / SIZES, 0.0])
        shallow, deep = np.log(self._prior.depth_s)
        grid: Any = np.meshgrid(np.linspace(low, high, RATES), np.linspace(shallow, deep, DEPTHS))
        apart = np.array([(high - low) / RATES, (deep - shallow) / DEPTHS])
        return grid[0].ravel(), grid[1].ravel(), apart

    def _begin(self, rates: Numbers, depths: Numbers) -> None:
        self._logs = (rates, depths)
        self._guesses = Guesses(self._limit, self._least, np.exp(rates), np.exp(depths))
        self._off, self._due = np.zeros_like(rates), list(self._steps)
        self._room: dict[int, Numbers] = {}
        self._waits: dict[int, Numbers] = {}
        self._weigh()

    def advance(self, now_ms: float) -> None:
        """Bring the belief up to now."""
        while self._due and self._due[0].at_s * 1000 <= now_ms:
            self._guesses.set_rate(self._due.pop(0))
        self._guesses.advance(now_ms)

    def times_ms(self, amount: float, now_ms: float, shares: tuple[float, ...]) -> list[float]:
        """From when on a call of ``amount`` is admitted, with each of these probabilities."""
        self.advance(now_ms)
        if not self._two:
            weights = self._weights
            return [
                self._guesses.admitted_from(
                    amount,
                    lambda fits, share=share: float(weights[fits].sum()) >= share,  # type: ignore[misc]
                )
                for share in shares
            ]
        waits = self._guesses.waits_ms(amount)
        order = np.argsort(waits)
        sums = np.cumsum(self._weights[order])
        found = [order[min(len(order) - 1, int(np.searchsorted(sums, share)))] for share in shares]
        return [now_ms + float(waits[place]) for place in found]

    def sent(self, amount: float, now_ms: float) -> Answer:
        """Note a call: each guess charges it if it would admit it."""
        call = Answer(now_ms, amount)
        self._events.append(call)
        self._see(call)
        return call

    def _see(self, call: Answer) -> None:
        self.advance(call.at_ms)
        self._room[id(call)] = room = self._guesses.room(call.amount)
        if self._two:
            self._waits[id(call)] = self._guesses.waits_ms(call.amount)
        self._guesses.spend(call.amount, room >= 0)

    def refunded(self, amount: float, taken_ms: float, now_ms: float) -> None:
        """Note that a call's end has returned a part of its charge."""
        self._happen(now_ms, amount, taken_ms)
        self._events.append((now_ms, amount, taken_ms))

    def charged(self, amount: float, now_ms: float) -> None:
        """Note a charge that a refused call has left."""
        self._happen(now_ms, amount, None)
        self._events.append((now_ms, amount, None))

    def _happen(self, now_ms: float, amount: float, taken_ms: float | None) -> None:
        self.advance(now_ms)
        if taken_ms is None:
            self._guesses.spend(amount)
        else:
            self._guesses.refund(amount, taken_ms)

    def heard(self, call: Answer) -> None:
        """Learn from the answer to a call, which is complete now."""
        self._judge(call)
        self._weigh()
        for _ in range(ROUNDS):
            if (
                self._stand() >= FEW * len(self._off)
                or self._apart.max() < FINEST
                or self._drawn >= MOST_DRAWN
            ):
                break
            self._drawn += 1
            self._refine()

    def known(self, per_minute: float, depth_s: float | None) -> None:
        """Learn the true rate from headers, and the depth unless it is ``None``."""
        rates = np.full(DEPTHS if depth_s is None and self._two else 1, math.log(per_minute))
        depth = np.log(self._prior.depth_s)
        depths = (
            np.linspace(depth[0], depth[1], len(rates))
            if depth_s is None
            else np.full(1, math.log(max(depth_s, 1e-9)))
        )
        self._apart = self._widest = np.array([0.0, self._apart[1]])
        self._again(rates, depths if self._two else np.zeros_like(rates))

    @property
    def least_off(self) -> float:
        """By how much the best guess fails to explain all answers: 0 where it explains them."""
        return float(self._off.min())

    def _judge(self, call: Answer) -> None:
        room = self._room.pop(id(call))
        waits = self._waits.pop(id(call), None)
        wrong = (room >= 0) != call.admitted
        self._off += np.where(wrong, np.minimum(1.0, np.abs(room)) + TOLERANCE, 0.0)
        if call.wait_ms is not None and waits is not None:
            most = call.off_ms + 2.0 + 0.1 * call.wait_ms
            self._off += np.minimum(1.0, np.maximum(0.0, np.abs(waits - call.wait_ms) - most) / most)

    def _weigh(self) -> None:
        self._excess = self._off - self._off.min()
        weights = np.exp(-self._excess / TOLERANCE)
        self._weights = weights / weights.sum()

    def _stand(self) -> int:
        return int((self._excess <= TOLERANCE).sum())

    def _refine(self) -> None:
        """Draw new guesses near those that stand, and some farther away: the nearest may all be refuted."""
        count = RATES * DEPTHS if self._two else SIZES
        near = np.argsort(self._excess, kind="stable")[: max(LEAST_PARENTS, self._stand())]
        chosen = near[np.arange(count) * len(near) // count]
        off = np.array(SCALES)[self._rng.integers(0, len(SCALES), count)]
        drawn = [
            logs[chosen] + apart * off * self._rng.uniform(-1.0, 1.0, count)
            for logs, apart in zip(self._logs, self._apart, strict=True)
        ]
        rates = np.clip(drawn[0], *np.log(self._prior.per_minute))
        depths = np.clip(drawn[1], *np.log(self._prior.depth_s)) if self._two else drawn[1]
        self._again(rates, depths)
        explained = self._off.min() < TOLERANCE
        self._apart = self._apart * NEARER if explained else np.minimum(self._widest, self._apart * WIDER)

    def _again(self, rates: Numbers, depths: Numbers) -> None:
        """Play everything so far to other guesses."""
        now_ms = self._guesses.at_ms
        self._begin(rates, depths)
        for event in self._events:
            if isinstance(event, Answer):
                self._see(event)
                if event.admitted is not None:
                    self._judge(event)
            else:
                self._happen(*event)
        self.advance(now_ms)
        self._weigh()
