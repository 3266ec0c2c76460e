"""Tools and structured output, asked for in OpenAI's words, of protocols that have words of their own."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from fairlane.model.outcome import Outcome, PermanentFailure, Success
from fairlane.testing import SimulatorConfig, serve_in_thread
from tests.support.conversations import TURNS, WEATHER
from tests.support.provider_calls import KEY, ask, provider_of, streamed_or_not
from tests.support.sdk_calls import SCHEMA, TOOLS, Forecast
from tests.support.wires import WIRES, Wire

HELD = {"type": "json_schema", "json_schema": {"name": "forecast", "strict": True, "schema": SCHEMA}}
translated = pytest.mark.parametrize(
    "wire",
    [wire for wire in WIRES if wire.protocol in ("anthropic", "gemini", "vertex")],
    ids=lambda wire: wire.protocol,
)


def outcome(
    wire: Wire, output: str, *, stream: bool, messages: list[dict[str, Any]] | None = None, **params: Any
) -> Outcome:
    model = {"latency_ms": 1.0, "output": output}
    config = SimulatorConfig.model_validate({"models": {"m-1": model}, "api_key": KEY})
    with serve_in_thread(config) as served:

        async def scenario() -> Outcome:
            async with provider_of(wire, served.url) as provider:
                asked = ask(stream=stream, **params)
                return await provider.call(replace(asked, messages=messages or asked.messages))

        return asyncio.run(scenario())


@translated
@streamed_or_not
@pytest.mark.parametrize(
    "choice", [None, "required", {"type": "function", "function": {"name": "forecast"}}], ids=str
)
def test_a_tool_is_called(wire: Wire, stream: bool, choice: Any) -> None:
    shown = outcome(wire, "tool", stream=stream, tools=TOOLS, tool_choice=choice)
    assert isinstance(shown, Success)
    (call,) = json.loads(shown.output)["tool_calls"]
    assert call["name"] == "forecast"
    assert Forecast.model_validate(call["arguments"])


@translated
def test_a_tool_that_may_not_be_called_is_not(wire: Wire) -> None:
    shown = outcome(wire, "tool", stream=False, tools=TOOLS, tool_choice="none")
    assert isinstance(shown, Success)
    assert "tool_calls" not in shown.output


@translated
@streamed_or_not
def test_an_answer_is_held_to_its_schema(wire: Wire, stream: bool) -> None:
    shown = outcome(wire, "schema", stream=stream, response_format=HELD)
    assert isinstance(shown, Success)
    assert Forecast.model_validate_json(shown.output)


@translated
def test_the_common_parameters_are_ones_that_the_provider_knows(wire: Wire) -> None:
    common: dict[str, Any] = {"temperature": 0.5, "top_p": 0.5, "top_k": 3, "stop": ["END"]}
    common |= {"max_completion_tokens": 50, "reasoning_effort": "low", "user": "u-1", "n": 1}
    assert isinstance(outcome(wire, "echo", stream=False, **common), Success)


@translated
def test_what_cannot_be_said_is_reported_before_anything_is_sent(wire: Wire) -> None:
    shown = outcome(wire, "echo", stream=False, n=2)
    assert isinstance(shown, PermanentFailure)
    assert shown.status is None
    assert "params.n" in shown.message


CHATS = [wire for wire in WIRES if wire.protocol not in ("http", "replicate")]


@pytest.mark.parametrize("wire", CHATS, ids=lambda wire: wire.protocol)
def test_a_chat_with_an_image_and_results_of_tools_is_answered(wire: Wire) -> None:
    shown = outcome(wire, "echo", stream=False, messages=TURNS, tools=[WEATHER])
    assert isinstance(shown, Success), shown
    assert "So?" in shown.output
