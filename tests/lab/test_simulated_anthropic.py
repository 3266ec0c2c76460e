"""The simulated Anthropic accepts the tools and schemas that the API documents, and rejects all others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlane.lab.simulator.protocols.anthropic_messages import AnthropicMessages
from fairlane.lab.simulator.wire.dialect import Call, Reply, RequestError, Stamp, ToolUse

CLOSED = {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False}
TOOLS = [{"name": name, "input_schema": CLOSED} for name in ("a", "b")]
HOSTED = {"type": "web_search_20250305", "name": "web_search"}


def parse(**fields: Any) -> Call:
    needed = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Why?"}]}
    return AnthropicMessages().parse({**needed, **fields})


def held(schema: Any, **more: Any) -> dict[str, Any]:
    return {"format": {"type": "json_schema", "schema": schema, **more}}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"seed": 1}, "seed: Extra inputs"),
        ({"stop": "x"}, "stop: Extra inputs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"temperature": 1.5}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"stop_sequences": [" "]}, "stop_sequences"),
        ({"messages": [{"role": "system", "content": "x"}]}, "role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "role"),
        ({"tools": [{"type": "function", "function": {"name": "a"}}]}, "tools.0.*function"),
        ({"tools": [HOSTED, {"name": "x"}]}, "tools.1"),
        ({"tools": {}}, "tools"),
        ({"tool_choice": "auto", "tools": TOOLS}, "tool_choice"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "c"}, "tools": TOOLS}, "tool_choice"),
        ({"output_config": held({"type": "object", "properties": {}})}, "additionalProperties"),
        ({"output_config": held(CLOSED, name="x")}, "format"),
        ({"output_config": {"schema": CLOSED}}, "output_config"),
        ({"output_config": {"effort": "minimal"}}, "effort"),
    ],
)
def test_an_invalid_request_is_rejected_with_its_field(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError, match=named):
        parse(**fields)


def test_the_output_config_has_the_schema() -> None:
    assert parse(output_config=held(CLOSED)).schema == CLOSED
    assert parse(output_config={"effort": "low"}).schema is None


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (None, ["a", "b"]),
        ({"type": "auto"}, ["a", "b"]),
        ({"type": "any"}, ["a", "b"]),
        ({"type": "tool", "name": "b"}, ["b"]),
        ({"type": "none"}, []),
    ],
)
def test_the_tool_choice_selects_the_tools_that_the_model_may_call(choice: Any, names: list[str]) -> None:
    assert [tool.name for tool in parse(tools=[*TOOLS, HOSTED], tool_choice=choice).tools] == names


def test_a_tool_call_is_streamed_in_pieces_of_json() -> None:
    reply = Reply("", 3, False, ToolUse("a", '{"city": "Oslo"}'))
    (stream,) = AnthropicMessages().frames(parse(tools=TOOLS), reply, [""], Stamp(1, 0))
    lines = [line[6:] for line in stream.decode().split("\n") if line.startswith("data: ")]
    sent = [json.loads(line) for line in lines]
    block = next(each["content_block"] for each in sent if each["type"] == "content_block_start")
    pieces = [each["delta"]["partial_json"] for each in sent if each["type"] == "content_block_delta"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "a", {})
    assert len(pieces) > 2
    assert json.loads("".join(pieces)) == {"city": "Oslo"}
