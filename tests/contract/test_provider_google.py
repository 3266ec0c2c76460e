"""What Google tells of limits, keys and failures, from the simulated provider and in its own bodies."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from fairlane.config.connections.connection import Connection
from fairlane.core.clock import ManualClock
from fairlane.model.hints import AxisHint
from fairlane.model.outcome import (
    AccessDenied,
    InvalidResponse,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    Success,
    TimedOut,
)
from fairlane.testing import SimulatorConfig, serve_in_thread
from fairlane_workers.providers.registry import build_provider
from tests.support.provider_calls import KEY, ask, call, provider_of, streamed_or_not
from tests.support.scripted_server import http
from tests.support.wires import Wire
from tests.support.wires.gemini import GeminiWire, VertexWire

google = pytest.mark.parametrize("wire", [GeminiWire(), VertexWire()], ids=["gemini", "vertex"])
DETAIL = "type.googleapis.com/google.rpc."


def outcomes(wire: Wire, calls: int, key: str = KEY, **model: Any) -> list[Outcome]:
    settings = {"latency_ms": 1.0, "output": "echo", "headers": "full", **model}
    config = SimulatorConfig.model_validate({"models": {"m-1": settings}, "api_key": key})
    with serve_in_thread(config) as served:

        async def scenario() -> list[Outcome]:
            async with provider_of(wire, served.url) as provider:
                return [await provider.call(ask()) for _ in range(calls)]

        return asyncio.run(scenario())


def refused(wire: Wire, status: int, name: str, *details: dict[str, Any], message: str = "m") -> Outcome:
    error = {"code": status, "message": message, "status": name, "details": list(details)}
    return call(wire, ask(), [http(status, {"error": error})])[0]


def test_a_minutes_quota_is_an_axis_with_its_limit_and_its_wait() -> None:
    _, shown = outcomes(GeminiWire(), 2, requests_per_minute=6)
    assert isinstance(shown, RateLimited)
    assert shown.retry_after_ms is not None
    assert 8_000 < shown.retry_after_ms <= 10_000
    assert shown.hints is not None
    assert shown.hints.exhausted == "requests"
    assert shown.hints.axes == {"requests": AxisHint(6, 0)}


def test_tokens_are_distinguished_from_requests() -> None:
    _, shown = outcomes(GeminiWire(), 2, input_tokens_per_minute=1, burst_seconds=60.0)
    assert isinstance(shown, RateLimited)
    assert shown.hints is not None
    assert shown.hints.exhausted == "input"


def test_a_days_quota_waits_for_the_day_and_not_the_seconds_that_it_says() -> None:
    _, shown = outcomes(GeminiWire(), 2, requests_per_day=1)
    assert isinstance(shown, RateLimited)
    assert shown.hints is not None
    assert shown.hints.exhausted == "day"
    assert (shown.retry_after_ms or 0) > 60_000


def test_vertex_reports_that_its_capacity_is_used_up() -> None:
    _, shown = outcomes(VertexWire(), 2, requests_per_minute=6)
    assert isinstance(shown, RateLimited)
    assert shown.retry_after_ms is not None
    assert 8_000 < shown.retry_after_ms <= 10_000
    assert shown.hints is None


@google
def test_a_wrong_key_parks(wire: Wire) -> None:
    (shown,) = outcomes(wire, 1, "another")
    assert isinstance(shown, AccessDenied)
    assert shown.reason == "auth"
    assert shown.status == (400 if wire.protocol == "gemini" else 401)


def test_a_wrong_argument_does_not_park() -> None:
    assert isinstance(refused(GeminiWire(), 400, "INVALID_ARGUMENT"), PermanentFailure)


@google
@pytest.mark.parametrize(
    ("status", "name", "expected"),
    [
        (503, "RESOURCE_EXHAUSTED", RateLimited),
        (503, "UNAVAILABLE", Overloaded),
        (429, "RESOURCE_EXHAUSTED", RateLimited),
        (504, "DEADLINE_EXCEEDED", TimedOut),
        (499, "CANCELLED", TimedOut),
        (404, "NOT_FOUND", PermanentFailure),
        (403, "PERMISSION_DENIED", AccessDenied),
    ],
)
def test_an_error_has_its_outcome(wire: Wire, status: int, name: str, expected: type) -> None:
    assert type(refused(wire, status, name)) is expected


@google
@pytest.mark.parametrize("reason", ["BILLING_DISABLED"])
def test_where_nothing_is_paid_the_quota_is_at_fault(wire: Wire, reason: str) -> None:
    info = {"@type": f"{DETAIL}ErrorInfo", "reason": reason, "domain": "googleapis.com"}
    shown = refused(wire, 403, "PERMISSION_DENIED", info)
    assert isinstance(shown, AccessDenied)
    assert shown.reason == "quota"
    assert refused(wire, 402, "RESOURCE_EXHAUSTED").reason == "quota"  # type: ignore[union-attr]


@google
@streamed_or_not
def test_a_blocked_prompt_is_final(wire: Wire, stream: bool) -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 7}}
    outcome, _ = call(wire, ask(stream=stream), [http(200, blocked)])
    assert isinstance(outcome, PermanentFailure)
    assert "SAFETY" in outcome.message


@google
def test_a_malformed_function_call_is_asked_for_again(wire: Wire) -> None:
    outcome, _ = call(wire, ask(), [http(200, wire.whole("x", "MALFORMED_FUNCTION_CALL"))])
    assert isinstance(outcome, InvalidResponse)
    assert "MALFORMED_FUNCTION_CALL" in outcome.message


@google
@streamed_or_not
def test_a_model_may_have_any_name(wire: Wire, stream: bool) -> None:
    config = SimulatorConfig.model_validate({"models": {"a/b c": {"latency_ms": 1.0, "output": "echo"}}})
    with serve_in_thread(config) as served:

        async def scenario() -> Outcome:
            async with provider_of(wire, served.url) as provider:
                return await provider.call(replace(ask(stream=stream), model="a/b c"))

        assert isinstance(asyncio.run(scenario()), Success)


def test_a_plain_token_goes_as_a_bearers() -> None:
    connection = Connection.model_validate(
        {"provider": "vertex", "region": "global", "project": "p-1", "auth": "bearer"}
    )
    assert connection.base_url == "https://aiplatform.googleapis.com/v1/projects/p-1/locations/global"
    provider = build_provider("c", connection, SecretStr(KEY), clock=ManualClock())
    assert KEY not in repr(provider)
    asyncio.run(provider.aclose())
