"""Turns chat messages into input items of the Responses API; what is in that API's form already stays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_OF_A_MESSAGE = frozenset({"type", "id", "status", "role", "content", "phase"})
"""Fields of a message in that API, which rejects all others: an SDK's dump of a chat message has more."""


def input_items(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The items that say what ``messages`` say: texts, images, files, calls of tools and their results."""
    return [item for message in messages for item in _items(message)]


def _items(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        output = content if isinstance(content, str) else _parts(content, "input_text")
        yield {"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": output}
        return
    if role is None:
        yield dict(message)
        return
    calls, refusal = message.get("tool_calls"), message.get("refusal")
    if content is None and isinstance(refusal, str):
        content = [{"type": "refusal", "refusal": refusal}]
    if content is not None or not calls:
        kind = "output_text" if role == "assistant" else "input_text"
        kept = {name: value for name, value in message.items() if name in _OF_A_MESSAGE and value is not None}
        yield {**kept, "content": _parts(content, kind)}
    for call in calls if isinstance(calls, list) else ():
        yield _call(call)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(custom := call.get("custom"), Mapping):
        return {"type": "custom_tool_call", "call_id": call.get("id"), **custom}
    return {"type": "function_call", "call_id": call.get("id"), **(call.get("function") or {})}


def _parts(content: object, text_kind: str) -> Any:
    return [_part(part, text_kind) for part in content] if isinstance(content, list) else content


def _part(part: object, text_kind: str) -> object:
    match part:
        case {"type": "text", "text": text}:
            return {"type": text_kind, "text": text}
        case {"type": "image_url", "image_url": {"url": url, **rest}}:
            return {"type": "input_image", "image_url": url, "detail": rest.get("detail") or "auto"}
        case {"type": "file", "file": Mapping() as file}:
            return {"type": "input_file", **file}
    return part
