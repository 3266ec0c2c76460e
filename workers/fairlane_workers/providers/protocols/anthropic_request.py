"""Builds the body of a request to Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import UnmappableError
from fairlane_workers.providers.parameters import Parameters, Tool, ToolChoice
from fairlane_workers.providers.vocabulary import split_tools, without_openais

DEFAULT_MAX_TOKENS = 1024

_SYSTEM_ROLES = ("system", "developer")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_CHOICES: Mapping[ToolChoice, str] = {"auto": "auto", "none": "none", "required": "any"}


def build_body(request: Request) -> dict[str, Any]:
    """The body of ``POST /messages``.

    System messages become ``system``; ``max_tokens`` is 1024 if a run gives none, since the protocol requires
    one. Raises `UnmappableError`.
    """
    common, own_tools = split_tools(request.params)
    choice = common.pop("tool_choice", None)
    if not _is_own(choice):
        common["tool_choice"] = choice
        choice = None
    asked = Parameters.of(common)
    lifted = [message["content"] for message in request.messages if message["role"] in _SYSTEM_ROLES]
    fields: dict[str, Any] = {
        "max_tokens": DEFAULT_MAX_TOKENS if asked.max_tokens is None else asked.max_tokens,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k,
        "stop_sequences": list(asked.stop) or None,
        "tools": [*map(_tool, asked.tools), *own_tools] or None,
        "tool_choice": choice or _choice(asked),
        **_own(asked),
        "model": request.model,
        "messages": [each for each in request.messages if each["role"] not in _SYSTEM_ROLES],
        "stream": request.stream,
    }
    if lifted:
        fields["system"] = _system(fields.get("system"), "\n\n".join(lifted))
    return {name: value for name, value in fields.items() if value is not None}


def _own(asked: Parameters) -> dict[str, Any]:
    """Fields that only Anthropic has; given under its own names, they take precedence over OpenAI's."""
    params = {**asked.rest, "seed": asked.seed}
    params |= {"frequency_penalty": asked.frequency_penalty, "presence_penalty": asked.presence_penalty}
    effort, user = params.pop("reasoning_effort", None), params.pop("user", None)
    params.pop("parallel_tool_calls", None)  # `_choice` says it
    own = without_openais(params, "anthropic", own=("metadata",))
    output = {**_format(asked), **_effort(effort), **(own.get("output_config") or {})}
    if output:
        own["output_config"] = output
    if user is not None and "metadata" not in own:
        own["metadata"] = {"user_id": user}
    return own


def _format(asked: Parameters) -> dict[str, Any]:
    if asked.json:
        raise UnmappableError(
            'params.response_format: "anthropic" has no "json_object"; give a schema ("json_schema")'
        )
    if asked.schema is None:
        return {}
    return {"format": {"type": "json_schema", "schema": asked.schema.schema}}


def _effort(effort: object) -> dict[str, Any]:
    if effort is None:
        return {}
    if effort not in _EFFORTS:
        known = ", ".join(_EFFORTS)
        raise UnmappableError(f"params.reasoning_effort: {effort!r} is none of Anthropic's efforts: {known}")
    return {"effort": effort}


def _tool(tool: Tool) -> dict[str, Any]:
    described = {} if tool.description is None else {"description": tool.description}
    strict = {"strict": True} if tool.strict else {}
    return {"name": tool.name, **described, "input_schema": tool.schema, **strict}


def _choice(asked: Parameters) -> dict[str, Any] | None:
    alone = asked.rest.get("parallel_tool_calls") is False and asked.tool_choice != "none"
    if asked.tool_choice is None and not (alone and asked.tools):
        return None
    one = {"disable_parallel_tool_use": True} if alone else {}
    if isinstance(asked.tool_choice, Tool):
        return {"type": "tool", "name": asked.tool_choice.name, **one}
    return {"type": _CHOICES[asked.tool_choice or "auto"], **one}


def _is_own(choice: object) -> bool:
    return isinstance(choice, Mapping) and "function" not in choice


def _system(given: object, lifted: str) -> object:
    """The system text of the parameters, followed by that of the messages."""
    if isinstance(given, list):
        return [*given, {"type": "text", "text": lifted}]
    return f"{given}\n\n{lifted}" if given else lifted
