"""Understands a request for a response, and refuses what OpenAI refuses."""

from __future__ import annotations

from typing import Any

from fairlane.testing.provider.dialect import (
    Call,
    OfferedTool,
    RequestError,
    read_flag,
    read_positive,
    read_text,
)
from fairlane.testing.provider.protocols.openai_chat import check_sampling

LEAST_OUTPUT = 16
"""``max_output_tokens`` below this are refused."""

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
    """The call that a request's JSON asks for. Raises `RequestError`."""
    if not isinstance(payload, dict):
        raise RequestError("the body must be a JSON object")
    for name in payload:
        if name not in _KNOWN:
            raise RequestError(f"Unknown parameter: '{name}'.")
    model = payload.get("model")
    if not isinstance(model, str) or not model:
        raise RequestError("model: a model name is required")
    check_sampling(payload)
    instructions = payload.get("instructions")
    told = [] if instructions is None else [("system", read_text(instructions, "instructions"))]
    spoken = [*told, *_spoken(payload.get("input"))]
    options = _object(payload, "stream_options")
    if unknown := set(options) - {"include_obfuscation"}:
        raise RequestError(f"Unknown parameter: 'stream_options.{min(unknown)}'.")
    return Call(
        model=model,
        prompt="\n".join(text for _, text in spoken),
        question=next((text for role, text in reversed(spoken) if role == "user"), ""),
        max_tokens=_max_tokens(payload),
        stream=read_flag(payload, "stream"),
        include_usage=True,
        schema=_schema(_object(_object(payload, "text"), "format")),
        tools=_chosen(_tools(payload.get("tools")), payload.get("tool_choice")),
    )


def _spoken(given: Any) -> list[tuple[str, str]]:
    if isinstance(given, str):
        return [("user", given)]
    if not isinstance(given, list) or not given:
        raise RequestError("input: a text or a list of items is required")
    return [_said(index, item) for index, item in enumerate(given)]


def _said(index: int, item: Any) -> tuple[str, str]:
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
            case {"type": "function", "name": str(name), **told} if name:
                schema = told.get("parameters")
                offered.append(OfferedTool(name, schema if isinstance(schema, dict) else {"type": "object"}))
            case {"type": str(kind)} if kind != "function":
                pass  # what the provider runs by itself
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
            named = tuple(tool for tool in tools if tool.name == name)
            if named:
                return named
    raise RequestError("tool_choice: none, auto, required or one of the functions in tools is required")
