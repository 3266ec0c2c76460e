"""Reads the parts of a request that several protocols share, and rejects invalid ones."""

from collections.abc import Sequence
from typing import Any

from fairlane.lab.simulator.wire.dialect import OfferedTool, RequestError


def read_messages(payload: Any) -> tuple[str, str, list[tuple[str, str]]]:
    """Model, last user text, and ``(role, text)`` of each message. Raises `RequestError`."""
    model, messages = read_model(payload), payload.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages: at least one message is required")
    conversation = [_message(index, message) for index, message in enumerate(messages)]
    return model, last_question(conversation), conversation


def read_model(payload: Any) -> str:
    """The model that the body, which must be an object, names. Raises `RequestError`."""
    if not isinstance(payload, dict):
        raise RequestError("the body must be a JSON object")
    model = payload.get("model")
    if not isinstance(model, str) or not model:
        raise RequestError("model: a model name is required")
    return model


def last_question(conversation: Sequence[tuple[str, str]]) -> str:
    """The text of the last message whose role is ``user``; empty without one."""
    return next((text for role, text in reversed(conversation) if role == "user"), "")


def read_text(content: Any, field: str) -> str:
    """The text of a content: a string or a list of parts. Raises `RequestError`."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(str(part.get("text", "")) for part in content)
    raise RequestError(f"{field}: a string or a list of content parts is required")


def read_positive(payload: dict[str, Any], field: str) -> int | None:
    """A whole number of at least 1, or ``None`` without the field. Raises `RequestError`."""
    value = payload.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RequestError(f"{field}: a whole number of at least 1 is required")
    return value


def read_flag(payload: dict[str, Any], field: str) -> bool:
    """A boolean, which is false without the field. Raises `RequestError`."""
    value = payload.get(field)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise RequestError(f"{field}: true or false is required")


def read_schema(payload: dict[str, Any]) -> dict[str, Any] | None:
    """The schema of a ``response_format`` of OpenAI's structured outputs. Raises `RequestError`."""
    wanted = payload.get("response_format")
    if wanted is None:
        return None
    if not isinstance(wanted, dict) or not isinstance(wanted.get("type"), str):
        raise RequestError("response_format: an object with a type is required")
    if wanted["type"] != "json_schema":
        return None
    form = wanted.get("json_schema")
    if not isinstance(form, dict) or not form.get("name") or not isinstance(form.get("schema"), dict):
        raise RequestError("response_format.json_schema: an object with name and schema is required")
    schema: dict[str, Any] = form["schema"]
    return schema


def read_tools(payload: dict[str, Any]) -> tuple[OfferedTool, ...]:
    """The ``tools`` of a request in OpenAI's form. Raises `RequestError`."""
    tools = payload.get("tools")
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise RequestError("tools: an array is required")
    return tuple(_tool(index, tool) for index, tool in enumerate(tools))


def named(tools: Sequence[OfferedTool], name: str) -> tuple[OfferedTool, ...]:
    """The tools of this name; none if the request does not offer it."""
    return tuple(tool for tool in tools if tool.name == name)


def is_number(value: Any, least: float, most: float) -> bool:
    """Whether ``value`` is a JSON number from ``least`` to ``most``; a boolean is none."""
    return not isinstance(value, bool) and isinstance(value, int | float) and least <= value <= most


def _message(index: int, message: Any) -> tuple[str, str]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError(f"messages[{index}]: an object with role and content is required")
    content = message.get("content")
    if content is None and message["role"] == "assistant" and message.get("tool_calls"):
        return "assistant", ""  # a message that only calls tools has no text
    return message["role"], read_text(content, f"messages[{index}].content")


def _tool(index: int, tool: Any) -> OfferedTool:
    match tool:
        case {"type": "function", "function": {"name": str(name), **function}} if name:
            schema = function.get("parameters")
            return OfferedTool(name, schema if isinstance(schema, dict) else {"type": "object"})
    raise RequestError(f"tools[{index}]: a function with a name is required")
