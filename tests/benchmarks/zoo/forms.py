"""What a learner believes who is not told a limit's form either: one `Belief` for each form that it may have.

The forms are those that the generator draws: a bucket, and fixed and sliding windows of several lengths. A
form weighs as much as the generator draws it, and next to nothing once no guess of it explains the answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tests.benchmarks.zoo.belief import TOLERANCE, Answer, Belief, Prior
from tests.benchmarks.zoo.generator import SPANS_SEEN
from tests.benchmarks.zoo.world import AxisLimit, Shape, World

SHAPES: dict[Shape, float] = {"bucket": 0.5, "window": 0.25, "sliding": 0.25}
"""How often the generator draws each."""
SPANS_S = (1.0, 5.0, 10.0, 60.0)
"""The windows' lengths, of those that fit often enough into the horizon."""
QUANTILES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 0.9999)
"""The probabilities of each form by which the time is found at which all together admit a call."""


class Forms:
    """Beliefs about each form of a limit; a call is admitted as likely as all of them say together."""

    def __init__(
        self, world: World, limit: AxisLimit, least: float, prior: Callable[[World, AxisLimit], Prior]
    ) -> None:
        forms = forms_of(world, limit)
        self._beliefs = [
            Belief(form, least, prior(world, form), world.steps, world.seed + number)
            for number, form in enumerate(forms)
        ]
        self._shapes: list[Shape] = [form.shape for form in forms]
        counts = {shape: sum(form.shape == shape for form in forms) for shape in SHAPES}
        self._before = np.array([SHAPES[form.shape] / counts[form.shape] for form in forms])
        self._calls: dict[int, list[Answer]] = {}

    def times_ms(self, amount: float, now_ms: float, shares: Sequence[float]) -> list[float]:
        """From when on a call of ``amount`` is admitted, with each of these probabilities."""
        weights = self._weights()
        steps = list[tuple[float, float]]()  # a time, and by how much it is more probable from then on
        for belief, weight in zip(self._beliefs, weights, strict=True):
            if weight < 1e-6:
                continue
            below = 0.0
            for share, at_ms in zip(QUANTILES, belief.times_ms(amount, now_ms, QUANTILES), strict=True):
                steps.append((at_ms, weight * (share - below)))
                below = share
        steps.sort()
        times, sums = [at_ms for at_ms, _ in steps], np.cumsum([gain for _, gain in steps])
        places = [int(np.searchsorted(sums, share - 1e-5)) for share in shares]
        return [times[place] if place < len(times) else math.inf for place in places]

    def sent(self, amount: float, now_ms: float) -> Answer:
        """Note a call. See `Belief.sent`."""
        call = Answer(now_ms, amount)
        self._calls[id(call)] = [belief.sent(amount, now_ms) for belief in self._beliefs]
        return call

    def refunded(self, amount: float, taken_ms: float, now_ms: float) -> None:
        """See `Belief.refunded`."""
        for belief in self._beliefs:
            belief.refunded(amount, taken_ms, now_ms)

    def charged(self, amount: float, now_ms: float) -> None:
        """See `Belief.charged`."""
        for belief in self._beliefs:
            belief.charged(amount, now_ms)

    def heard(self, call: Answer) -> None:
        """Learn from the answer to a call, which is complete now."""
        for belief, own in zip(self._beliefs, self._calls.pop(id(call)), strict=True):
            own.admitted, own.wait_ms, own.off_ms = call.admitted, call.wait_ms, call.off_ms
            belief.heard(own)

    def known(self, per_minute: float, depth_s: float | None) -> None:
        """See `Belief.known`."""
        for belief in self._beliefs:
            belief.known(per_minute, depth_s)

    def likely(self) -> dict[Shape, float]:
        """How likely each shape is by now."""
        found: dict[Shape, float] = dict.fromkeys(SHAPES, 0.0)
        for shape, weight in zip(self._shapes, self._weights(), strict=True):
            found[shape] += weight
        return found

    def _weights(self) -> list[float]:
        off = np.array([belief.least_off for belief in self._beliefs])
        weights = self._before * np.exp(-(off - off.min()) / TOLERANCE)
        return list(weights / weights.sum())


def forms_of(world: World, limit: AxisLimit) -> list[AxisLimit]:
    """The forms that the limit may have as the generator draws them, its own among them."""
    most_s = world.horizon_s / SPANS_SEEN
    spans = [span_s for span_s in SPANS_S if span_s <= most_s]
    others = [AxisLimit(limit.axis, limit.per_minute, "bucket", 1.0)] + [
        AxisLimit(limit.axis, limit.per_minute, shape, span_s)
        for shape in ("window", "sliding")
        for span_s in spans
    ]
    same = replace(limit, phase_s=0.0, spent=0.0)
    if limit.shape == "bucket":
        return others
    return [limit, *(form for form in others if form != same)]
