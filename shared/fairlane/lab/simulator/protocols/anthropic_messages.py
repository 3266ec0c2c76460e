"""Anthropic's messages, as the simulated provider speaks them."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from fairlane.lab.simulator.limits.admission import Axis, Level
from fairlane.lab.simulator.wire.dialect import (
    NO_PATH,
    Call,
    Dialect,
    Exceeded,
    OfferedTool,
    Problem,
    Reply,
    RequestError,
    Stamp,
    ToolUse,
    halves,
    write_event,
    write_json,
)
from fairlane.lab.simulator.wire.reading import (
    is_number,
    named,
    read_flag,
    read_messages,
    read_positive,
    read_text,
)

_AXIS_WORDS: dict[Axis, str] = {
    "requests": "requests per minute",
    "tokens": "tokens per minute",
    "input": "input tokens per minute",
    "output": "output tokens per minute",
    "day": "requests per day",
    "concurrency": "concurrent requests",
}
_HEADER_NAMES: dict[Axis, str] = {
    "requests": "requests",
    "tokens": "tokens",
    "input": "input-tokens",
    "output": "output-tokens",
}
_BY_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_FIELDS = frozenset(
    {
        *("model", "messages", "max_tokens", "system", "stream", "temperature", "top_p", "top_k"),
        *("stop_sequences", "tools", "tool_choice", "output_config", "thinking", "metadata"),
        *("service_tier", "cache_control", "container", "context_management", "inference_geo"),
        *("mcp_servers", "speed", "diagnostics"),
    }
)
_ROLES = ("user", "assistant", "system")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_DATED = re.compile(r"_[0-9]{8}$")
_CHOICES = ("auto", "any", "tool", "none")


class AnthropicMessages(Dialect):
    """Messages; streams are named events that end with ``message_stop``."""

    paths: ClassVar[tuple[str, ...]] = ("/v1/messages",)

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """Rejects each request that Anthropic rejects."""
        model, question, conversation = read_messages(payload)
        for name in payload:
            if name not in _FIELDS:
                raise RequestError(f"{name}: Extra inputs are not permitted")
        max_tokens = read_positive(payload, "max_tokens")
        if max_tokens is None:
            raise RequestError("max_tokens: Field required")
        for number, (role, _) in enumerate(conversation):
            if role not in _ROLES or (role == "system" and number == 0):
                raise RequestError(f'messages.{number}.role: Unexpected role "{role}"')
        _check(payload)
        system = payload.get("system")
        texts = [] if system is None else [read_text(system, "system")]
        return Call(
            model=model,
            prompt="\n".join([*texts, *(text for _, text in conversation)]),
            question=question,
            max_tokens=max_tokens,
            stream=read_flag(payload, "stream"),
            schema=_schema(payload),
            tools=_chosen(_tools(payload), payload.get("tool_choice")),
        )

    def parameters(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Dialect.parameters`: all need ``max_tokens``, and a schema is in ``output_config``."""
        form = (payload.get("output_config") or {}).get("format")
        return {
            **{name: value for name, value in payload.items() if name != "max_tokens"},
            "response_format": form,
        }

    def unsupported(self, name: str, value: Any) -> Problem:
        """See `Dialect.unsupported`."""
        if name == "response_format":
            return Problem(400, "output_config.format is not supported for this model.")
        return Problem(400, f"`{name}` is deprecated for this model.")

    def presented_key(self, headers: Mapping[str, str]) -> str | None:
        """Anthropic accepts both headers; its own client sends ``x-api-key``."""
        return headers.get("x-api-key") or super().presented_key(headers)

    def error_document(self, problem: Problem) -> dict[str, Any]:
        """See `Dialect.error_document`."""
        error: dict[str, Any] = {
            "type": _BY_STATUS.get(problem.status, "api_error"),
            "message": problem.message if problem.exceeded is None else _exceeded(problem.exceeded),
        }
        if problem.code == "quota":
            error["details"] = {"error_code": "enforced_spend_limit_reached"}
        return {"type": "error", "error": error}

    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        """See `Dialect.completion`."""
        usage = {"input_tokens": call.prompt_tokens, "output_tokens": reply.completion_tokens}
        content: dict[str, Any] = {"type": "text", "text": reply.text}
        if reply.tool is not None:
            content = {**_tool_use(reply.tool, stamp), "input": json.loads(reply.tool.arguments)}
        return write_json(
            {
                **_message(call, stamp),
                "content": [content],
                "stop_reason": _stop_reason(reply),
                "usage": usage,
            }
        )

    def frames(self, call: Call, reply: Reply, pieces: Sequence[str], stamp: Stamp) -> list[bytes]:
        """Named events from ``message_start`` to ``message_stop``."""
        opening = {**_message(call, stamp), "usage": {"input_tokens": call.prompt_tokens, "output_tokens": 1}}
        ending = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
        if reply.tool is None:
            block: dict[str, Any] = {"type": "text", "text": ""}
            frames = [_delta(type="text_delta", text=piece) for piece in pieces]
        else:
            block = {**_tool_use(reply.tool, stamp), "input": {}}
            parts = ("", *halves(reply.tool.arguments))
            frames = [b"".join(_delta(type="input_json_delta", partial_json=part) for part in parts)]
        frames[0] = (
            _event("message_start", message=opening)
            + _event("content_block_start", index=0, content_block=block)
            + _event("ping")
            + frames[0]
        )
        frames[-1] += (
            _event("content_block_stop", index=0)
            + _event("message_delta", delta=ending, usage={"output_tokens": reply.completion_tokens})
            + _event("message_stop")
        )
        return frames

    def stream_error(self, problem: Problem) -> bytes:
        """See `Dialect.stream_error`."""
        return write_event(self.error_document(problem), "error")

    def limit_headers(self, levels: Mapping[Axis, Level], now_ms: int) -> dict[str, str]:
        """``anthropic-ratelimit-*``; resets are times in RFC 3339, in whole seconds."""
        headers: dict[str, str] = {}
        for axis, name in _HEADER_NAMES.items():
            level = levels.get(axis)
            if level is None:
                continue
            reset = datetime.fromtimestamp(-(-(now_ms + level.reset_ms) // 1000), tz=UTC)
            headers[f"anthropic-ratelimit-{name}-limit"] = str(level.limit)
            headers[f"anthropic-ratelimit-{name}-remaining"] = str(level.remaining)
            headers[f"anthropic-ratelimit-{name}-reset"] = reset.strftime("%Y-%m-%dT%H:%M:%SZ")
        return headers


def _message(call: Call, stamp: Stamp) -> dict[str, Any]:
    return {
        "id": f"msg_{stamp.ordinal}",
        "type": "message",
        "role": "assistant",
        "model": call.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _tool_use(tool: ToolUse, stamp: Stamp) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{stamp.ordinal}", "name": tool.name}


def _delta(**delta: str) -> bytes:
    return _event("content_block_delta", index=0, delta=delta)


def _stop_reason(reply: Reply) -> str:
    if reply.refused:
        return "refusal"
    if reply.tool is not None:
        return "tool_use"
    return "max_tokens" if reply.truncated else "end_turn"


def _exceeded(exceeded: Exceeded) -> str:
    return (
        "This request would exceed your organization’s rate limit of "
        f"{exceeded.limit:,} {_AXIS_WORDS[exceeded.axis]} (model: {exceeded.model})."
    )


def _event(kind: str, **fields: Any) -> bytes:
    return write_event({"type": kind, **fields}, kind)


def _check(payload: dict[str, Any]) -> None:
    for name in ("temperature", "top_p"):
        if not is_number(payload.get(name, 0), 0, 1):
            raise RequestError(f"{name}: a number from 0 to 1 is required")
    stops = payload.get("stop_sequences", [])
    if not isinstance(stops, list) or not all(isinstance(word, str) and word.strip() for word in stops):
        raise RequestError("stop_sequences: each stop sequence must contain non-whitespace")


def _schema(payload: dict[str, Any]) -> dict[str, Any] | None:
    config = payload.get("output_config", {})
    if not isinstance(config, dict) or not set(config) <= {"effort", "format", "task_budget"}:
        raise RequestError("output_config: Extra inputs are not permitted")
    if config.get("effort") not in (None, *_EFFORTS):
        raise RequestError("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    match config.get("format"):
        case None:
            return None
        case {"type": "json_schema", "schema": dict(schema), **rest} if not rest:
            _check_closed(schema)
            return schema
    raise RequestError('output_config.format: {"type": "json_schema", "schema": …} is required')


def _check_closed(schema: Any) -> None:
    """Check that all objects of a schema are closed. Raises `RequestError`."""
    if isinstance(schema, list):
        for each in schema:
            _check_closed(each)
    elif isinstance(schema, dict):
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            raise RequestError(
                "output_config.format.schema: For 'object' type, 'additionalProperties' must be "
                "explicitly set to false"
            )
        for each in schema.values():
            _check_closed(each)


def _tools(payload: dict[str, Any]) -> tuple[OfferedTool, ...]:
    """The client's tools. Tools with a dated type are run by Anthropic, so the model calls none of them."""
    tools = payload.get("tools", [])
    if not isinstance(tools, list):
        raise RequestError("tools: Input should be a valid list")
    return tuple(
        _tool(number, tool)
        for number, tool in enumerate(tools)
        if not (isinstance(tool, dict) and _DATED.search(str(tool.get("type"))))
    )


def _tool(number: int, tool: Any) -> OfferedTool:
    match tool:
        case {"type": kind} if kind != "custom":
            raise RequestError(f"tools.{number}: Input tag {kind!r} does not match any of the expected tags")
        case {"name": str(name), "input_schema": dict(schema)} if name and schema.get("type") == "object":
            return OfferedTool(name, schema)
    raise RequestError(f"tools.{number}: a name and an input_schema of type object are required")


def _chosen(tools: tuple[OfferedTool, ...], choice: Any) -> tuple[OfferedTool, ...]:
    """The tools that ``tool_choice`` lets the model call."""
    match choice:
        case None | {"type": "auto"}:
            return tools
        case {"type": "none"}:
            return ()
        case {"type": "any"} if tools:
            return tools
        case {"type": "tool", "name": str(name)} if wanted := named(tools, name):
            return wanted
    raise RequestError(f"tool_choice: one of {', '.join(_CHOICES)} is required, and tools to choose from")
