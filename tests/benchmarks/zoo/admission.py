"""Decides whether a world's limits admit a call. The world's provider and its oracle share this code."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from fairlane.model.hints import Axis
from tests.benchmarks.zoo.gates import NEVER, Bucket, FixedWindow, Gate, SlidingWindow
from tests.benchmarks.zoo.world import AxisLimit, Latency, World

_PARETO_SHAPE = 2.2
_SLOW_MODE, _SLOW_SHARE = 4.0, 0.2
_MOST_LATENCY = 40.0
"""The longest latency that is drawn, as a multiple of the median."""


class Draw(NamedTuple):
    """What happens to the n-th admitted call. It is the same for every scheduler that plays the world."""

    latency_s: float
    output_tokens: int
    faulty: bool


def draw(world: World, ordinal: int) -> Draw:
    """What happens to the ``ordinal``-th admitted call."""
    rng = random.Random(f"{world.seed}/{ordinal}")
    faulty = rng.random() < world.fault_share
    work = world.work
    output = work.output_tokens * math.exp(rng.gauss(0.0, work.output_spread) - work.output_spread**2 / 2)
    tokens = max(1, min(world.largest_output, round(output)))
    return Draw(_latency_s(world.latency, rng), tokens, faulty)


def _latency_s(latency: Latency, rng: random.Random) -> float:
    median, spread = latency.median_s, latency.spread
    match latency.shape:
        case "constant":
            taken = median
        case "lognormal":
            taken = median * math.exp(rng.gauss(0.0, spread))
        case "bimodal":
            slow = rng.random() < _SLOW_SHARE
            taken = median * (_SLOW_MODE if slow else 1.0) * math.exp(rng.gauss(0.0, spread / 3))
        case "pareto":
            taken = 0.7 * median * rng.random() ** (-1 / _PARETO_SHAPE)
    return min(taken, _MOST_LATENCY * median)


class Charges(NamedTuple):
    """What each axis charges for a call at its admission, and what it refunds at the call's end."""

    taken: dict[Axis, float]
    returned: dict[Axis, float]


class Admission:
    """The state of all limits. Times are milliseconds; none is before ``began_ms`` or before the last one."""

    def __init__(self, world: World, began_ms: int) -> None:
        self.world, self.in_flight = world, 0
        largest = _largest_charges(world)
        self.gates: dict[Axis, Gate] = {
            limit.axis: _gate(limit, largest.get(limit.axis, 1.0), began_ms) for limit in world.limits
        }
        self._steps = [(began_ms + step.at_s * 1000, step.factor, step.others) for step in world.steps]

    def charges(self, output_tokens: int) -> Charges:
        """The charges of a call whose answer has ``output_tokens``."""
        work, world = self.world.work, self.world
        actual = amounts(work.input_tokens, output_tokens, world.output_factor)
        if world.charge == "used":
            return Charges(actual, {})
        reserved = amounts(work.input_tokens, world.largest_output, world.output_factor)
        if world.charge == "reserved":
            return Charges(reserved, {})
        return Charges(reserved, {axis: reserved[axis] - actual[axis] for axis in reserved})

    def rejects(self, taken: dict[Axis, float], now_ms: float) -> Axis | None:
        """The axis that refuses a call of these charges now; ``None`` if all admit it."""
        self.advance(now_ms)
        most = self.world.most_at_once
        if most is not None and self.in_flight >= most:
            return "concurrency"
        for axis, gate in self.gates.items():
            if gate.earliest_ms(taken[axis], now_ms) > now_ms:
                return axis
        return None

    def admit(self, taken: dict[Axis, float], now_ms: float) -> None:
        """Charge an admitted call, and count it as in flight."""
        self.in_flight += 1
        for axis, gate in self.gates.items():
            gate.spend(taken[axis], now_ms)

    def count_refused(self, now_ms: float) -> None:
        """Charge a refused request if this provider counts refused requests."""
        if self.world.counts_refused and "requests" in self.gates:
            self.gates["requests"].spend(1.0, now_ms)

    def release(self, returned: dict[Axis, float], taken_ms: float, now_ms: float) -> None:
        """End a call: it leaves the calls in flight, and its axes get ``returned`` back."""
        self.in_flight -= 1
        if returned:
            self.advance(now_ms)
            for axis, gate in self.gates.items():
                gate.refund(returned[axis], taken_ms, now_ms)

    def earliest_ms(self, taken: dict[Axis, float], now_ms: float) -> float:
        """When the rate limits first admit a call of these charges, if no other call comes before it.

        Ignores the limit on calls in flight. The answer is at most the next step of the limits; the caller
        asks again then.
        """
        self.advance(now_ms)
        at_ms = self._lone_earliest_ms(taken, now_ms)
        return min(at_ms, self._steps[0][0]) if self._steps else at_ms

    def wait_ms(self, taken: dict[Axis, float], now_ms: float) -> float | None:
        """The wait that an exact Retry-After names to a refused call; ``None`` if no time would do."""
        at_ms = self._lone_earliest_ms(taken, now_ms)
        return None if at_ms == NEVER else at_ms - now_ms

    def _lone_earliest_ms(self, taken: dict[Axis, float], now_ms: float) -> float:
        return max((g.earliest_ms(taken[axis], now_ms) for axis, g in self.gates.items()), default=now_ms)

    def advance(self, now_ms: float) -> None:
        """Apply all steps of the limits that are due by ``now_ms``."""
        while self._steps and self._steps[0][0] <= now_ms:
            at_ms, factor, others = self._steps.pop(0)
            for gate in self.gates.values():
                gate.set_rate(factor, others, at_ms)

    def latency_ms(self, fate: Draw) -> float:
        """The latency of a call that is admitted now: it grows with the calls in flight."""
        latency = self.world.latency
        grown = 1 + latency.growth * self.in_flight / latency.reference
        return fate.latency_s * 1000 * grown


def amounts(inputs: float, outputs: float, factor: float) -> dict[Axis, float]:
    """The charge on each axis for a call with these tokens; ``factor`` weights output tokens."""
    return {
        "requests": 1.0,
        "day": 1.0,
        "input": float(inputs),
        "output": outputs * factor,
        "tokens": inputs + outputs * factor,
    }


def _largest_charges(world: World) -> dict[Axis, float]:
    return amounts(world.work.input_tokens, world.largest_output, world.output_factor)


def _gate(limit: AxisLimit, largest: float, now_ms: int) -> Gate:
    # A bucket or window smaller than one call would admit nothing, so each holds at least the largest call.
    span_ms = limit.span_s * 1000
    match limit.shape:
        case "bucket":
            return Bucket(limit.per_minute, limit.span_s, largest, now_ms)
        case "window":
            return FixedWindow(limit.per_minute, span_ms, largest, now_ms, limit.phase_s * 1000, limit.spent)
        case "sliding":
            return SlidingWindow(limit.per_minute, span_ms, largest)
