"""Chats as providers write them, in the one form that connections take."""

from collections.abc import Mapping
from typing import Any


def is_chat(value: Any) -> bool:
    """Whether a value is a list of messages, each with a role."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, Mapping) and isinstance(each.get("role"), str) for each in value)
    )


def chat_of(value: Any) -> list[dict[str, Any]] | None:
    """The messages of a list, of ``{"messages": …}``, or of Gemini's ``{"contents": …}``; else ``None``."""
    if isinstance(value, Mapping):
        before = value.get("system_instruction", value.get("systemInstruction", value.get("system")))
        inner = value.get("messages", value.get("contents"))
        chat = chat_of(inner)
        if chat is None or before is None:
            return chat
        return [{"role": "system", "content": _content(before)}, *chat]
    return [_message(each) for each in value] if is_chat(value) else None


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    rest = {name: each for name, each in message.items() if name not in ("role", "content", "parts")}
    content = message.get("content", message.get("parts"))
    role = message["role"]
    return {"role": "assistant" if role == "model" else role, "content": _content(content), **rest}


def _content(content: Any) -> Any:
    if isinstance(content, Mapping):
        content = content.get("parts", [content])
    if not isinstance(content, list):
        return content
    parts = [_part(each) for each in content]
    texts = [part["text"] for part in parts if isinstance(part, Mapping) and set(part) == {"type", "text"}]
    return "\n".join(texts) if len(texts) == len(parts) and len(texts) == 1 else parts


def _part(part: Any) -> Any:
    """A part in OpenAI's form; a part of unknown form stays as it is."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, Mapping):
        return part
    match part:
        case {"type": "input_text" | "text", "text": str(text), **rest} if not rest:
            return {"type": "text", "text": text}
        case {"text": str(text), **rest} if not rest:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": str(url), **rest}:
            return {"type": "image_url", "image_url": {"url": url, **rest}}
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return _image(kind, data)
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {"inline_data": {"mime_type": str(kind), "data": str(data)}}:
            return _image(kind, data)
        case {"inlineData": {"mimeType": str(kind), "data": str(data)}}:
            return _image(kind, data)
    return dict(part)


def _image(kind: str, data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
