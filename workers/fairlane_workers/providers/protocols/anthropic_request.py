"""Builds the body of a request to Anthropic's Messages API."""

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from fairlane.config.connections.connection import EFFORTS
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import UnmappableError
from fairlane_workers.providers.requests.media import IMAGES, PDF, Media
from fairlane_workers.providers.requests.messages import (
    Call,
    ChatMessage,
    NativePart,
    Part,
    Text,
    fitting_id,
    in_turns,
    is_blank,
    read_messages,
)
from fairlane_workers.providers.requests.parameters import Parameters, Tool, ToolChoice
from fairlane_workers.providers.requests.vocabulary import split_tools, without_openais

DEFAULT_MAX_TOKENS = 1024
THINKING_MAX_TOKENS = 16_384
"""Where the model decides how long it thinks: thoughts count towards the limit, as the answer does."""

_EFFORTS = EFFORTS["anthropic"]
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_CHOICES: Mapping[ToolChoice, str] = {"auto": "auto", "none": "none", "required": "any"}


def build_body(request: Request) -> dict[str, Any]:
    """The body of ``POST /messages``.

    System messages become ``system``. The protocol requires ``max_tokens``: a run that gives none gets 1024
    beyond its budget of thoughts, or 16,384 where the model decides how long it thinks. Raises
    `UnmappableError`.
    """
    common, own_tools = split_tools(request.params)
    choice = common.pop("tool_choice") if _is_own(common.get("tool_choice")) else None
    asked = Parameters.of(common)
    messages = read_messages(request.messages)
    lifted = [message for message in messages if message.role == "system"]
    own = _own(asked)
    fields: dict[str, Any] = {
        "max_tokens": _enough(own) if asked.max_tokens is None else asked.max_tokens,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k,
        "stop_sequences": list(asked.stop) or None,
        "tools": [*map(_tool, asked.tools), *own_tools] or None,
        "tool_choice": _choice(asked, choice, own_tools),
        **own,
        "model": request.model,
        "messages": _turns(messages),
        "stream": request.stream,
    }
    if lifted:
        fields["system"] = _system(fields.get("system"), lifted) or None
    return {name: value for name, value in fields.items() if value is not None}


def _enough(own: Mapping[str, Any]) -> int:
    """The limit of tokens for thoughts and answer, where a run gives none."""
    thinking, output = own.get("thinking"), own.get("output_config")
    if isinstance(thinking, Mapping) and thinking.get("type") != "disabled":
        budget = thinking.get("budget_tokens")
        return DEFAULT_MAX_TOKENS + budget if type(budget) is int else THINKING_MAX_TOKENS
    thinks = isinstance(output, Mapping) and output.get("effort") is not None
    return THINKING_MAX_TOKENS if thinks and thinking is None else DEFAULT_MAX_TOKENS


def _turns(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """User and assistant. Results of tools that were called together are in one user message."""
    turns: list[dict[str, Any]] = []
    for turn in in_turns(messages, "anthropic"):
        message = turn[0]
        if message.role == "tool":
            turns.append({"role": "user", "content": [_result(each) for each in turn]})
            continue
        content = message.given.get("content")
        if message.calls or not isinstance(content, str):
            content = [*_blocks(message), *map(_call, message.calls)]
        turns.append({"role": message.role, "content": content})
    if turns[-1]["role"] == "assistant":
        turns[-1]["content"] = _without_blanks_at_its_end(turns[-1]["content"])
    return turns


def _without_blanks_at_its_end(content: Any) -> Any:
    """The beginning of an answer that the model goes on with: Anthropic rejects one that ends in blanks."""
    match content:
        case str():
            return content.rstrip()
        case [*before, {"type": "text", "text": str(text), **rest}]:
            return [*before, {**rest, "type": "text", "text": text.rstrip()}]
    return content


def _blocks(message: ChatMessage) -> list[dict[str, Any]]:
    return [block for part in message.parts if (block := _block(part)) is not None]


def _block(part: Part) -> dict[str, Any] | None:
    match part:
        case Text():
            return None if is_blank(part) else dict(part.given)
        case NativePart():
            return dict(part.part)
        case Media(kind="image"):
            return {"type": "image", "source": _source(part)}
        case Media(kind="file"):
            titled = {} if part.name is None else {"title": part.name}
            return {"type": "document", "source": _source(part), **titled}
    raise part.unmappable("anthropic", "takes no audio")


def _source(media: Media) -> dict[str, Any]:
    if media.data is None:
        return {"type": "url", "url": media.url}
    if media.kind == "file" and _is_text(media.media_type):
        return {"type": "text", "media_type": "text/plain", "data": _decoded(media)}
    if media.media_type not in (IMAGES if media.kind == "image" else (PDF,)):
        what = ", ".join(IMAGES) if media.kind == "image" else "PDFs and texts"
        raise media.unmappable("anthropic", f"takes {what}, not {media.media_type or 'what has no type'}")
    return {"type": "base64", "media_type": media.media_type, "data": media.data}


def _is_text(media_type: str | None) -> bool:
    return media_type is not None and (media_type.startswith("text/") or media_type == "application/json")


def _decoded(media: Media) -> str:
    try:
        return b64decode(media.data or "", validate=True).decode()
    except ValueError:
        raise media.unmappable("anthropic", "takes a text file in UTF-8") from None


def _call(call: Call) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": fitting_id(call.id, _ID),
        "name": call.name,
        "input": dict(call.arguments),
    }


def _result(message: ChatMessage) -> dict[str, Any]:
    content = message.given.get("content")
    answer = content if isinstance(content, str) else _blocks(message)
    return {"type": "tool_result", "tool_use_id": fitting_id(message.answers, _ID), "content": answer}


def _own(asked: Parameters) -> dict[str, Any]:
    """Fields that only Anthropic has; given under its own names, they take precedence over OpenAI's."""
    params = {**asked.rest, "seed": asked.seed}
    params |= {"frequency_penalty": asked.frequency_penalty, "presence_penalty": asked.presence_penalty}
    effort, user = params.pop("reasoning_effort", None), params.pop("user", None)
    params.pop("parallel_tool_calls", None)  # `_choice` says it
    labels = params.get("metadata")
    is_own = not isinstance(labels, Mapping) or "user_id" in labels  # OpenAI's are labels of the caller's
    own = without_openais(params, "anthropic", own=("metadata",) if is_own else ())
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


def _choice(asked: Parameters, own: Mapping[str, Any] | None, tools: Sequence[Any]) -> dict[str, Any] | None:
    """Which tools to call, and whether one alone; ``own`` and ``tools`` are in Anthropic's own form."""
    none = asked.tool_choice == "none" or (own or {}).get("type") == "none"
    alone = asked.rest.get("parallel_tool_calls") is False and not none
    one = {"disable_parallel_tool_use": True} if alone else {}
    if own is not None:
        return {**one, **own}
    if asked.tool_choice is None and not (alone and (asked.tools or tools)):
        return None
    if isinstance(asked.tool_choice, Tool):
        return {"type": "tool", "name": asked.tool_choice.name, **one}
    return {"type": _CHOICES[asked.tool_choice or "auto"], **one}


def _is_own(choice: object) -> bool:
    return isinstance(choice, Mapping) and "function" not in choice


def _system(given: object, lifted: Sequence[ChatMessage]) -> object:
    """The system text of the parameters, followed by that of the messages; blocks where either has them."""
    text = "\n\n".join(message.text for message in lifted)
    if isinstance(given, list) or any(isinstance(each.given.get("content"), list) for each in lifted):
        first = given if isinstance(given, list) else [{"type": "text", "text": given}] if given else []
        return [*first, *(block for message in lifted for block in _blocks(message))]
    return f"{given}\n\n{text}" if given else text
