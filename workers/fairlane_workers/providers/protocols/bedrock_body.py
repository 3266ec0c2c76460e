"""Builds the body of a Converse request: messages as blocks, parameters in their sections."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import UnmappableError
from fairlane_workers.providers.parameters import Parameters, Tool

_SYSTEM_ROLES = ("system", "developer")
_FIXED = frozenset({"model", "modelId", "messages", "stream"})
_OWN = frozenset(
    {
        *("additionalModelRequestFields", "additionalModelResponseFieldPaths", "guardrailConfig"),
        *("inferenceConfig", "outputConfig", "performanceConfig", "promptVariables", "requestMetadata"),
        *("serviceTier", "system", "toolConfig"),
    }
)
_EMPTY: tuple[object, ...] = (None, {}, [])


def converse_body(request: Request) -> dict[str, Any]:
    """The body of a Converse request.

    ``top_k``, ``seed``, the penalties and whatever name is not Converse's own are the model's:
    ``additionalModelRequestFields``. Converse's own objects go before what is translated, field by field; a
    field that is ``None`` is left out. Raises `UnmappableError` for ``json_object``, which there is not.
    """
    asked = Parameters.of(request.params)
    if asked.json:
        raise UnmappableError("params.response_format: Converse has no json_object; give a json_schema")
    own = {name: value for name, value in asked.rest.items() if name in _OWN}
    merged = {
        "system": _system(own.get("system"), request.messages),
        "inferenceConfig": _merged(_inference(asked), own.get("inferenceConfig")),
        "toolConfig": _merged(_tools(asked), own.get("toolConfig")),
        "outputConfig": _merged(_output(asked), own.get("outputConfig")),
        "additionalModelRequestFields": _merged(_further(asked), own.get("additionalModelRequestFields")),
    }
    given = {name: value for name, value in {**own, **merged}.items() if value not in _EMPTY}
    return {"messages": _turns(request.messages), **given}


def _turns(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """User and assistant in turns, as Converse requires: consecutive messages of one role become one."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = message["role"]
        if role in _SYSTEM_ROLES:
            continue
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "content": []})
        turns[-1]["content"].append({"text": message["content"]})
    return turns


def _system(given: object, messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The system text of the parameters, followed by that of the messages."""
    first = given if isinstance(given, list) else [{"text": given}] if given else []
    lifted = [message["content"] for message in messages if message["role"] in _SYSTEM_ROLES]
    return [*first, *({"text": text} for text in lifted if text)]


def _inference(asked: Parameters) -> dict[str, Any]:
    return {
        "maxTokens": asked.max_tokens,
        "temperature": asked.temperature,
        "topP": asked.top_p,
        "stopSequences": list(asked.stop) or None,
    }


def _tools(asked: Parameters) -> dict[str, Any]:
    """The tools; Converse has no way to forbid calls, so ``"none"`` offers no tool."""
    if not asked.tools or asked.tool_choice == "none":
        return {}
    choice: dict[str, Any] | None = None
    match asked.tool_choice:
        case "auto":
            choice = {"auto": {}}
        case "required":
            choice = {"any": {}}
        case Tool(name=name):
            choice = {"tool": {"name": name}}
    return {"tools": [{"toolSpec": _tool_spec(tool)} for tool in asked.tools], "toolChoice": choice}


def _tool_spec(tool: Tool) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "inputSchema": {"json": tool.schema}}


def _output(asked: Parameters) -> dict[str, Any]:
    if asked.schema is None:
        return {}
    schema = {"name": asked.schema.name, "schema": json.dumps(asked.schema.schema)}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}


def _further(asked: Parameters) -> dict[str, Any]:
    return {
        "top_k": asked.top_k,
        "seed": asked.seed,
        "presence_penalty": asked.presence_penalty,
        "frequency_penalty": asked.frequency_penalty,
        **{name: value for name, value in asked.rest.items() if name not in _OWN | _FIXED},
    }


def _merged(translated: Mapping[str, Any], given: object) -> object:
    """Both, merged field by field; given values take precedence. A value that is no object replaces the
    other.
    """
    if given is not None and not isinstance(given, Mapping):
        return given
    both = {**translated, **(given or {})}
    return {name: value for name, value in both.items() if value is not None}
