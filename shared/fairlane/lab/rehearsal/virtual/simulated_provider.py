"""A simulated provider as events: a call arrives, is admitted or rejected, runs, and its outcome returns."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from fairlane.lab.rehearsal.scenario import Load, Network, mean_latency_ms
from fairlane.lab.rehearsal.virtual.event_queue import EventQueue
from fairlane.lab.simulator.config import SimulatedModel
from fairlane.lab.simulator.limits.admission import Limits
from fairlane.lab.simulator.limits.queueing import Queue
from fairlane.lab.simulator.model.behaviour import (
    BEFORE_WORK,
    ERROR_STATUS,
    Draw,
    Fault,
    charge_of,
    draw,
    longest_answer,
    remaining_ms,
)
from fairlane.model.hints import Axis, AxisHint, Hints
from fairlane.model.job import Attempt
from fairlane.model.outcome import (
    AccessDenied,
    InvalidResponse,
    NetworkFailure,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
    TimedOut,
)
from fairlane.model.tokens import Usage

OUTAGE, ADMITTED, BURST, TURNED_AWAY = "outage", "admitted", "burst", "turned away"
HANGS_MS = 120_000
ANSWER = "yes"


class Arrival(NamedTuple):
    """A call as the provider saw it; ``verdict`` is `ADMITTED` or why it was rejected: axis or constant."""

    at_ms: int
    team: str
    verdict: str
    input_tokens: int
    output_tokens: int


@dataclass(slots=True)
class ProviderLog:
    """All calls that one provider has seen."""

    arrivals: list[Arrival] = field(default_factory=list)
    served: list[tuple[int, int]] = field(default_factory=list)  # from when to when each call was worked on
    sheds: list[int] = field(default_factory=list)
    succeeded: int = 0
    last_ms: int = 0  # when the last outcome reached its worker


@dataclass(slots=True)
class _Work:
    """A call that was admitted and has not ended."""

    fate: Draw
    end: Callable[[Outcome], None]
    success: Outcome
    hints: Hints | None
    begun_ms: int | None = None


class SimulatedProvider:
    """One model. The same seed and the same calls give the same answers."""

    def __init__(
        self,
        model: SimulatedModel,
        network: Network,
        seed: int,
        events: EventQueue,
        load_of: Callable[[Attempt], Load],
        sheds: Sequence[tuple[float, int]] = (),
    ) -> None:
        self.model, self.log = model, ProviderLog()
        self.limits = Limits(model, events.now_ms)
        self._network, self._events, self._load_of = network, events, load_of
        self._seed, self._rng = seed, random.Random(f"network/{seed}")
        self._began_ms = events.now_ms
        self._queue: Queue[int] = Queue(model.max_concurrency)
        self._works: dict[int, _Work] = {}
        self._fate: Draw | None = None
        self._admitted = 0
        for at_s, count in sheds:
            events.after(round(at_s * 1000), partial(self._shed, count))

    def serve(self, attempt: Attempt, finish: Callable[[Outcome], None]) -> None:
        """A worker starts a call; ``finish`` gets the outcome when it reaches the worker."""
        pickup_ms = self._delay_ms(self._network.pickup_ms)
        way_ms = pickup_ms + self._delay_ms(self._network.median_ms)
        self._events.after(way_ms, lambda: self._on_arrival(self._load_of(attempt), finish))

    def _delay_ms(self, median_ms: float) -> int:
        if self._network.sigma == 0:
            return round(median_ms)
        return round(median_ms * math.exp(self._network.sigma * self._rng.gauss(0.0, 1.0)))

    def _on_arrival(self, load: Load, finish: Callable[[Outcome], None]) -> None:
        end = partial(self._send_back, finish)
        turned_away = self._reject_on_arrival()
        if turned_away is not None:
            verdict, outcome = turned_away
            self._note(load, verdict, 0)
            end(outcome)
            return
        now_ms = self._events.now_ms
        fate = self._fate = self._fate or draw(self._seed, "rehearsal", self._admitted, self.model)
        output = min(fate.output_tokens, longest_answer(self.model, load.max_tokens))
        charge, charged_output = charge_of(self.model, load.input_tokens, output, load.max_tokens, fate.fault)
        axis = self.limits.admit(charge, now_ms, charged_output)
        self._note(load, axis or ADMITTED, output)
        if axis is not None:
            end(self._refusal(axis, charge, charged_output))
            return
        self._fate = None
        hints = self._hints()
        success = Success(
            ANSWER,
            Usage(load.input_tokens, output),
            retry_after_ms=self.model.success_retry_after_ms,
            hints=hints,
        )
        number, self._admitted = self._admitted, self._admitted + 1
        self._works[number] = _Work(fate, end, success, hints)
        if self._queue.enter(number):
            self._begin(number)

    def _reject_on_arrival(self) -> tuple[str, Outcome] | None:
        model, elapsed_ms = self.model, self._events.now_ms - self._began_ms
        if remaining_ms(model.outages, elapsed_ms) is not None:
            return OUTAGE, NetworkFailure("connection reset")
        if model.status_always is not None:
            return TURNED_AWAY, _outcome_of_status(model.status_always)
        wait_ms = remaining_ms(model.burst_429, elapsed_ms)
        if wait_ms is not None:
            return BURST, RateLimited("too fast", retry_after_ms=wait_ms if self._names_wait() else None)
        return None

    def _refusal(self, axis: Axis, charge: int, output: int) -> Outcome:
        wait_ms, hints = None, self._hints(axis)
        if self._names_wait():
            wait_ms = round(mean_latency_ms(self.model))
            if axis != "concurrency":
                wait_ms = self.limits.wait_ms(charge, self._events.now_ms, output)
        if axis == "concurrency" and self.model.concurrency_status == 503:
            return Overloaded("no place is free", 503, retry_after_ms=wait_ms, hints=hints)
        return RateLimited(f"rate limit reached on {axis}", retry_after_ms=wait_ms, hints=hints)

    def _names_wait(self) -> bool:
        return self.model.headers in ("retry_after", "full")

    def _hints(self, exhausted: Axis | None = None) -> Hints | None:
        """The rate-limit headers of an answer at this time; ``exhausted``: the axis of a rejected call."""
        if self.model.headers not in ("ratelimit", "full"):
            return None
        if self.model.headers_on == "rejected" and exhausted is None:
            return None
        levels = self.limits.levels(self._events.now_ms)
        axes: dict[Axis, AxisHint] = {
            axis: AxisHint(level.limit, level.remaining, level.reset_ms if self.model.reset_header else None)
            for axis, level in levels.items()
        }
        return Hints(axes, exhausted)

    def _begin(self, number: int) -> None:
        work = self._works[number]
        work.begun_ms = self._events.now_ms
        takes_ms = round(work.fate.latency_s * 1000)
        if work.fate.fault is Fault.HANG:
            takes_ms = HANGS_MS
        elif work.fate.fault in BEFORE_WORK:
            takes_ms = 0
        self._events.after(takes_ms, lambda: self._end(number, _ended(work)))

    def _end(self, number: int, outcome: Outcome) -> None:
        work = self._works.pop(number, None)
        if work is None:
            return
        if work.begun_ms is not None:
            self.log.served.append((work.begun_ms, self._events.now_ms))
        self.limits.release()
        for following in self._queue.leave(number):
            self._begin(following)
        self.log.succeeded += isinstance(outcome, Success)
        work.end(outcome)

    def _shed(self, count: int) -> None:
        """End the oldest calls in flight by a 429."""
        for number in list(self._works)[:count]:
            self.log.sheds.append(self._events.now_ms)
            self._end(number, RateLimited("shed", hints=self._hints()))

    def _send_back(self, finish: Callable[[Outcome], None], outcome: Outcome) -> None:
        def arrive() -> None:
            self.log.last_ms = self._events.now_ms
            finish(outcome)

        self._events.after(self._delay_ms(self._network.median_ms), arrive)

    def _note(self, load: Load, verdict: str, output: int) -> None:
        self.log.arrivals.append(Arrival(self._events.now_ms, load.team, verdict, load.input_tokens, output))


def _ended(work: _Work) -> Outcome:
    """The outcome of a call, by its fate."""
    fault = work.fate.fault
    if fault is None:
        return work.success
    if fault in ERROR_STATUS:
        return _failed(fault, ERROR_STATUS[fault], work.hints)
    match fault:
        case Fault.RESET | Fault.RESET_AFTER_WORK:
            return NetworkFailure("connection reset")
        case Fault.HANG:
            return TimedOut("no answer in time", deadline_ms=HANGS_MS)
        case Fault.ERROR_IN_STREAM:
            return Overloaded(fault, 529, hints=work.hints)
        case _:
            return InvalidResponse(fault, 200, hints=work.hints)


def _failed(message: str, status: int, hints: Hints | None = None) -> Outcome:
    """The outcome of an error, by its status."""
    match status:
        case 429:
            return RateLimited(message, hints=hints)
        case 401 | 402 | 403:
            return AccessDenied(message, status, hints=hints)
        case 503 | 529:
            return Overloaded(message, status, hints=hints)
        case _ if status >= 500:
            return ServerError(message, status, hints=hints)
        case _:
            return PermanentFailure(message, status, hints=hints, doubtful=status == 404)


def _outcome_of_status(status: int | str) -> Outcome:
    if not isinstance(status, int):
        return AccessDenied(status, 429, "quota")
    return _failed("too fast" if status == 429 else "refused", status)
