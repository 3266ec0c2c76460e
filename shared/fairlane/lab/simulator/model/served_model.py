"""One simulated model: admits or rejects each request on arrival, and records how it ends."""

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from fairlane.core.clock import Clock
from fairlane.lab.simulator.config import ModelLimits, SimulatedModel
from fairlane.lab.simulator.limits.admission import Axis, Level, Limits
from fairlane.lab.simulator.limits.queueing import Queue
from fairlane.lab.simulator.model.behaviour import PAID, Draw, Fault, charge_of, draw, remaining_ms
from fairlane.lab.simulator.model.replies import Composer
from fairlane.lab.simulator.model.stats import ModelStats, Recorder
from fairlane.lab.simulator.wire.dialect import Call, Exceeded, Problem, Reply, Stamp


@dataclass(slots=True, eq=False)
class Work:
    """An admitted request: in flight until it is completed, failed or abandoned, exactly once.

    It waits in the provider's queue until ``turn`` is set.
    """

    stamp: Stamp
    draw: Draw
    reply: Reply
    call: Call
    ended: bool = False
    turn: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A request that gets an error at once; ``retry_after_ms`` is set if waiting helps."""

    problem: Problem
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """A request whose connection the server resets at once."""


Decision = Work | Rejection | Outage


class ServedModel:
    """Admission and accounting of one model, without input or output."""

    def __init__(self, name: str, model: SimulatedModel, composer: Composer, seed: int, clock: Clock) -> None:
        self.name, self.model = name, model
        self._composer, self._seed, self._clock = composer, seed, clock
        now_ms = clock.monotonic_ms()
        self._windows_from_ms = now_ms if model.windows_from == "start" else None
        self._limits = Limits(model, now_ms)
        self._queue = Queue[Work](model.max_concurrency)
        self._recorder = Recorder(now_ms, clock.now_ms() - now_ms)
        self._next_draw: Draw | None = None

    def arrive(self, call: Call) -> Decision:
        """Decide about a request. Only an admitted one is charged and in flight."""
        now_ms = self._clock.monotonic_ms()
        self._recorder.arrived()
        if self._windows_from_ms is None:
            self._windows_from_ms = now_ms
        configured = self._configured(now_ms - self._windows_from_ms)
        return configured if configured is not None else self._admission(call, now_ms)

    def complete(self, work: Work) -> None:
        """Record that the server is about to send the whole answer."""
        self._leave(work)
        self._recorder.completed(self._clock.monotonic_ms())
        self._pay(work, None)

    def fail(self, work: Work, fault: Fault) -> None:
        """Record that the request ended with its fault."""
        self._leave(work)
        self._recorder.failed(fault)
        if fault in PAID:
            self._pay(work, fault)

    def abandon(self, work: Work) -> None:
        """Record that the client went away, unless the work has ended."""
        if not work.ended:
            self._leave(work)
            self._recorder.abandoned()

    def levels(self) -> dict[Axis, Level]:
        """The current level of each limited axis."""
        return self._limits.levels(self._clock.monotonic_ms())

    def snapshot(self) -> ModelStats:
        """The current counts."""
        return self._recorder.snapshot()

    def reconfigure(self, model: SimulatedModel, composer: Composer) -> None:
        """Behave as ``model`` from now on. Counts stay; limits start again only if one of them changed."""
        if any(getattr(model, name) != getattr(self.model, name) for name in ModelLimits.model_fields):
            in_flight, self._limits = self._limits.in_flight, Limits(model, self._clock.monotonic_ms())
            self._limits.in_flight = in_flight
            _begin(self._queue.resize(model.max_concurrency))
        self.model, self._composer, self._next_draw = model, composer, None

    def _configured(self, elapsed_ms: int) -> Rejection | Outage | None:
        if remaining_ms(self.model.outages, elapsed_ms) is not None:
            self._recorder.errored("outage")
            return Outage()
        if self.model.status_always is not None:
            self._recorder.errored("status_always")
            return Rejection(self._configured_problem(self.model.status_always))
        burst_ms = remaining_ms(self.model.burst_429, elapsed_ms)
        if burst_ms is not None:
            self._recorder.rejected("burst")
            return Rejection(self._too_fast("requests"), burst_ms)
        return None

    def _admission(self, call: Call, now_ms: int) -> Work | Rejection:
        ordinal = self._recorder.admitted_count
        drawn = self._next_draw or draw(self._seed, self.name, ordinal, self.model)
        self._next_draw = drawn
        reply = self._composer.compose(call, drawn.output_tokens)
        charge, output = self._charge(call, drawn, reply)
        rejected_by = self._limits.admit(charge, now_ms, output)
        if rejected_by is not None:
            self._recorder.rejected(rejected_by)
            problem = self._exceeded(rejected_by, charge, output, now_ms)
            return Rejection(problem, self._wait_ms(rejected_by, charge, output, now_ms))
        self._recorder.admitted(now_ms)
        self._next_draw = None
        stamp = Stamp(ordinal, self._clock.now_ms() // 1000)
        work = Work(stamp, drawn, reply, call)
        if self._queue.enter(work):
            work.turn.set()
        return work

    def _charge(self, call: Call, drawn: Draw, reply: Reply) -> tuple[int, int]:
        """All tokens that the limits charge for the request, and the output tokens among them."""
        if call.inputs:
            return call.prompt_tokens, 0
        return charge_of(
            self.model, call.prompt_tokens, reply.completion_tokens, call.max_tokens, drawn.fault
        )

    def _wait_ms(self, axis: Axis, charge: int, output: int, now_ms: int) -> int:
        if axis == "concurrency":
            return max(1, round(self.model.latency_ms))
        return self._limits.wait_ms(charge, now_ms, output)

    def _leave(self, work: Work) -> None:
        work.ended = True
        self._limits.release()
        _begin(self._queue.leave(work))

    def _pay(self, work: Work, ending: Fault | None) -> None:
        tokens = work.call.prompt_tokens, work.reply.completion_tokens
        self._recorder.paid(work.call.prompt, *tokens, ending)

    def _too_fast(self, axis: Axis) -> Problem:
        return Problem(429, f"Rate limit reached for {self.name} on {axis}.", axis)

    def _exceeded(self, axis: Axis, charge: int, output: int, now_ms: int) -> Problem:
        """The rejection, with numbers if the model reports its limits and the axis has a level."""
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
