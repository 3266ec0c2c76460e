"""The pretended provider: when a call's end comes back, what it tells, and what befalls calls in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fairlane.core.clock import ManualClock
from fairlane.lab.rehearsal.scenario import Load, Network
from fairlane.lab.rehearsal.virtual.event_queue import EventQueue
from fairlane.lab.rehearsal.virtual.simulated_provider import SimulatedProvider
from fairlane.lab.simulator.config import SimulatedModel
from fairlane.model.hints import AxisHint, Hints
from fairlane.model.job import Attempt
from fairlane.model.outcome import AccessDenied, NetworkFailure, Outcome, RateLimited, ServerError, Success

WAY_MS, CALL_MS = 20, 500


class Caller:
    """Calls a provider and notes when each call's end came back, in milliseconds from the start."""

    def __init__(self, sheds: Sequence[tuple[float, int]] = (), **limits: Any) -> None:
        usual: dict[str, Any] = {"latency_ms": CALL_MS, "output_tokens": 10, "windows_from": "start"}
        self.clock = ManualClock(0)
        self.events = EventQueue(self.clock)
        network = Network(median_ms=WAY_MS, sigma=0, pickup_ms=0)
        model = SimulatedModel.model_validate(usual | limits)
        load = Load(input_tokens=30, max_tokens=50)
        self.provider = SimulatedProvider(model, network, 0, self.events, lambda _: load, sheds)
        self.ends: list[tuple[int, Outcome]] = []

    def call(self, times: int = 1) -> None:
        for _ in range(times):
            attempt = Attempt("r1", "search", 0, 1, "sim:model")
            self.provider.serve(attempt, lambda end: self.ends.append((self.clock.now_ms(), end)))

    def pass_time(self, until_ms: int) -> None:
        while (next_ms := self.events.next_ms) is not None and next_ms <= until_ms:
            self.clock.advance((next_ms - self.clock.now_ms()) / 1000)
            self.events.run_due()
        self.clock.advance((until_ms - self.clock.now_ms()) / 1000)


def test_an_answer_takes_latency_and_network_time_and_a_refusal_only_the_latter() -> None:
    caller = Caller(requests_per_minute=60)
    caller.call(2)

    caller.pass_time(5000)

    (refused_ms, refusal), (answered_ms, answer) = caller.ends
    assert (refused_ms, answered_ms) == (2 * WAY_MS, 2 * WAY_MS + CALL_MS)
    assert isinstance(refusal, RateLimited)
    assert isinstance(answer, Success)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (30, 10)


@pytest.mark.parametrize(("charge", "left"), [("actual", 920), ("reserved", 720)])
def test_an_output_token_counts_as_often_as_the_provider_says(charge: str, left: int) -> None:
    caller = Caller(tokens_per_minute=60_000, charge=charge, output_factor=5, headers="ratelimit")
    caller.call()

    caller.pass_time(5000)

    hints = caller.ends[0][1].hints
    assert hints is not None
    assert hints.axes["tokens"].remaining == left


@pytest.mark.parametrize(
    ("headers", "wait_ms", "shown"),
    [("none", None, False), ("retry_after", 1000, False), ("ratelimit", None, True), ("full", 1000, True)],
)
def test_a_refusal_reports_what_the_provider_says(headers: str, wait_ms: int | None, shown: bool) -> None:
    caller = Caller(requests_per_minute=60, headers=headers)
    caller.call(2)

    caller.pass_time(5000)

    refusal = caller.ends[0][1]
    assert refusal.retry_after_ms == wait_ms
    hints = Hints({"requests": AxisHint(60, 0, 1000)}, "requests")
    assert refusal.hints == (hints if shown else None)


def test_an_answer_reports_the_levels_at_its_admission() -> None:
    caller = Caller(requests_per_minute=600, burst_seconds=1, headers="ratelimit")
    caller.call()

    caller.pass_time(5000)

    assert caller.ends[0][1].hints == Hints({"requests": AxisHint(600, 9, 100)})


def test_an_outage_resets_and_a_burst_refuses() -> None:
    caller = Caller(outages=((0, 1),), burst_429=((1, 1),), headers="retry_after")
    caller.call()
    caller.pass_time(1000)
    caller.call()

    caller.pass_time(5000)

    reset, refused = (outcome for _, outcome in caller.ends)
    assert isinstance(reset, NetworkFailure)
    assert isinstance(refused, RateLimited)
    assert refused.retry_after_ms == 1000 - WAY_MS
    assert [arrival.verdict for arrival in caller.provider.log.arrivals] == ["outage", "burst"]


def test_calls_beyond_the_places_are_refused_or_wait() -> None:
    refusing, queueing = Caller(max_concurrency=1), Caller(max_concurrency=1, queue=5)
    for caller in (refusing, queueing):
        caller.call(2)
        caller.pass_time(5000)

    assert [type(outcome) for _, outcome in refusing.ends] == [RateLimited, Success]
    assert [at_ms for at_ms, _ in queueing.ends] == [2 * WAY_MS + CALL_MS, 2 * WAY_MS + 2 * CALL_MS]


def test_calls_that_are_shed_end_at_once_and_are_not_answered() -> None:
    caller = Caller(sheds=((0.2, 2),))
    caller.call(3)

    caller.pass_time(5000)

    assert [(at_ms, type(end)) for at_ms, end in caller.ends] == [
        (200 + WAY_MS, RateLimited),
        (200 + WAY_MS, RateLimited),
        (2 * WAY_MS + CALL_MS, Success),
    ]
    assert caller.provider.limits.in_flight == 0
    assert caller.provider.log.sheds == [200, 200]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, RateLimited), (500, ServerError), (401, AccessDenied), ("insufficient_quota", AccessDenied)],
)
def test_each_configured_status_is_classified(status: int | str, kind: type) -> None:
    caller = Caller(status_always=status)
    caller.call()

    caller.pass_time(1000)

    assert isinstance(caller.ends[0][1], kind)
