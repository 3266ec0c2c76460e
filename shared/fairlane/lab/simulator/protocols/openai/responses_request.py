"""Reads a request for a response, and rejects each one that OpenAI rejects."""

from __future__ import annotations

from typing import Any

from fairlane.lab.simulator.protocols.openai.chat import check_sampling
from fairlane.lab.simulator.wire.dialect import Call, OfferedTool, RequestError
from fairlane.lab.simulator.wire.reading import (
    last_question,
    named,
    read_flag,
    read_model,
    read_positive,
    read_text,
)

LEAST_OUTPUT = 16
"""OpenAI rejects ``max_output_tokens`` below this."""

_KNOWN = frozenset(
    {
        *("model", "input", "instructions", "stream", "stream_options", "max_output_tokens", "temperature"),
        *("top_p", "text", "tools", "tool_choice", "reasoning", "metadata", "store", "user", "include"),
        *("parallel_tool_calls", "previous_response_id", "service_tier", "truncation", "top_logprobs"),
        *("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "background", "max_tool_calls"),
    }
)
_ROLES = ("system", "developer", "user", "assistant")


def read_call(payload: Any) -> Call:
    """The call in a request's JSON. Raises `RequestError`."""
    if not isinstance(payload, dict):
        raise RequestError("the body must be a JSON object")
    for name in payload:
        if name not in _KNOWN:
            raise RequestError(f"Unknown parameter: '{name}'.")
    model = read_model(payload)
    check_sampling(payload)
    instructions = payload.get("instructions")
    system = [] if instructions is None else [("system", read_text(instructions, "instructions"))]
    conversation = [*system, *_conversation(payload.get("input"))]
    options = _object(payload, "stream_options")
    if unknown := set(options) - {"include_obfuscation"}:
        raise RequestError(f"Unknown parameter: 'stream_options.{min(unknown)}'.")
    return Call(
        model=model,
        prompt="\n".join(text for _, text in conversation),
        question=last_question(conversation),
        max_tokens=_max_tokens(payload),
        stream=read_flag(payload, "stream"),
        include_usage=True,
        schema=_schema(_object(_object(payload, "text"), "format")),
        tools=_chosen(_tools(payload.get("tools")), payload.get("tool_choice")),
    )


def _conversation(given: Any) -> list[tuple[str, str]]:
    if isinstance(given, str):
        return [("user", given)]
    if not isinstance(given, list) or not given:
        raise RequestError("input: a text or a list of items is required")
    return [_message(index, item) for index, item in enumerate(given)]


def _message(index: int, item: Any) -> tuple[str, str]:
    match item:
        case {"type": "function_call_output", "call_id": str(), "output": output}:
            return "tool", read_text(output, f"input[{index}].output")
        case {"type": "function_call", "call_id": str(), "name": str(), "arguments": str(arguments)}:
            return "assistant", arguments
        case {"role": role, "content": content} if role in _ROLES and item.get("type") in (None, "message"):
            return role, read_text(content, f"input[{index}].content")
    raise RequestError(f"input[{index}]: a message with role and content, or another item, is required")


def _object(payload: dict[str, Any], field: str) -> dict[str, Any]:
    value = payload.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError(f"{field}: an object is required")
    return value


def _max_tokens(payload: dict[str, Any]) -> int | None:
    most = read_positive(payload, "max_output_tokens")
    if most is not None and most < LEAST_OUTPUT:
        raise RequestError(
            f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {LEAST_OUTPUT}, "
            f"but got {most} instead."
        )
    return most


def _schema(form: dict[str, Any]) -> dict[str, Any] | None:
    match form.get("type"):
        case "json_schema" if isinstance(form.get("name"), str) and isinstance(form.get("schema"), dict):
            schema: dict[str, Any] = form["schema"]
            return schema
        case "json_schema":
            raise RequestError("Missing required parameter: 'text.format.name' or 'text.format.schema'.")
        case None | "text" | "json_object":
            return None
    raise RequestError("text.format.type: text, json_object or json_schema is required")


def _tools(tools: Any) -> tuple[OfferedTool, ...]:
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise RequestError("tools: an array is required")
    offered = list[OfferedTool]()
    for index, tool in enumerate(tools):
        match tool:
            case {"type": "function", "name": str(name), **function} if name:
                schema = function.get("parameters")
                offered.append(OfferedTool(name, schema if isinstance(schema, dict) else {"type": "object"}))
            case {"type": str(kind)} if kind != "function":
                pass  # a tool that the provider runs itself
            case _:
                raise RequestError(f"Missing required parameter: 'tools[{index}].name'.")
    return tuple(offered)


def _chosen(tools: tuple[OfferedTool, ...], choice: Any) -> tuple[OfferedTool, ...]:
    match choice:
        case None | "auto" | "required":
            return tools
        case "none":
            return ()
        case {"type": "function", "name": str(name)}:
            if wanted := named(tools, name):
                return wanted
    raise RequestError("tool_choice: none, auto, required or one of the functions in tools is required")
