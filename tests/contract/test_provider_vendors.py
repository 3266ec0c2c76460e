"""Each provider's way to count, to limit and to tell of it: simulated, called, and understood."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import SecretStr

from fairlane.config.connections.connection import Connection
from fairlane.config.connections.presets import PROVIDERS
from fairlane.lab.simulator.vendors import VENDORS
from fairlane.model.outcome import Outcome, Overloaded, RateLimited, Success
from fairlane.testing import ManualClock, ServedProvider, SimulatorConfig, serve_in_thread
from fairlane_workers.providers.registry import build_provider
from tests.support.provider_calls import ask

KEY = "sk-live-0123456789abcdef"
LIMITS = {"requests_per_minute": 6000, "tokens_per_minute": 600_000}
REPORTED = {
    "openai": {"requests": 6000, "tokens": 600_000},
    "azure_openai": {"requests": 6000, "tokens": 600_000},
    "anthropic": {"requests": 6000, "tokens": 600_000},
    "groq": {"tokens": 600_000},
    "mistral": {"requests": 6000, "tokens": 600_000},
    "together": {"requests": 1500, "tokens": 150_000},  # a quarter is in force
    "fireworks": {"requests": 6000},
    "cerebras": {"requests": 6000, "tokens": 600_000},
    "xai": {"requests": 6000, "tokens": 600_000},
}
SILENT = ("deepseek", "qwen", "vllm", "baseten")


def connection(vendor: str, url: str) -> Connection:
    base_url = url if vendor == "azure_openai" else f"{url}/v1"
    return Connection.model_validate({"provider": vendor, "base_url": base_url})


def called(
    vendor: str, calls: int = 1, *, stream: bool = False, max_tokens: int = 5, **model: Any
) -> tuple[list[Outcome], ServedProvider]:
    settings = {"provider": vendor, "latency_ms": 1.0, "output": "echo", **model}
    config = SimulatorConfig.model_validate({"models": {"m-1": settings}})
    with serve_in_thread(config) as served:

        async def scenario() -> list[Outcome]:
            made = connection(vendor, served.url)
            provider = build_provider(vendor, made, SecretStr(KEY), clock=ManualClock())
            try:
                return [await provider.call(ask(stream=stream, max_tokens=max_tokens)) for _ in range(calls)]
            finally:
                await provider.aclose()

        return asyncio.run(scenario()), served


@pytest.mark.parametrize("vendor", REPORTED)
def test_what_a_provider_reports_of_its_limits_is_what_they_are(vendor: str) -> None:
    (outcome,), _ = called(vendor, **LIMITS)
    assert isinstance(outcome, Success)
    assert outcome.hints is not None
    shown = {axis: hint.limit for axis, hint in outcome.hints.axes.items() if axis != "day"}
    assert shown == REPORTED[vendor]


@pytest.mark.parametrize("vendor", ["groq", "cerebras"])
def test_requests_of_a_day_are_distinguished(vendor: str) -> None:
    (outcome,), _ = called(vendor, requests_per_day=14_400, **LIMITS)
    assert outcome.hints is not None  # type: ignore[union-attr]
    day = outcome.hints.axes["day"]  # type: ignore[union-attr]
    assert (day.limit, day.remaining) == (14_400, 14_399)


@pytest.mark.parametrize("vendor", SILENT)
def test_who_says_nothing_is_not_made_to(vendor: str) -> None:
    outcomes, _ = called(vendor, 2, requests_per_minute=1)
    assert [type(each) for each in outcomes] == [Success, RateLimited]
    assert not any(each.hints and each.hints.axes for each in outcomes)  # type: ignore[union-attr]


@pytest.mark.parametrize("vendor", ["azure_openai", "cerebras"])
def test_what_is_reserved_is_charged_at_the_start(vendor: str) -> None:
    limits = {"tokens_per_minute": 1000, "burst_seconds": 60.0}
    outcomes, _ = called(vendor, 3, max_tokens=400, **limits)
    assert [type(each) for each in outcomes] == [Success, Success, RateLimited]
    refused = outcomes[-1]
    assert refused.hints is not None  # type: ignore[union-attr]
    assert refused.hints.exhausted == "tokens"  # type: ignore[union-attr]


def test_azures_zeros_beside_used_up_tokens_do_not_mean_at_once() -> None:
    outcomes, _ = called("azure_openai", 2, max_tokens=900, tokens_per_minute=1000)
    refused = outcomes[-1]
    assert isinstance(refused, RateLimited)
    assert refused.retry_after_ms == 1000, "what it names; the lane doubles it while it proves too short"


def test_togethers_rate_grows_with_steady_use() -> None:
    outcomes, _ = called("together", 60, requests_per_minute=600, burst_seconds=60.0)
    limits = [
        each.hints.axes["requests"].limit for each in outcomes if isinstance(each, Success) and each.hints
    ]
    assert limits == sorted(limits, key=lambda limit: limit or 0)
    assert (limits[-1] or 0) > (limits[0] or 0)


@pytest.mark.parametrize("vendor", ["together", "vllm"])
def test_a_server_without_room_is_overloaded_and_no_rate(vendor: str) -> None:
    outcomes, _ = called(vendor, status_always=503)
    assert isinstance(outcomes[0], Overloaded)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("vendor", ["deepseek", "openrouter"])
def test_lines_that_keep_a_connection_alive_do_no_harm(vendor: str, stream: bool) -> None:
    outcomes, _ = called(vendor, 2, stream=stream, latency_ms=50.0)
    assert [(type(each), getattr(each, "output", None)) for each in outcomes] == [(Success, "hi")] * 2


def test_every_provider_has_a_way() -> None:
    assert set(VENDORS) == set(PROVIDERS)
