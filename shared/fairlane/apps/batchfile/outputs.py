"""Reads a record's output as what the model gave: text, and calls of the tools that its request declares."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class ToolCall(NamedTuple):
    """A call that the model asks for. ``arguments`` is the text that the model wrote, JSON for a function."""

    name: str
    arguments: str
    custom: bool = False


class Output(NamedTuple):
    """What the model gave; ``text`` is ``None`` where it only called tools."""

    text: str | None
    calls: tuple[ToolCall, ...] = ()


def read_output(output: str | None, tools: object) -> Output:
    """The parts of a record's output. ``tools`` are those of its request, in the form of either API.

    Calls are stored as ``{"text", "tool_calls"}``; without tools that is an answer which looks alike.
    """
    declared = _declared(tools)
    if not declared or output is None or not output.startswith("{"):
        return Output(output)
    try:
        document = json.loads(output)
    except (ValueError, RecursionError):
        return Output(output)
    match document:
        case {"text": str(text), "tool_calls": list(calls), **rest} if calls and not rest:
            read = [_call(each, declared) for each in calls]
            if all(read):
                return Output(text or None, tuple(call for call in read if call))
    return Output(output)


def _declared(tools: object) -> dict[str, bool]:
    """The names of the tools, and whether each takes any text rather than JSON."""
    names: dict[str, bool] = {}
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            kind = "custom" if tool.get("type") == "custom" else "function"
            spec = tool.get(kind, tool)
            if isinstance(spec, Mapping) and isinstance(name := spec.get("name"), str):
                names[name] = kind == "custom"
    return names


def _call(value: Any, declared: Mapping[str, bool]) -> ToolCall | None:
    match value:
        case {"name": str(name), "arguments": arguments, **rest} if not rest:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            return ToolCall(name, text, declared.get(name, False))
    return None
