"""One model at work: judges each request the moment it arrives, and keeps the books until it is over."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import Literal

from fairlane.clock import Clock
from fairlane.testing.provider.behaviour import BEFORE_WORK, PAID, Draw, Fault, draw, remaining_ms
from fairlane.testing.provider.config import SimulatedModel
from fairlane.testing.provider.dialect import Call, Exceeded, Problem, Reply, Stamp
from fairlane.testing.provider.limits import Axis, Level, Limits
from fairlane.testing.provider.queueing import Queue
from fairlane.testing.provider.replies import Composer
from fairlane.testing.provider.stats import ModelStats, Recorder

_LIMIT_FIELDS = (
    "requests_per_minute",
    "tokens_per_minute",
    "input_tokens_per_minute",
    "output_tokens_per_minute",
    "requests_per_day",
    "shape",
    "token_shape",
    "window_seconds",
    "token_window_seconds",
    "burst_seconds",
    "limit_changes",
    "foreign",
    "foreign_tokens",
    "acceleration",
    "acceleration_floor",
    "shrink_on_overrun",
    "initial_share",
    "max_concurrency",
    "queue",
)


@dataclass(slots=True, eq=False)
class Work:
    """An admitted request: in flight until it is completed, failed or abandoned, exactly once.

    ``turn`` is set once it has a place; until then it waits in the provider's queue.
    """

    stamp: Stamp
    draw: Draw
    reply: Reply
    call: Call
    over: bool = False
    turn: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that is answered at once; ``retry_after_ms`` where waiting would help."""

    problem: Problem
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """A request whose connection is to be reset at once."""


Verdict = Work | Refusal | Outage


class ServedModel:
    """Admission and accounting of one model; no input or output of its own."""

    def __init__(self, name: str, model: SimulatedModel, composer: Composer, seed: int, clock: Clock) -> None:
        self.name, self.model = name, model
        self._composer, self._seed, self._clock = composer, seed, clock
        now_ms = clock.monotonic_ms()
        self._windows_from_ms = now_ms if model.windows_from == "start" else None
        self._limits = Limits(model, now_ms)
        self._queue = Queue[Work](model.max_concurrency)
        self._recorder = Recorder(now_ms, clock.now_ms() - now_ms)
        self._next_draw: Draw | None = None

    def arrive(self, call: Call) -> Verdict:
        """Judge a request. Admitted, it is charged and in flight; otherwise nothing is charged."""
        now_ms = self._clock.monotonic_ms()
        self._recorder.arrived()
        if self._windows_from_ms is None:
            self._windows_from_ms = now_ms
        turned_away = self._at_the_door(now_ms - self._windows_from_ms)
        if turned_away is not None:
            return turned_away
        return self._admission(call, now_ms)

    def complete(self, work: Work) -> None:
        """The caller is about to get the whole answer."""
        self._leave(work)
        self._recorder.completed(self._clock.monotonic_ms())
        self._pay(work, None)

    def fail(self, work: Work, fault: Fault) -> None:
        """The request met its fault."""
        self._leave(work)
        self._recorder.failed(fault)
        if fault in PAID:
            self._pay(work, fault)

    def abandon(self, work: Work) -> None:
        """The caller went away; does nothing for work that is over."""
        if not work.over:
            self._leave(work)
            self._recorder.abandoned()

    def levels(self) -> dict[Axis, Level]:
        """The limited axes as they stand."""
        return self._limits.levels(self._clock.monotonic_ms())

    def snapshot(self) -> ModelStats:
        """The books as they stand."""
        return self._recorder.snapshot()

    def reconfigure(self, model: SimulatedModel, composer: Composer) -> None:
        """Behave as ``model`` from now on. Books stay; limits begin anew only if one of them changed."""
        limits_changed = any(getattr(model, field) != getattr(self.model, field) for field in _LIMIT_FIELDS)
        if limits_changed:
            in_flight, self._limits = self._limits.in_flight, Limits(model, self._clock.monotonic_ms())
            self._limits.in_flight = in_flight
            _begin(self._queue.resize(model.max_concurrency))
        self.model, self._composer, self._next_draw = model, composer, None

    def _at_the_door(self, elapsed_ms: int) -> Refusal | Outage | None:
        if remaining_ms(self.model.outages, elapsed_ms) is not None:
            self._recorder.turned_away("outage")
            return Outage()
        if self.model.status_always is not None:
            self._recorder.turned_away("status_always")
            return Refusal(self._configured_problem(self.model.status_always))
        burst_ms = remaining_ms(self.model.burst_429, elapsed_ms)
        if burst_ms is not None:
            self._recorder.rejected("burst")
            return Refusal(self._too_fast("requests"), burst_ms)
        return None

    def _admission(self, call: Call, now_ms: int) -> Work | Refusal:
        ordinal = self._recorder.admitted_count
        fate = self._next_draw or draw(self._seed, self.name, ordinal, self.model)
        self._next_draw = fate
        reply = self._composer.compose(call, fate.output_tokens)
        charge, output = self._charge(call, fate, reply)
        refused_by = self._limits.admit(charge, now_ms, output)
        if refused_by is not None:
            self._recorder.rejected(refused_by)
            problem = self._exceeded(refused_by, charge, output, now_ms)
            return Refusal(problem, self._wait_ms(refused_by, charge, output, now_ms))
        self._recorder.admitted(now_ms)
        self._next_draw = None
        stamp = Stamp(ordinal, self._clock.now_ms() // 1000)
        work = Work(stamp, fate, reply, call)
        if self._queue.enter(work):
            work.turn.set()
        return work

    def _charge(self, call: Call, fate: Draw, reply: Reply) -> tuple[int, int]:
        """All tokens the request costs, and those of them that are output."""
        if call.inputs:
            output = 0
        elif self.model.charge == "reserved":
            longest = self.model.max_output_tokens
            output = min(call.max_tokens or longest, longest)
        elif fate.fault in BEFORE_WORK:
            return 0, 0
        else:
            output = reply.completion_tokens
        output = math.ceil(output * self.model.output_factor)
        return call.prompt_tokens + output, output

    def _wait_ms(self, axis: Axis, charge: int, output: int, now_ms: int) -> int:
        if axis == "concurrency":
            return max(1, round(self.model.latency_ms))
        return self._limits.wait_ms(charge, now_ms, output)

    def _leave(self, work: Work) -> None:
        work.over = True
        self._limits.release()
        _begin(self._queue.leave(work))

    def _pay(self, work: Work, ending: Fault | None) -> None:
        tokens = work.call.prompt_tokens, work.reply.completion_tokens
        self._recorder.paid(work.call.prompt, *tokens, ending)

    def _too_fast(self, axis: Axis) -> Problem:
        return Problem(429, f"Rate limit reached for {self.name} on {axis}.", axis)

    def _exceeded(self, axis: Axis, charge: int, output: int, now_ms: int) -> Problem:
        """The refusal, with its numbers where the model tells its limits and the axis has any."""
        if self.model.headers not in ("ratelimit", "full") and axis != "concurrency":
            return self._too_fast(axis)
        if axis == "concurrency":
            status, most = self.model.concurrency_status, self._limits.in_flight
            if status != 429:
                return Problem(status, f"{self.name} is overloaded.")
            return Problem(429, "", axis, Exceeded(self.name, axis, most, most, 1))
        requested = {"tokens": charge, "input": charge - output, "output": output}.get(axis, 1)
        level = self._limits.levels(now_ms).get(axis)
        if level is None or level.remaining >= requested:
            return self._too_fast(axis)
        used = max(0, level.limit - level.remaining)
        return Problem(429, "", axis, Exceeded(self.name, axis, level.limit, used, requested))

    def _configured_problem(self, status: int | Literal["insufficient_quota"]) -> Problem:
        if status == "insufficient_quota":
            return Problem(429, "You exceeded your current quota, please check your plan.", "quota")
        return Problem(status, f"{self.name} is configured to answer {status}.")


def _begin(works: list[Work]) -> None:
    for work in works:
        work.turn.set()
