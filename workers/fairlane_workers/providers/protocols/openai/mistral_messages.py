"""Writes chats in the form of Mistral, which rejects fields and parts that it does not know."""

from collections.abc import Iterable, Mapping
from typing import Any

_KNOWN = frozenset({"role", "content", "tool_calls", "tool_call_id", "prefix"})


def mistral_messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages without what Mistral's schema lacks; files and recordings are its own parts."""
    return [_message(message) for message in messages]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    known = _KNOWN | {"name"} if message.get("role") == "tool" else _KNOWN
    empty = {name for name, value in message.items() if value is None and name != "content"}
    kept = {name: value for name, value in message.items() if name in known - empty}
    if kept.get("role") == "developer":
        kept["role"] = "system"
    if isinstance(content := kept.get("content"), list):
        kept["content"] = [_part(part) for part in content]
    return kept


def _part(part: object) -> object:
    match part:
        case {"type": "file", "file": {"file_data": str(data), **rest}}:
            name = {"document_name": rest["filename"]} if rest.get("filename") else {}
            return {"type": "document_url", "document_url": data, **name}
        case {"type": "file", "file": {"file_id": str(key)}}:
            return {"type": "file", "file_id": key}
        case {"type": "input_audio", "input_audio": {"data": str(data)}}:
            return {"type": "input_audio", "input_audio": data}
    return part
