"""Every provider that is known by name, called by its preset: the simulated provider answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from fairlane.config.connections.presets import PRESETS, PROVIDERS
from fairlane.model.outcome import AccessDenied, Outcome, Overloaded, PermanentFailure, RateLimited, Success
from fairlane.testing import ServedProvider, SimulatedModel, SimulatorConfig, serve_in_thread
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.registry import build_provider, load_protocol
from tests.support.provider_presets import connection
from tests.support.scripted_server import http, scripted_server
from tests.support.wires import WIRES, OpenAIChatWire

KEY = "AKIDEXAMPLE:0123456789abcdef"  # AWS's are pairs; of the others one is a text


@pytest.fixture(scope="module")
def served() -> Iterator[ServedProvider]:
    model = SimulatedModel(latency_ms=1.0, output="echo")
    with serve_in_thread(SimulatorConfig(models={"m-1": model}, api_key=SecretStr(KEY))) as provider:
        yield provider


def test_every_providers_protocol_is_spoken() -> None:
    for name in PROVIDERS:
        assert load_protocol("protocol", PRESETS[name].protocol)


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_call_to_a_simulation_of_it_is_answered(
    name: str, served: ServedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, part in zip(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"), KEY.split(":"), strict=True):
        monkeypatch.setenv(f"AWS_{variable}", part)
    wire = next((wire for wire in WIRES if wire.protocol == PRESETS[name].protocol), None)
    assert wire is not None, f"nothing simulates {PRESETS[name].protocol}"
    there: dict[str, Any] = {"base_url": wire.settings(served.url)["base_url"]}
    if name == "vertex":
        there["auth"] = "bearer"  # Google's own credentials have a test of their own
    made = connection(name, **there)

    async def scenario() -> None:
        provider = build_provider(name, made, SecretStr(KEY) if made.scheme != "sigv4" else None)
        try:
            for stream in (False, True):
                messages = [{"role": "user", "content": "hi"}]
                request = Request("m-1", messages, {"max_tokens": 20}, stream, 10.0, 1 << 20)
                outcome = await provider.call(request)
                assert isinstance(outcome, Success), outcome
                assert outcome.output == "hi"
                # Mistral's streams tell it unasked, which OpenAI's, simulated here, do not.
                assert outcome.usage.output_tokens or (stream and name == "mistral")
        finally:
            await provider.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "status", "error", "expected"),
    [
        ("groq", 498, {"code": "capacity_exceeded"}, Overloaded),
        ("openrouter", 403, {"code": 403}, PermanentFailure),
        ("qwen", 429, {"type": "insufficient_quota", "code": "insufficient_quota"}, RateLimited),
        ("qwen", 400, {"code": "Arrearage"}, AccessDenied),
        ("openai", 429, {"type": "insufficient_quota", "code": "insufficient_quota"}, AccessDenied),
        ("openai", 403, {"code": "unsupported_country"}, AccessDenied),
    ],
)
def test_an_error_means_what_the_provider_means_by_it(
    name: str, status: int, error: dict[str, Any], expected: type
) -> None:
    body = json.dumps({"error": {"message": "said", **error}}).encode()

    async def scenario() -> Outcome:
        async with scripted_server([[http(status, body)]]) as server:
            provider = build_provider("c", connection(name, base_url=server.url), SecretStr(KEY))
            messages = [{"role": "user", "content": "x"}]
            outcome = await provider.call(Request("m", messages, {}, False, 5.0, 1024))
            await provider.aclose()
            return outcome

    outcome = asyncio.run(scenario())
    assert type(outcome) is expected
    assert outcome.message == "said"  # type: ignore[union-attr]


def test_headers_of_a_connection_go_with_every_call() -> None:
    async def scenario() -> None:
        async with scripted_server([[http(200, OpenAIChatWire().whole("x"))]]) as server:
            made = connection("openai", base_url=server.url, headers={"OpenAI-Project": "p-1"})
            provider = build_provider("c", made, SecretStr(KEY))
            await provider.call(Request("m", [{"role": "user", "content": "x"}], {}, False, 5.0, 1024))
            await provider.aclose()
            assert server.received[0].headers["openai-project"] == "p-1"

    asyncio.run(scenario())
