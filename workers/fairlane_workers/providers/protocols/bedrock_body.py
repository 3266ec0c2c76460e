"""What is sent to Converse: messages as blocks, and parameters in its places."""

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
    told = Parameters.of(request.params)
    if told.json:
        raise UnmappableError("params.response_format: Converse has no json_object; give a json_schema")
    own = {name: value for name, value in told.rest.items() if name in _OWN}
    merged = {
        "system": _system(own.get("system"), request.messages),
        "inferenceConfig": _merged(_inference(told), own.get("inferenceConfig")),
        "toolConfig": _merged(_tools(told), own.get("toolConfig")),
        "outputConfig": _merged(_output(told), own.get("outputConfig")),
        "additionalModelRequestFields": _merged(_further(told), own.get("additionalModelRequestFields")),
    }
    given = {name: value for name, value in {**own, **merged}.items() if value not in _EMPTY}
    return {"messages": _turns(request.messages), **given}


def _turns(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """User and assistant in turns, as Converse demands: what one says in a row is one message."""
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
    """What the parameters already say to the model, followed by what the messages say."""
    first = given if isinstance(given, list) else [{"text": given}] if given else []
    lifted = [message["content"] for message in messages if message["role"] in _SYSTEM_ROLES]
    return [*first, *({"text": text} for text in lifted if text)]


def _inference(told: Parameters) -> dict[str, Any]:
    return {
        "maxTokens": told.max_tokens,
        "temperature": told.temperature,
        "topP": told.top_p,
        "stopSequences": list(told.stop) or None,
    }


def _tools(told: Parameters) -> dict[str, Any]:
    """The tools; Converse cannot say that none may be called, so ``"none"`` offers none."""
    if not told.tools or told.tool_choice == "none":
        return {}
    choice: dict[str, Any] | None = None
    match told.tool_choice:
        case "auto":
            choice = {"auto": {}}
        case "required":
            choice = {"any": {}}
        case Tool(name=name):
            choice = {"tool": {"name": name}}
    return {"tools": [{"toolSpec": _tool_spec(tool)} for tool in told.tools], "toolChoice": choice}


def _tool_spec(tool: Tool) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "inputSchema": {"json": tool.schema}}


def _output(told: Parameters) -> dict[str, Any]:
    if told.schema is None:
        return {}
    schema = {"name": told.schema.name, "schema": json.dumps(told.schema.schema)}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}


def _further(told: Parameters) -> dict[str, Any]:
    return {
        "top_k": told.top_k,
        "seed": told.seed,
        "presence_penalty": told.presence_penalty,
        "frequency_penalty": told.frequency_penalty,
        **{name: value for name, value in told.rest.items() if name not in _OWN | _FIXED},
    }


def _merged(translated: Mapping[str, Any], given: object) -> object:
    """Both, field by field; what is given wins. What is no object goes as it is."""
    if given is not None and not isinstance(given, Mapping):
        return given
    both = {**translated, **(given or {})}
    return {name: value for name, value in both.items() if value is not None}
