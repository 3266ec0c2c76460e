"""A world's provider as events in virtual time: calls arrive, are admitted or refused, and are answered."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import NamedTuple

from fairlane.lab.rehearsal.virtual.event_queue import EventQueue
from fairlane.model.hints import Axis
from fairlane.model.job import Attempt
from fairlane.model.outcome import (
    InvalidResponse,
    NetworkFailure,
    Outcome,
    Overloaded,
    RateLimited,
    Success,
    TimedOut,
)
from fairlane.model.tokens import Usage
from tests.benchmarks.zoo.admission import Admission, Draw, draw
from tests.benchmarks.zoo.signals import Signs
from tests.benchmarks.zoo.world import Outage, World

ADMITTED, FAULTY = "admitted", "faulty"
NETWORK_SPREAD = 0.3
"""Sigma of a message's lognormal travel time: a few milliseconds of jitter, as in `Network`."""
TIMEOUT_MS = 60_000
"""The worker's timeout: it ends a call that hangs after this time."""
QUICK_MS = 50
"""An overloaded provider answers within this time."""

Finish = Callable[[Outcome], None]


class Arrival(NamedTuple):
    """A call as the provider saw it. ``verdict``: `ADMITTED`, `FAULTY`, an axis, or an outage's form."""

    at_ms: int
    verdict: str


class GeneratedProvider:
    """Serves calls under its world's limits. The n-th admitted call is the same for every player."""

    def __init__(self, world: World, events: EventQueue) -> None:
        self.world, self.arrivals = world, list[Arrival]()
        self._events, self._began_ms = events, events.now_ms
        self._admission = Admission(world, events.now_ms)
        self._signs = Signs(world, self._admission, events.now_ms)
        self._network = random.Random(f"network/{world.seed}")
        self._chance = random.Random(f"outages/{world.seed}")
        self._ordinal = 0
        self._fate: Draw | None = None

    @property
    def began_ms(self) -> int:
        """The time of its start."""
        return self._began_ms

    def serve(self, attempt: Attempt, finish: Finish) -> None:
        """Start a worker's call; ``finish`` gets its outcome when the answer has reached the worker."""
        self._events.after(self._travel_ms(), lambda: self._arrive(finish))

    def _travel_ms(self) -> int:
        return round(self.world.one_way_ms * math.exp(NETWORK_SPREAD * self._network.gauss(0.0, 1.0)))

    def _arrive(self, finish: Finish) -> None:
        outage = self._outage()
        if outage is not None:
            self._note(outage.form)
            self._fail(outage, finish)
            return
        now_ms, admission = self._events.now_ms, self._admission
        fate = self._fate = self._fate or draw(self.world, self._ordinal)
        taken, returned = admission.charges(fate.output_tokens)
        axis = admission.rejects(taken, now_ms)
        if axis is not None:
            self._note(axis)
            admission.count_refused(now_ms)
            self._send_back(finish, self._refusal(axis, taken, now_ms))
            return
        self._note(FAULTY if fate.faulty else ADMITTED)
        self._ordinal, self._fate = self._ordinal + 1, None
        admission.admit(taken, now_ms)
        self._signs.note_admitted(taken, now_ms)

        def end() -> None:
            admission.release(returned, now_ms, self._events.now_ms)
            self._send_back(finish, self._ended(fate))

        self._events.after(max(1, math.ceil(admission.latency_ms(fate))), end)

    def _ended(self, fate: Draw) -> Outcome:
        hints = self._signs.of_success(self._events.now_ms)
        if fate.faulty:
            return Overloaded("internal error", 500)
        return Success("yes", Usage(self.world.work.input_tokens, fate.output_tokens), hints=hints)

    def _outage(self) -> Outage | None:
        elapsed_s = (self._events.now_ms - self._began_ms) / 1000
        for outage in self.world.outages:
            if outage.at_s <= elapsed_s < outage.at_s + outage.lasts_s:
                return outage if outage.share >= 1 or self._chance.random() < outage.share else None
        return None

    def _fail(self, outage: Outage, finish: Finish) -> None:
        wait_ms = None if outage.wait_s is None else round(outage.wait_s * 1000)
        takes_ms, outcome = QUICK_MS, Overloaded("busy", 503, retry_after_ms=wait_ms)
        failure: Outcome = outcome
        match outage.form:
            case "529" | "500":
                failure = Overloaded("busy", int(outage.form), retry_after_ms=wait_ms)
            case "429":
                failure = RateLimited("Resource exhausted. Please try again later.")
            case "refused":
                takes_ms, failure = 0, NetworkFailure("connection refused")
            case "hang":
                takes_ms, failure = TIMEOUT_MS, TimedOut("no answer in time")
            case "malformed":
                takes_ms = round(self.world.latency.median_s * 1000)
                failure = InvalidResponse("not JSON", 200)
            case "503":
                pass
        self._events.after(takes_ms, lambda: self._send_back(finish, failure))

    def _refusal(self, axis: Axis, taken: dict[Axis, float], now_ms: int) -> Outcome:
        if axis == "concurrency":
            wait_ms: float | None = self.world.latency.median_s * 1000
        else:
            wait_ms = self._admission.wait_ms(taken, now_ms)
            if self.world.charge == "refunded" and wait_ms is not None and self._admission.in_flight:
                # Refunds of calls that end earlier may shorten this wait.
                wait_ms = min(wait_ms, self.world.latency.median_s * 1000)
        hints, shown_ms = self._signs.of_refusal(axis, wait_ms, now_ms)
        if axis == "concurrency" and self.world.at_once_status == 503:
            return Overloaded("no place is free", 503, retry_after_ms=shown_ms, hints=hints)
        return RateLimited(f"rate limit reached on {axis}", retry_after_ms=shown_ms, hints=hints)

    def _send_back(self, finish: Finish, outcome: Outcome) -> None:
        self._events.after(self._travel_ms(), lambda: finish(outcome))

    def _note(self, verdict: str) -> None:
        self.arrivals.append(Arrival(self._events.now_ms, verdict))
