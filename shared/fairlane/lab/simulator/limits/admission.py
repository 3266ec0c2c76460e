"""Admits a request against all limits of one model together, and counts the requests in flight.

Others may use up the same limits: their requests are evenly spaced in time.
"""

import copy
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Self

from fairlane.lab.simulator.config import ModelLimits
from fairlane.lab.simulator.limits.adaptive import Acceleration, Shrinking
from fairlane.lab.simulator.limits.shapes import (
    MS_PER_MINUTE,
    FixedWindow,
    Gate,
    Shape,
    SlidingLog,
    TokenBucket,
)

Axis = Literal["requests", "tokens", "input", "output", "day", "concurrency"]
"""Requests, total, input and output tokens per minute, requests per day, calls in flight."""

_DAY_MS = 86_400_000
_MINUTES_A_DAY = 1440
_MOST_STEPS = 200
"""Bounds the search for a wait; if others leave nothing for so long, the result is a lower bound."""

NEVER = 1 << 62
"""A time after all others, in milliseconds."""

_ONE, _TOTAL, _INPUT, _OUTPUT = range(4)

_AMOUNT_OF: dict[Axis, int] = {
    "requests": _ONE,
    "day": _ONE,
    "tokens": _TOTAL,
    "input": _INPUT,
    "output": _OUTPUT,
}


@dataclass(frozen=True, slots=True)
class Level:
    """One axis as headers report it.

    ``limit`` is the amount per minute (per day on the axis ``day``) in force now, ``remaining`` the whole
    amount left. ``reset_ms`` is the time until a bucket is full, a window ends, or a sliding log is empty.
    """

    limit: int
    remaining: int
    reset_ms: int


class Limits:
    """All limits of one model together: each limit admits a request, or none charges it.

    Days, windows, ``limit_changes`` and ``foreign`` count from the ``now_ms`` of construction. Requests of
    other users meet the same limits except concurrency and acceleration; their rejections shrink nothing.
    Times must never decrease.

    ``in_flight`` counts requests admitted and not released, processed or queued; ``foreign_admitted`` counts
    the admitted requests of others.
    """

    def __init__(self, model: ModelLimits, now_ms: int) -> None:
        self.in_flight = self.foreign_admitted = 0
        self._most_in_flight = None if model.max_concurrency is None else model.max_concurrency + model.queue
        self._foreign = Foreign(model.foreign, now_ms)
        self._foreign_tokens = model.foreign_tokens
        self._changes = [(now_ms + round(at * 1000), rate) for at, rate in model.limit_changes]
        self._nominal: dict[Axis, Fraction] = {}
        self._shapes: dict[Axis, Shape] = {}
        self._views: dict[Axis, Shape] = {}  # what headers show in place of the limits
        self._add_shapes(model, now_ms)
        factor, floor = model.acceleration, model.acceleration_floor
        self._acceleration = None if factor is None else Acceleration(factor, floor)
        moves = model.shrink_on_overrun is not None or model.initial_share < 1
        self._shrinking = Shrinking(model.shrink_on_overrun or 1.0, model.initial_share) if moves else None
        self._percent = 100
        if self._shrinking is not None:
            self._percent = self._shrinking.percent
            self._set_rates(now_ms)
        self._list_gates()
        self._next_event_ms = self._find_next_event()
        # Search results by amounts; valid until a request of ours is charged or changes the limits.
        self._found: dict[tuple[int, ...], int] = {}

    def admit(self, charge: int, now_ms: int, output: int = 0) -> Axis | None:
        """Charge a request and count it as in flight, or return the axis that rejects it.

        ``charge`` is all its tokens, ``output`` the output tokens among them. ``acceleration`` rejects on the
        axis ``requests``.
        """
        if now_ms >= self._next_event_ms:
            self._advance(now_ms)
        if self._most_in_flight is not None and self.in_flight >= self._most_in_flight:
            return "concurrency"
        amounts = (1, charge, charge - output, output)
        for axis, gate, amount_of in self._gates:
            if not gate.holds(amounts[amount_of], now_ms):
                self._overrun(axis, now_ms)
                return axis
        for _, gate, amount_of in self._gates:
            gate.spend(amounts[amount_of], now_ms)
        self._spend_views(amounts, now_ms)
        if self._shrinking is not None and not self._shrinking.whole:
            self._recover(self._shrinking, amounts, now_ms)
        if self._found:
            self._found.clear()
        self.in_flight += 1
        return None

    def release(self) -> None:
        """Count one admitted request as no longer in flight."""
        self.in_flight -= 1

    def wait_ms(self, charge: int, now_ms: int, output: int = 0) -> int:
        """Milliseconds until the limits would first admit such a request; 0 if they would now.

        It is exact if only the configured others send requests meanwhile, and ignores concurrency. If those
        others leave nothing for very long, it is a lower bound.
        """
        self._advance(now_ms)
        amounts = (1, charge, charge - output, output)
        wait_ms = self._lone_wait_ms(amounts, now_ms)
        steady = all(gate.steady for _, gate, _ in self._gates)
        if wait_ms == 0 or (steady and now_ms + wait_ms < self._next_event_ms):
            return wait_ms
        at_ms = self._found.get(amounts, now_ms)
        if at_ms <= now_ms:
            at_ms = self._found[amounts] = self._clone()._search(amounts, now_ms, wait_ms)
        return at_ms - now_ms

    def levels(self, now_ms: int) -> dict[Axis, Level]:
        """The current level of each limited axis except ``concurrency``."""
        self._advance(now_ms)
        shown = self._shapes | self._views
        return {axis: _level(axis, shape, now_ms) for axis, shape in shown.items()}

    def _add_shapes(self, model: ModelLimits, now_ms: int) -> None:
        per_minute: dict[Axis, float | None] = {
            "requests": model.requests_per_minute,
            "tokens": model.tokens_per_minute,
            "input": model.input_tokens_per_minute,
            "output": model.output_tokens_per_minute,
        }
        for axis, rate in per_minute.items():
            if rate is not None:
                self._nominal[axis] = Fraction(str(rate))
                self._shapes[axis] = _shape(model, axis, rate, now_ms)
        if model.requests_per_day is not None:
            rate_of_day = Fraction(model.requests_per_day, _MINUTES_A_DAY)
            self._shapes["day"] = FixedWindow(rate_of_day, _DAY_MS, now_ms)
        if model.remaining_of == "minute":
            for axis, nominal in self._nominal.items():
                self._views[axis] = FixedWindow(nominal, MS_PER_MINUTE, now_ms)

    def _list_gates(self) -> None:
        """List the gates that a request must pass: ours, and those of others."""
        judged: list[tuple[Axis, Gate, int]] = [
            (axis, shape, _AMOUNT_OF[axis]) for axis, shape in self._shapes.items()
        ]
        self._foreign_gates = [(gate, amount_of) for _, gate, amount_of in judged]
        self._gates = judged
        if self._acceleration is not None:
            self._gates = [("requests", self._acceleration, _ONE), *judged]

    def _find_next_event(self) -> int:
        return min(self._foreign.next_ms, self._changes[0][0] if self._changes else NEVER)

    def _advance(self, now_ms: int) -> None:
        """Apply all events due until now. A change of the limit precedes a request of the same time."""
        while self._next_event_ms <= now_ms:
            if self._changes and self._changes[0][0] == self._next_event_ms:
                at_ms, per_minute = self._changes.pop(0)
                self._nominal["requests"] = Fraction(str(per_minute))
                self._set_rates(at_ms)
            else:
                self._admit_foreign(self._next_event_ms)
                self._foreign.arrive()
            self._next_event_ms = self._find_next_event()

    def _admit_foreign(self, now_ms: int) -> None:
        amounts = (1, self._foreign_tokens, self._foreign_tokens, 0)
        for gate, amount_of in self._foreign_gates:
            if not gate.holds(amounts[amount_of], now_ms):
                return
        for gate, amount_of in self._foreign_gates:
            gate.spend(amounts[amount_of], now_ms)
        self._spend_views(amounts, now_ms)
        self.foreign_admitted += 1

    def _spend_views(self, amounts: tuple[int, ...], now_ms: int) -> None:
        for axis, view in self._views.items():
            view.spend(amounts[_AMOUNT_OF[axis]], now_ms)

    def _overrun(self, axis: Axis, now_ms: int) -> None:
        if self._shrinking is not None and axis != "day":
            self._shrinking.rejected(now_ms)
            self._follow(self._shrinking, now_ms)

    def _recover(self, shrinking: Shrinking, amounts: tuple[int, ...], now_ms: int) -> None:
        used = (amounts[_AMOUNT_OF[axis]] / nominal for axis, nominal in self._nominal.items())
        shrinking.admitted(max(used, default=Fraction(0)))
        self._follow(shrinking, now_ms)

    def _follow(self, shrinking: Shrinking, now_ms: int) -> None:
        if shrinking.percent != self._percent:
            self._percent = shrinking.percent
            self._found.clear()
            self._set_rates(now_ms)

    def _set_rates(self, now_ms: int) -> None:
        for axis, nominal in self._nominal.items():
            for shape in (self._shapes[axis], self._views.get(axis)):
                if shape is not None:
                    shape.set_rate(nominal * self._percent / 100, now_ms)

    def _lone_wait_ms(self, amounts: tuple[int, ...], now_ms: int) -> int:
        """The longest wait of any single limit: a lower bound of the wait for all of them."""
        return max((gate.wait_ms(amounts[of], now_ms) for _, gate, of in self._gates), default=0)

    def _search(self, amounts: tuple[int, ...], now_ms: int, wait_ms: int) -> int:
        """The time when all limits admit at once. It advances this copy from wait to wait.

        Requests of others only lengthen the wait, so the search stops only at changes of the limit.
        """
        at_ms = now_ms
        for _ in range(_MOST_STEPS):
            if not wait_ms:
                break
            change_ms = self._changes[0][0] if self._changes else NEVER
            at_ms = min(at_ms + wait_ms, change_ms)
            self._advance(at_ms)
            wait_ms = self._lone_wait_ms(amounts, at_ms)
        return at_ms

    def _clone(self) -> Self:
        """A copy that a search may advance: independent except for the shrinking and the search results."""
        twin = copy.copy(self)
        twin._nominal, twin._changes = self._nominal.copy(), self._changes.copy()
        twin._foreign = self._foreign.clone()
        twin._shapes = {axis: shape.clone() for axis, shape in self._shapes.items()}
        twin._views = {}
        twin._acceleration = None if self._acceleration is None else self._acceleration.clone()
        twin._list_gates()
        return twin


def _shape(model: ModelLimits, axis: Axis, per_minute: float, now_ms: int) -> Shape:
    kind, window_seconds = model.shape, model.window_seconds
    if axis != "requests":
        kind, window_seconds = model.token_shape or kind, model.token_window_seconds or window_seconds
    match kind:
        case "bucket":
            return TokenBucket(per_minute, model.burst_seconds, now_ms)
        case "window":
            return FixedWindow(per_minute, round(window_seconds * 1000), now_ms)
        case "second":
            return FixedWindow(per_minute, 1000, now_ms)
        case "sliding":
            return SlidingLog(per_minute, round(window_seconds * 1000), now_ms)


def _level(axis: Axis, shape: Shape, now_ms: int) -> Level:
    per = _MINUTES_A_DAY if axis == "day" else 1
    return Level(int(shape.per_minute * per), shape.remaining(now_ms), shape.full_in_ms(now_ms))


class Foreign:
    """Requests of others in periods ``(start_s, duration_s, requests_per_minute)`` after ``start_ms``.

    The k-th request of a period arrives at its start + k minutes / rate, rounded down to the millisecond.
    """

    def __init__(self, periods: Sequence[tuple[float, float, float]], start_ms: int) -> None:
        self._periods: list[tuple[int, Fraction, int]] = []
        for start, duration, per_minute in periods:
            gap_ms = MS_PER_MINUTE / Fraction(str(per_minute))
            count = math.ceil(Fraction(str(duration)) * 1000 / gap_ms)
            self._periods.append((start_ms + round(start * 1000), gap_ms, count))
        self._due = [(begins_ms, number, 0) for number, (begins_ms, _, _) in enumerate(self._periods)]
        heapq.heapify(self._due)

    @property
    def next_ms(self) -> int:
        """Time of the next request; `NEVER` if there is none."""
        return self._due[0][0] if self._due else NEVER

    def arrive(self) -> None:
        """Count the next request as arrived, and move to the one after it."""
        _, number, ordinal = self._due[0]
        begins_ms, gap_ms, count = self._periods[number]
        ordinal += 1
        if ordinal < count:
            at_ms = begins_ms + ordinal * gap_ms.numerator // gap_ms.denominator
            heapq.heapreplace(self._due, (at_ms, number, ordinal))
        else:
            heapq.heappop(self._due)

    def clone(self) -> Self:
        """An independent copy."""
        twin = copy.copy(self)
        twin._due = self._due.copy()
        return twin
