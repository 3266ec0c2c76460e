"""The adapters against the simulated provider: both ends of a protocol read it the same way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

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
from fairlane.testing import Faults, ServedProvider, SimulatedModel, SimulatorConfig, serve_in_thread
from tests.support.provider_calls import KEY, ask, every_protocol, provider_of, streamed_or_not
from tests.support.wires import Wire

QUICK = SimulatedModel(latency_ms=1.0, output="echo")


def outcomes(
    wire: Wire, model: SimulatedModel, *, stream: bool, calls: int = 1, **ask_for: Any
) -> tuple[list[Outcome], ServedProvider]:
    config = SimulatorConfig.model_validate({"models": {"m-1": model}, "api_key": KEY})
    with serve_in_thread(config) as served:

        async def scenario() -> list[Outcome]:
            async with provider_of(wire, served.url) as provider:
                return [await provider.call(ask(stream=stream, **ask_for)) for _ in range(calls)]

        return asyncio.run(scenario()), served


@every_protocol
@streamed_or_not
def test_an_answer_of_the_simulated_provider_is_a_success_with_usage(wire: Wire, stream: bool) -> None:
    (outcome,), _ = outcomes(wire, QUICK, stream=stream)
    assert isinstance(outcome, Success)
    assert outcome.output == "hi"
    assert outcome.usage.input_tokens
    assert outcome.usage.output_tokens


@every_protocol
@streamed_or_not
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("error_500", ServerError),
        ("error_502", ServerError),
        ("error_503", Overloaded),
        ("error_529", Overloaded),
        ("error_in_stream", Overloaded),
        ("reset", NetworkFailure),
        ("reset_after_work", NetworkFailure),
        ("hang", TimedOut),
        ("malformed", InvalidResponse),
        ("cut_stream", InvalidResponse),
    ],
)
def test_every_fault_it_can_show_has_its_outcome(
    wire: Wire, stream: bool, fault: str, expected: type
) -> None:
    model = QUICK.model_copy(update={"faults": Faults.model_validate({fault: 1.0})})
    (outcome,), _ = outcomes(wire, model, stream=stream, timeout_s=0.2 if fault == "hang" else 5.0)
    late = fault == "error_in_stream" and stream and wire.streams
    assert type(outcome) is (wire.late_overload if late else expected)


@every_protocol
@streamed_or_not
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, PermanentFailure),
        (401, AccessDenied),
        (402, AccessDenied),
        ("insufficient_quota", AccessDenied),
    ],
)
def test_every_refusal_it_can_show_has_its_outcome(
    wire: Wire, stream: bool, status: int | str, expected: type
) -> None:
    if status == "insufficient_quota" and not wire.distinguishes_quota:
        expected, status = RateLimited, 429
    (outcome,), _ = outcomes(wire, QUICK.model_copy(update={"status_always": status}), stream=stream)
    assert type(outcome) is expected
    if status == "insufficient_quota":
        assert outcome.reason == "quota"  # type: ignore[union-attr]


@every_protocol
@pytest.mark.parametrize("form", ["default", "milliseconds", "seconds", "fraction", "date"])
def test_its_retry_after_is_read_in_every_form(wire: Wire, form: str) -> None:
    limited = {"requests_per_minute": 6, "headers": "retry_after", "retry_after_form": form}
    (first, second), _ = outcomes(wire, QUICK.model_copy(update=limited), stream=False, calls=2)
    assert isinstance(first, Success)
    assert isinstance(second, RateLimited)
    assert second.retry_after_ms is not None
    assert 8_000 < second.retry_after_ms <= 11_000
