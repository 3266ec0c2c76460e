"""Tools, schemas and cut answers go through worker and simulated provider, in each of OpenAI's protocols."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fairlane.model.outcome import AccessDenied, Outcome, PermanentFailure, RateLimited, Success
from tests.support.provider_calls import ask, provider_of, streamed_or_not
from tests.support.sdk_calls import FUNCTION, KEY, SCHEMA, TOOLS, Forecast, simulated
from tests.support.wires import Wire
from tests.support.wires.azure_openai import AzureOpenAIWire
from tests.support.wires.openai_chat import OpenAIChatWire
from tests.support.wires.openai_responses import OpenAIResponsesWire

of_openai = pytest.mark.parametrize(
    "wire",
    [OpenAIChatWire(), OpenAIResponsesWire(), AzureOpenAIWire()],
    ids=lambda wire: wire.protocol,
)
BY_NAME = {"type": "function", "function": {"name": "second"}}


def outcomes(
    wire: Wire,
    stream: bool,
    *,
    calls: int = 1,
    settings: dict[str, Any] | None = None,
    params: Any = None,
    **model: Any,
) -> list[Outcome]:
    async def scenario() -> list[Outcome]:
        with simulated(**model) as served:
            async with provider_of(wire, served.url, **(settings or {})) as provider:
                return [await provider.call(ask(stream, **(params or {}))) for _ in range(calls)]

    return asyncio.run(scenario())


@of_openai
@streamed_or_not
def test_a_tool_is_called(wire: Wire, stream: bool) -> None:
    (outcome,) = outcomes(wire, stream, output="tool", params={"tools": TOOLS})
    assert isinstance(outcome, Success)
    answer = json.loads(outcome.output)
    assert answer["text"] == ""
    (call,) = answer["tool_calls"]
    assert call["name"] == "forecast"
    Forecast.model_validate(call["arguments"])


@of_openai
@streamed_or_not
def test_the_tool_that_is_chosen_is_the_one_that_is_called(wire: Wire, stream: bool) -> None:
    tools = [*TOOLS, {"type": "function", "function": {**FUNCTION, "name": "second"}}]
    (outcome,) = outcomes(wire, stream, output="tool", params={"tools": tools, "tool_choice": BY_NAME})
    assert isinstance(outcome, Success)
    assert json.loads(outcome.output)["tool_calls"][0]["name"] == "second"


@of_openai
@streamed_or_not
def test_an_answer_follows_a_schema(wire: Wire, stream: bool) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "forecast", "strict": True, "schema": SCHEMA}}
    (outcome,) = outcomes(wire, stream, output="schema", params={"response_format": form})
    assert isinstance(outcome, Success)
    Forecast.model_validate_json(outcome.output)


@of_openai
@streamed_or_not
def test_an_answer_that_was_cut_says_so(wire: Wire, stream: bool) -> None:
    (outcome,) = outcomes(wire, stream, output="text", output_tokens=99, params={"max_tokens": 16})
    assert isinstance(outcome, Success)
    assert outcome.finish_reason in ("length", "max_output_tokens")
    assert outcome.usage.output_tokens == 16


@of_openai
def test_a_refused_parameter_is_named(wire: Wire) -> None:
    (outcome,) = outcomes(wire, False, params={"temperature": 3})
    assert isinstance(outcome, PermanentFailure)
    assert "temperature" in outcome.message


@of_openai
def test_a_rate_limit_reports_its_axis(wire: Wire) -> None:
    (_, limited) = outcomes(wire, False, calls=2, requests_per_minute=6, headers="full")
    assert isinstance(limited, RateLimited)
    assert limited.retry_after_ms is not None
    assert 8_000 < limited.retry_after_ms <= 11_000
    assert limited.hints is not None
    assert "requests" in limited.hints.axes


@streamed_or_not
@pytest.mark.parametrize(
    "settings",
    [{"auth": "bearer"}, {"api_version": "2025-01-01-preview"}, {"base_url": "{url}/openai/v1"}],
    ids=["token", "version", "v1"],
)
def test_azure_is_reached_in_each_of_its_ways(stream: bool, settings: dict[str, str]) -> None:
    async def scenario() -> Outcome:
        with simulated() as served:
            shown = {name: value.format(url=served.url) for name, value in settings.items()}
            async with provider_of(AzureOpenAIWire(), served.url, **shown) as provider:
                return await provider.call(ask(stream))

    outcome = asyncio.run(scenario())
    assert isinstance(outcome, Success)
    assert outcome.output == "hi"


def test_a_wrong_version_of_azure_is_not_found() -> None:
    (outcome,) = outcomes(AzureOpenAIWire(), False, settings={"api_version": "tomorrow"})
    assert outcome == PermanentFailure("Resource not found", 404, doubtful=True)


def test_a_key_in_the_wrong_place_parks_the_lane() -> None:
    (outcome,) = outcomes(OpenAIResponsesWire(), False, settings={"auth": "api-key"})
    assert isinstance(outcome, AccessDenied)
    assert (outcome.reason, outcome.status) == ("auth", 401)
    assert KEY not in outcome.message
