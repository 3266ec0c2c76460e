"""Reads a Converse request, and rejects each one that breaks a constraint of Amazon's service model."""

from __future__ import annotations

import json
from typing import Any

from fairlane.lab.simulator.wire.dialect import Call, OfferedTool, RequestError
from fairlane.lab.simulator.wire.reading import is_number, last_question, named, read_positive

_MEMBERS = frozenset(
    {
        *("additionalModelRequestFields", "additionalModelResponseFieldPaths", "guardrailConfig"),
        *("inferenceConfig", "messages", "outputConfig", "performanceConfig", "promptVariables"),
        *("requestMetadata", "serviceTier", "system", "toolConfig"),
    }
)
_BLOCKS = frozenset(
    {
        *("text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent"),
        *("cachePoint", "reasoningContent", "citationsContent", "searchResult"),
    }
)
_INFERENCE = frozenset({"maxTokens", "temperature", "topP", "stopSequences"})


def read_call(payload: Any, model: str, *, stream: bool) -> Call:
    """The call in a request's JSON; the path has named ``model``. Raises `RequestError`."""
    body = _object(payload, "body")
    _known(body, _MEMBERS, "body")
    inference = _object(body.get("inferenceConfig", {}), "inferenceConfig")
    _check_inference(inference)
    _object(body.get("additionalModelRequestFields", {}), "additionalModelRequestFields")
    conversation = _conversation(body.get("messages"))
    system = [
        _text(block, f"system.{at}") for at, block in enumerate(_list(body.get("system", []), "system"))
    ]
    return Call(
        model=model,
        prompt="\n".join([*system, *(text for _, text in conversation)]),
        question=last_question(conversation),
        max_tokens=read_positive(inference, "maxTokens"),
        stream=stream,
        include_usage=True,
        schema=_schema(body.get("outputConfig")),
        tools=_tools(body.get("toolConfig")),
    )


def _check_inference(inference: dict[str, Any]) -> None:
    _known(inference, _INFERENCE, "inferenceConfig")
    for name in ("temperature", "topP"):
        if not is_number(inference.get(name, 0), 0, 1):
            raise RequestError(f"Value at 'inferenceConfig.{name}' must be a number from 0 to 1")
    words = _list(inference.get("stopSequences", []), "inferenceConfig.stopSequences")
    if not all(isinstance(word, str) and word for word in words):
        raise RequestError("Value at 'inferenceConfig.stopSequences' must be texts")


def _conversation(messages: Any) -> list[tuple[str, str]]:
    """Role and text of each message: user and assistant in turns, the user first."""
    conversation: list[tuple[str, str]] = []
    for at, message in enumerate(_list(messages, "messages")):
        role = _object(message, f"messages.{at}").get("role")
        if role not in ("user", "assistant"):
            raise RequestError(f"Value at 'messages.{at}.role' must be one of user, assistant")
        if role == (conversation[-1][0] if conversation else "assistant"):
            raise RequestError("A conversation must alternate between user and assistant roles.")
        blocks = _list(message.get("content"), f"messages.{at}.content")
        conversation.append((role, "".join(_said(block, f"messages.{at}.content") for block in blocks)))
    if not conversation:
        raise RequestError("A conversation must start with a user message.")
    return conversation


def _said(block: Any, field: str) -> str:
    """A block's text; other members of the union, such as an image or a call of a tool, have none."""
    members = _object(block, field).keys() & _BLOCKS
    if len(members) != 1:
        raise RequestError(f"Value at '{field}' must have exactly one member of the union ContentBlock")
    return _text(block, field) if members == {"text"} else ""


def _text(block: Any, field: str) -> str:
    text = _object(block, field).get("text")
    if not isinstance(text, str) or not text.strip():
        raise RequestError(f"The text field in the ContentBlock object at {field} is blank.")
    return text


def _schema(output: Any) -> dict[str, Any] | None:
    match output:
        case None:
            return None
        case {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": str(text)}}}}:
            try:
                return _object(json.loads(text), "outputConfig.textFormat.structure.jsonSchema.schema")
            except ValueError:
                raise RequestError("outputConfig: the schema is not JSON") from None
    raise RequestError("Value at 'outputConfig.textFormat' must be a json_schema")


def _tools(config: Any) -> tuple[OfferedTool, ...]:
    """The tools that the model may call; a single one if ``toolChoice`` names it."""
    if config is None:
        return ()
    specs = _list(_object(config, "toolConfig").get("tools"), "toolConfig.tools")
    if not specs:
        raise RequestError("Value at 'toolConfig.tools' must have length greater than or equal to 1")
    tools = tuple(_tool(at, spec) for at, spec in enumerate(specs))
    match config.get("toolChoice", {"auto": {}}):
        case {"auto": {}} | {"any": {}}:
            return tools
        case {"tool": {"name": str(name)}} if wanted := named(tools, name):
            return wanted
    raise RequestError("Value at 'toolConfig.toolChoice' must be one of auto, any, tool")


def _tool(at: int, spec: Any) -> OfferedTool:
    match spec:
        case {"toolSpec": {"name": str(name), "inputSchema": {"json": dict(schema)}}} if name:
            return OfferedTool(name, schema)
    raise RequestError(f"Value at 'toolConfig.tools.{at}' must be a toolSpec with name and inputSchema.json")


def _object(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RequestError(f"Value at '{field}' must be an object")
    return value


def _list(value: Any, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise RequestError(f"Value at '{field}' must be a list")
    return value


def _known(value: dict[str, Any], names: frozenset[str], field: str) -> None:
    for name in value:
        if name not in names:
            raise RequestError(f"Value at '{field}': {name} is not a member")
