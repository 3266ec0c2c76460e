"""Builds the body of a ``generateContent`` request."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fairlane.config.connections.connection import EFFORTS
from fairlane.core.json_answers import json_or
from fairlane_workers.providers.answers.answer import within
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import UnmappableError
from fairlane_workers.providers.requests.messages import (
    Call,
    ChatMessage,
    NativePart,
    Part,
    Text,
    in_turns,
    read_messages,
)
from fairlane_workers.providers.requests.parameters import Parameters, Tool, ToolChoice
from fairlane_workers.providers.requests.vocabulary import split_tools, without_openais

_LEVELS = EFFORTS["gemini"]
_MODES: Mapping[ToolChoice, str] = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_SCHEMAS = ("responseSchema", "responseJsonSchema")
_FIXED = ("model", "messages", "stream", "contents")


def build_body(request: Request) -> dict[str, Any]:
    """The body of ``generateContent``: parameters under Gemini's own names take precedence over OpenAI's.

    Raises `UnmappableError`.
    """
    common, own_tools = split_tools(request.params)
    asked = Parameters.of(common)
    params = {name: value for name, value in asked.rest.items() if name not in _FIXED}
    effort = params.pop("reasoning_effort", None)
    own = without_openais(params, "gemini", own=("store",))
    messages = read_messages(request.messages)
    system = [part for each in messages if each.role == "system" for part in _parts(each)]
    fields: dict[str, Any] = {
        "contents": _contents(messages),
        "tools": [*_declared(asked.tools), *own_tools] or None,
        "toolConfig": _tool_config(asked.tool_choice),
        **own,
        "generationConfig": _generation(asked, effort, own.get("generationConfig")) or None,
    }
    if system:
        fields["systemInstruction"] = _system(own.get("systemInstruction"), system)
    return {name: value for name, value in fields.items() if value is not None}


def resource(model: str, collections: tuple[str, ...]) -> str:
    """A model's name as a path, below one of ``collections``; the first of them if the name has none.

    Nothing in the name can lead elsewhere: all of it is percent-encoded.
    """
    for collection in collections:
        if model.startswith(f"{collection}/"):
            return f"/{collection}/{quote(model.removeprefix(f'{collection}/'), safe='')}"
    return f"/{collections[0]}/{quote(model, safe='')}"


def _contents(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """User and model. Results of tools that were called together are in one message of the user."""
    contents: list[dict[str, Any]] = []
    for turn in in_turns(messages, "gemini"):
        message = turn[0]
        if message.role == "tool":
            contents.append({"role": "user", "parts": [_result(each) for each in turn]})
            continue
        role = "model" if message.role == "assistant" else "user"
        contents.append({"role": role, "parts": [*_parts(message), *map(_call, message.calls)]})
    return contents


def _parts(message: ChatMessage) -> list[dict[str, Any]]:
    """Its parts without empty texts, which Google rejects."""
    return [_part(part) for part in message.parts if not isinstance(part, Text) or part.text]


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text():
            return {"text": part.text}
        case NativePart():
            return dict(part.part)
    kind = {} if part.media_type is None else {"mimeType": part.media_type}
    if part.data is not None:
        return {"inlineData": {**kind, "data": part.data}}
    return {"fileData": {**kind, "fileUri": part.url}}


def _call(call: Call) -> dict[str, Any]:
    """A call, with the signature that newer models want back, where Google's own form of chats has it."""
    signature = within(call.extra, "google", "thought_signature")
    signed = {} if signature is None else {"thoughtSignature": signature}
    return {"functionCall": {"name": call.name, "args": dict(call.arguments)}, **signed}


def _result(message: ChatMessage) -> dict[str, Any]:
    if message.tool is None:
        raise UnmappableError(
            f"{message.place}.tool_call_id: {message.answers!r} is no call of an earlier message, so that "
            "nothing names its function"
        )
    message.refuse_unknown("gemini")
    for media in message.media:
        raise media.unmappable("gemini", "takes texts alone as results of tools")
    response = json_or(message.text)
    # Google reads {"$ref": …} within an object as a pointer: github.com/BerriAI/litellm/issues/38223
    plain = isinstance(response, dict) and "$ref" not in message.text
    answer = response if plain else {"output": message.text}
    return {"functionResponse": {"name": message.tool, "response": answer}}


def _system(given: object, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The system text of the parameters, followed by that of the messages."""
    if given is None:
        return {"parts": parts}
    if not isinstance(given, dict) or not isinstance(given.get("parts"), list):
        raise UnmappableError('params.systemInstruction: {"parts": […]} is expected')
    return {**given, "parts": [*given["parts"], *parts]}


def _generation(asked: Parameters, effort: object, own: object) -> dict[str, Any]:
    if own is None:
        own = {}
    if not isinstance(own, dict):
        raise UnmappableError(f"params.generationConfig: an object is expected, got {type(own).__name__}")
    fields: dict[str, Any] = {
        "maxOutputTokens": asked.max_tokens,
        "temperature": asked.temperature,
        "topP": asked.top_p,
        "topK": asked.top_k,
        "seed": asked.seed,
        "presencePenalty": asked.presence_penalty,
        "frequencyPenalty": asked.frequency_penalty,
        "stopSequences": list(asked.stop) or None,
        "responseMimeType": "application/json" if asked.json or asked.schema else None,
        "thinkingConfig": _thinking(effort),
    }
    if asked.schema is not None and not any(name in own for name in _SCHEMAS):
        fields["responseJsonSchema"] = asked.schema.schema
    return {name: value for name, value in {**fields, **own}.items() if value is not None}


def _thinking(effort: object) -> dict[str, str] | None:
    if effort is None:
        return None
    if effort not in _LEVELS:
        known = ", ".join(_LEVELS)
        raise UnmappableError(
            f"params.reasoning_effort: {effort!r} is no thinking level ({known}); "
            "generationConfig.thinkingConfig can say more"
        )
    return {"thinkingLevel": str(effort)}


def _declared(tools: tuple[Tool, ...]) -> list[dict[str, Any]]:
    declared = [
        {
            "name": tool.name,
            **({} if tool.description is None else {"description": tool.description}),
            "parametersJsonSchema": tool.schema,
        }
        for tool in tools
    ]
    return [{"functionDeclarations": declared}] if declared else []


def _tool_config(choice: ToolChoice | Tool | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    if isinstance(choice, Tool):
        only = {"mode": "ANY", "allowedFunctionNames": [choice.name]}
        return {"functionCallingConfig": only}
    return {"functionCallingConfig": {"mode": _MODES[choice]}}
