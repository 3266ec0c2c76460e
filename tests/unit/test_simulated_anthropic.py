"""The simulated Anthropic takes the tools and schemas that the API documents, and refuses the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlane.testing.provider.dialect import Call, Reply, RequestError, Stamp, ToolUse
from fairlane.testing.provider.protocols.anthropic_messages import AnthropicMessages

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
def test_what_is_no_request_is_refused_by_field(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError, match=named):
        parse(**fields)


def test_a_schema_is_asked_for_in_the_output_config() -> None:
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
def test_a_choice_says_which_tools_may_be_called(choice: Any, names: list[str]) -> None:
    assert [tool.name for tool in parse(tools=[*TOOLS, HOSTED], tool_choice=choice).tools] == names


def test_a_tool_is_called_in_pieces_of_json() -> None:
    reply = Reply("", 3, False, ToolUse("a", '{"city": "Oslo"}'))
    (stream,) = AnthropicMessages().frames(parse(tools=TOOLS), reply, [""], Stamp(1, 0))
    lines = [line[6:] for line in stream.decode().split("\n") if line.startswith("data: ")]
    told = [json.loads(line) for line in lines]
    block = next(each["content_block"] for each in told if each["type"] == "content_block_start")
    pieces = [each["delta"]["partial_json"] for each in told if each["type"] == "content_block_delta"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "a", {})
    assert len(pieces) > 2
    assert json.loads("".join(pieces)) == {"city": "Oslo"}
