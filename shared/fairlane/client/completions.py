"""Makes the body of an answer as OpenAI's API has it: a chat completion, embeddings, or a response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fairlane.core.json_answers import json_or
from fairlane.evaluators.embeddings import base64_of, read_embeddings
from fairlane.export.finish_reasons import REFUSAL, openai_reason
from fairlane.model.record import Record
from fairlane.model.tokens import Usage

_ECHOED = (
    *("instructions", "max_output_tokens", "metadata", "reasoning"),
    *("temperature", "text", "top_p", "user"),
)
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def chat_completion(
    record: Record, request: Mapping[str, Any], name: str, created_s: int = 0
) -> dict[str, Any]:
    """An answer as OpenAI's ``ChatCompletion``, with its message, calls of tools and usage.

    ``request`` is the body that was sent, ``name`` the answer's own, which begins the ids of its calls.
    ``created_s``: when, in seconds since 1970.
    """
    output = read_output(record.output, request.get("tools"))
    refused = record.finish_reason == REFUSAL
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if refused else output.text,
        "refusal": output.text if refused else None,
    }
    if output.calls:
        message["tool_calls"] = [_chat_call(call, f"call_{name}-{n}") for n, call in enumerate(output.calls)]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": "stop" if refused else openai_reason(record.finish_reason, calls=bool(output.calls)),
    }
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": created_s,
        "model": _model(record),
        "choices": [choice],
        **_chat_usage(record.usage),
        "system_fingerprint": None,
    }


def embeddings(record: Record, request: Mapping[str, Any], name: str, created_s: int) -> dict[str, Any]:
    """A ``CreateEmbeddingResponse``: numbers, or base64 where the request asks for it.

    Raises `BrokenEmbeddings` where the output holds none.
    """
    as_text = request.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": n, "embedding": base64_of(each) if as_text else each.tolist()}
        for n, each in enumerate(read_embeddings(record.output or ""))
    ]
    counted = record.usage.input_tokens or 0
    usage = {"prompt_tokens": counted, "total_tokens": counted}
    return {"object": "list", "data": data, "model": _model(record), "usage": usage}


def response(record: Record, request: Mapping[str, Any], name: str, created_s: int) -> dict[str, Any]:
    """A ``Response`` with a message, and a call for each tool that the model wants called."""
    tools = request.get("tools")
    output = read_output(record.output, tools)
    refused = record.finish_reason == REFUSAL
    reason = (
        None if refused else _INCOMPLETE.get(openai_reason(record.finish_reason, calls=bool(output.calls)))
    )
    status = "incomplete" if reason else "completed"
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": created_s,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": _model(record),
        "output": list(_items(output, name, status, refused=refused)),
        "parallel_tool_calls": request.get("parallel_tool_calls") is not False,
        "tool_choice": request.get("tool_choice") or "auto",
        "tools": tools if isinstance(tools, list) else [],
        **{field: request.get(field) for field in _ECHOED},
        **_response_usage(record.usage),
    }


def _items(output: Output, name: str, status: str, *, refused: bool) -> Any:
    if output.text is not None:
        part: dict[str, Any] = {"type": "output_text", "text": output.text, "annotations": []}
        if refused:
            part = {"type": "refusal", "refusal": output.text}
        message = {"type": "message", "id": f"msg_{name}", "status": status, "role": "assistant"}
        yield {**message, "content": [part]}
    for number, call in enumerate(output.calls):
        names = {"call_id": f"call_{name}-{number}", "name": call.name}
        if call.custom:
            yield {"type": "custom_tool_call", "id": f"ctc_{name}-{number}", **names, "input": call.arguments}
        else:
            item = {"type": "function_call", "id": f"fc_{name}-{number}", **names}
            yield {**item, "arguments": call.arguments, "status": "completed"}


def _chat_call(call: ToolCall, key: str) -> dict[str, Any]:
    if call.custom:
        return {"id": key, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {"id": key, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _model(record: Record) -> str:
    return record.model.partition(":")[2]


def _chat_usage(usage: Usage) -> dict[str, Any]:
    """Token counts under the API's names; nothing where the provider gave none."""
    if usage.total is None:
        return {}
    counts: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens or 0,
        "completion_tokens": usage.output_tokens or 0,
        "total_tokens": usage.total,
    }
    if usage.cached_tokens is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    return {"usage": counts}


def _response_usage(usage: Usage) -> dict[str, Any]:
    if usage.total is None:
        return {"usage": None}
    counts = {
        "input_tokens": usage.input_tokens or 0,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens or 0,
            "cache_write_tokens": usage.written_tokens or 0,
        },
        "output_tokens": usage.output_tokens or 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total,
    }
    return {"usage": counts}


class ToolCall(NamedTuple):
    """A call that the model asks for. ``arguments`` is the text that the model wrote, JSON for a function."""

    name: str
    arguments: str
    custom: bool = False


class Output(NamedTuple):
    """What the model gave; ``text`` is ``None`` where it only called tools."""

    text: str | None
    calls: tuple[ToolCall, ...] = ()


def read_output(output: str | None, tools: object) -> Output:
    """The parts of a record's output. ``tools`` are those of its request, in the form of either API.

    Calls are stored as ``{"text", "tool_calls"}``; without tools that is an answer which looks alike.
    """
    declared = _declared(tools)
    if not declared or output is None or not output.startswith("{"):
        return Output(output)
    match json_or(output):
        case {"text": str(text), "tool_calls": list(calls), **rest} if calls and not rest:
            read = [_call(each, declared) for each in calls]
            if all(read):
                return Output(text or None, tuple(call for call in read if call))
    return Output(output)


def _declared(tools: object) -> dict[str, bool]:
    """The names of the tools, and whether each takes any text rather than JSON."""
    names: dict[str, bool] = {}
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            kind = "custom" if tool.get("type") == "custom" else "function"
            spec = tool.get(kind, tool)
            if isinstance(spec, Mapping) and isinstance(name := spec.get("name"), str):
                names[name] = kind == "custom"
    return names


def _call(value: Any, declared: Mapping[str, bool]) -> ToolCall | None:
    match value:
        case {"name": str(name), "arguments": arguments, **rest} if not rest:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            return ToolCall(name, text, declared.get(name, False))
    return None
