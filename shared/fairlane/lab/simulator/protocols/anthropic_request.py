"""Reads a request for Anthropic's messages, and rejects each one that Anthropic rejects."""

from __future__ import annotations

import re
from typing import Any

from fairlane.lab.simulator.wire.dialect import Call, OfferedTool, RequestError
from fairlane.lab.simulator.wire.reading import (
    is_number,
    named,
    read_flag,
    read_messages,
    read_positive,
    read_text,
)

_FIELDS = frozenset(
    {
        *("model", "messages", "max_tokens", "system", "stream", "temperature", "top_p", "top_k"),
        *("stop_sequences", "tools", "tool_choice", "output_config", "thinking", "metadata"),
        *("service_tier", "cache_control", "container", "context_management", "inference_geo"),
        *("mcp_servers", "speed", "diagnostics"),
    }
)
_ROLES = ("user", "assistant", "system")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_DATED = re.compile(r"_[0-9]{8}$")
_CHOICES = ("auto", "any", "tool", "none")


def read_call(payload: Any) -> Call:
    """The call in a request's JSON. Raises `RequestError`."""
    model, question, conversation = read_messages(payload)
    for name in payload:
        if name not in _FIELDS:
            raise RequestError(f"{name}: Extra inputs are not permitted")
    max_tokens = read_positive(payload, "max_tokens")
    if max_tokens is None:
        raise RequestError("max_tokens: Field required")
    for number, (role, _) in enumerate(conversation):
        if role not in _ROLES or (role == "system" and number == 0):
            raise RequestError(f'messages.{number}.role: Unexpected role "{role}"')
    _check(payload)
    system = payload.get("system")
    texts = [] if system is None else [read_text(system, "system")]
    return Call(
        model=model,
        prompt="\n".join([*texts, *(text for _, text in conversation)]),
        question=question,
        max_tokens=max_tokens,
        stream=read_flag(payload, "stream"),
        include_usage=True,
        schema=_schema(payload),
        tools=_chosen(_tools(payload), payload.get("tool_choice")),
    )


def _check(payload: dict[str, Any]) -> None:
    for name in ("temperature", "top_p"):
        if not is_number(payload.get(name, 0), 0, 1):
            raise RequestError(f"{name}: a number from 0 to 1 is required")
    stops = payload.get("stop_sequences", [])
    if not isinstance(stops, list) or not all(isinstance(word, str) and word.strip() for word in stops):
        raise RequestError("stop_sequences: each stop sequence must contain non-whitespace")


def _schema(payload: dict[str, Any]) -> dict[str, Any] | None:
    config = payload.get("output_config", {})
    if not isinstance(config, dict) or not set(config) <= {"effort", "format", "task_budget"}:
        raise RequestError("output_config: Extra inputs are not permitted")
    if config.get("effort") not in (None, *_EFFORTS):
        raise RequestError("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    match config.get("format"):
        case None:
            return None
        case {"type": "json_schema", "schema": dict(schema), **rest} if not rest:
            _check_closed(schema)
            return schema
    raise RequestError('output_config.format: {"type": "json_schema", "schema": …} is required')


def _check_closed(schema: Any) -> None:
    """Check that all objects of a schema are closed. Raises `RequestError`."""
    if isinstance(schema, list):
        for each in schema:
            _check_closed(each)
    elif isinstance(schema, dict):
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            raise RequestError(
                "output_config.format.schema: For 'object' type, 'additionalProperties' must be "
                "explicitly set to false"
            )
        for each in schema.values():
            _check_closed(each)


def _tools(payload: dict[str, Any]) -> tuple[OfferedTool, ...]:
    """The client's tools. Tools with a dated type are run by Anthropic, so the model calls none of them."""
    tools = payload.get("tools", [])
    if not isinstance(tools, list):
        raise RequestError("tools: Input should be a valid list")
    return tuple(
        _tool(number, tool)
        for number, tool in enumerate(tools)
        if not (isinstance(tool, dict) and _DATED.search(str(tool.get("type"))))
    )


def _tool(number: int, tool: Any) -> OfferedTool:
    match tool:
        case {"type": kind} if kind != "custom":
            raise RequestError(f"tools.{number}: Input tag {kind!r} does not match any of the expected tags")
        case {"name": str(name), "input_schema": dict(schema)} if name and schema.get("type") == "object":
            return OfferedTool(name, schema)
    raise RequestError(f"tools.{number}: a name and an input_schema of type object are required")


def _chosen(tools: tuple[OfferedTool, ...], choice: Any) -> tuple[OfferedTool, ...]:
    """The tools that ``tool_choice`` lets the model call."""
    match choice:
        case None | {"type": "auto"}:
            return tools
        case {"type": "none"}:
            return ()
        case {"type": "any"} if tools:
            return tools
        case {"type": "tool", "name": str(name)} if wanted := named(tools, name):
            return wanted
    raise RequestError(f"tool_choice: one of {', '.join(_CHOICES)} is required, and tools to choose from")
