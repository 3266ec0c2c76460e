"""Writes a request in the form of Mistral, which rejects parameters, fields and parts of others."""

from collections.abc import Mapping
from typing import Any

from fairlane_workers.providers.requests.vocabulary import without_openais

_NAMES = {"max_completion_tokens": "max_tokens", "seed": "random_seed"}
_OWN = ("stream_options", "metadata", "prompt_cache_key")
_KNOWN = frozenset({"role", "content", "tool_calls", "tool_call_id", "prefix"})


def mistral_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """A body of chat completions with Mistral's names, and without what changes no answer and it lacks.

    Files and recordings are its own parts.
    """
    renamed = {**body, "messages": [_message(message) for message in body["messages"]]}
    for name, theirs in _NAMES.items():
        if name in renamed:
            renamed.setdefault(theirs, renamed.pop(name))
    return without_openais(renamed, own=_OWN)


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
