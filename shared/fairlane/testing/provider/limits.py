"""The limits a provider judges by, all of one model together, and a count of what is in flight."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Self

from fairlane.testing.provider.adaptive import Acceleration, Shrinking
from fairlane.testing.provider.config import SimulatedModel
from fairlane.testing.provider.foreign import NEVER, Foreign
from fairlane.testing.provider.shapes import Gate, Shape, TokenBucket
from fairlane.testing.provider.windows import FixedWindow, SlidingLog

Axis = Literal["requests", "tokens", "input", "output", "day", "concurrency"]
"""Requests, total, input and output tokens a minute, requests a day, calls in flight."""

_DAY_MS = 86_400_000
_MINUTES_A_DAY = 1440
_MOST_STEPS = 200

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
    """One axis as headers tell it.

    ``limit`` is what is allowed a minute (a day on the axis ``day``), as it is in force now; ``remaining``
    the whole amount left; ``reset_ms`` the time to a full bucket, to the end of a window, or until all that
    a sliding log holds has lapsed.
    """

    limit: int
    remaining: int
    reset_ms: int


class Limits:
    """All limits of one model, judged together: every one admits a request, or none charges it.

    Days, windows, ``limit_changes`` and ``foreign`` are counted from the ``now_ms`` it is made with. Other
    users' requests are judged by the same limits, save concurrency and acceleration, and a refusal of theirs
    shrinks nothing. Times never go back.

    ``in_flight`` counts those admitted and not released, served or queued; ``foreign_admitted`` what others
    were given.
    """

    def __init__(self, model: SimulatedModel, now_ms: int) -> None:
        self.in_flight = self.foreign_admitted = 0
        self._places = model.max_concurrency
        self._most_in_flight = None if model.max_concurrency is None else model.max_concurrency + model.queue
        self._foreign = Foreign(model.foreign, now_ms)
        self._foreign_tokens = model.foreign_tokens
        self._changes = [(now_ms + round(at * 1000), rate) for at, rate in model.limit_changes]
        self._nominal: dict[Axis, Fraction] = {}
        self._shapes: dict[Axis, Shape] = {}
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
        # Until we take something or the limits move by what we do, what a search has found stays true.
        self._found: dict[tuple[int, ...], int] = {}

    @property
    def queued(self) -> int:
        """How many of those in flight wait for a place, if all places are used."""
        return max(0, self.in_flight - self._places) if self._places is not None else 0

    def admit(self, charge: int, now_ms: int, output: int = 0) -> Axis | None:
        """Charge a request and its tokens and enter it as in flight, or name the axis that refuses it.

        ``charge`` is all its tokens, ``output`` those of them that are output. A request that
        ``acceleration`` refuses is refused by ``requests``.
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
        if self._shrinking is not None and not self._shrinking.whole:
            self._recover(self._shrinking, amounts, now_ms)
        if self._found:
            self._found.clear()
        self.in_flight += 1
        return None

    def release(self) -> None:
        """One admitted request is no longer in flight."""
        self.in_flight -= 1

    def wait_ms(self, charge: int, now_ms: int, output: int = 0) -> int:
        """Milliseconds until such a request would first be admitted; 0 if it would be now.

        That is the truth if nobody but the configured others sends anything meanwhile; places in flight are
        not looked at. Where those others leave nothing for very long, it is a lower bound.
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
        """The limited axes as they stand now, all but ``concurrency``."""
        self._advance(now_ms)
        return {axis: _level(axis, shape, now_ms) for axis, shape in self._shapes.items()}

    def _add_shapes(self, model: SimulatedModel, now_ms: int) -> None:
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

    def _list_gates(self) -> None:
        """What a request of ours must pass, and what others' must."""
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
        """Let everything happen that was due until now; a change of the limit before what comes with it."""
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
        self.foreign_admitted += 1

    def _overrun(self, axis: Axis, now_ms: int) -> None:
        if self._shrinking is not None and axis != "day":
            self._shrinking.refused(now_ms)
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
            self._shapes[axis].set_rate(nominal * self._percent / 100, now_ms)

    def _lone_wait_ms(self, amounts: tuple[int, ...], now_ms: int) -> int:
        """The longest wait of any limit, each by itself: never more than the wait for all of them."""
        return max((gate.wait_ms(amounts[of], now_ms) for _, gate, of in self._gates), default=0)

    def _search(self, amounts: tuple[int, ...], now_ms: int, wait_ms: int) -> int:
        """Go on from now to the time when all admit at once. Others only lengthen the wait, so only a change
        of the limit is stopped at."""
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
        """A copy that goes its own way, as far as waiting needs it."""
        twin = copy.copy(self)
        twin._nominal, twin._changes = self._nominal.copy(), self._changes.copy()
        twin._foreign = self._foreign.clone()
        twin._shapes = {axis: shape.clone() for axis, shape in self._shapes.items()}
        twin._acceleration = None if self._acceleration is None else self._acceleration.clone()
        twin._list_gates()
        return twin


def _shape(model: SimulatedModel, axis: Axis, per_minute: float, now_ms: int) -> Shape:
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
