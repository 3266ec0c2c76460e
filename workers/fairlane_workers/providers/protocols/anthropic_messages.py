"""The protocol "anthropic": Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from fairlane.config.connections.connection import Connection
from fairlane_workers.providers.answers.answer import (
    Answer,
    ToolCall,
    ToolDraft,
    as_list,
    as_object,
    event_object,
    sum_tokens,
    within,
)
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.protocols.anthropic_request import build_body

API_VERSION = "2023-06-01"

_TEXT_AND_THINKING = ("text", "thinking", "redacted_thinking")
LATE_STATUSES = {
    "invalid_request_error": 400,
    "content_filter": 400,  # of gateways; Anthropic's own is a stop reason
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class AnthropicMessages(Dialect):
    """``POST {base_url}/messages``; a stream ends with a ``message_stop`` event."""

    protocol = "anthropic"
    path = "/messages"
    late_statuses: ClassVar[Mapping[str, int]] = LATE_STATUSES

    def __init__(self, api_version: str | None = None) -> None:
        self._version = api_version or API_VERSION

    @classmethod
    def of(cls, connection: Connection) -> AnthropicMessages:
        """See `Dialect.of`."""
        return cls(connection.api_version)

    def headers(self) -> dict[str, str]:
        """See `Dialect.headers`."""
        return {"anthropic-version": self._version}

    def body(self, request: Request) -> dict[str, Any]:
        """See `Dialect.body`."""
        return build_body(request)

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        """See `Dialect.read`."""
        if document.get("type") == "error" or document.get("error"):
            answer.error = document.get("error") or document
            return
        answer.name_model(document.get("model"))
        _count(document.get("usage"), answer)
        for block in as_list(document.get("content"), "content"):
            block = as_object(block, "content[]")
            if block.get("type") == "tool_use":
                answer.tools.append(ToolCall(_text(block.get("name")), _arguments(block)))
            elif (text := _text_of(block, answer)) is not None:
                answer.add(text)
        _stop(document, answer)
        answer.ended = True

    def fold(self, event: StreamEvent, answer: Answer) -> str:
        """See `Dialect.fold`."""
        document = event_object(event.data, answer)
        if document is None:
            return ""
        match document.get("type"):
            case "content_block_delta":
                return _take_delta(document, answer)
            case "content_block_start":
                block = as_object(document.get("content_block"), "content_block")
                if block.get("type") == "tool_use":
                    answer.drafts.append(_draft(document.get("index"), block))
                elif (text := _text_of(block, answer)) is not None:
                    answer.begin_part()
                    return answer.snapshot(text)  # pieces may repeat it (MiniMax) or go on after it
            case "message_start":
                message = as_object(document.get("message"), "message")
                answer.name_model(message.get("model"))
                _count(message.get("usage"), answer)
            case "message_delta":
                _count(document.get("usage"), answer)
                _stop(as_object(document.get("delta"), "delta"), answer)
            case "message_stop":
                answer.take_drafts()
                answer.ended = True
            case "error":
                answer.fail(document.get("error") or document)
            case _:  # ping, content_block_stop, and future events: the documentation says to ignore them
                pass
        return ""


def _text_of(block: Mapping[str, Any], answer: Answer) -> str | None:
    """The text of a block; ``None`` for thinking, and for calls and results of Anthropic's own tools."""
    kind, text = block.get("type"), block.get("text")
    answer.thought = answer.thought or kind == "thinking"
    if kind not in _TEXT_AND_THINKING:
        answer.hold(kind, trace=True)
    return text if kind == "text" and isinstance(text, str) else None


def _take_delta(document: Mapping[str, Any], answer: Answer) -> str:
    delta = as_object(document.get("delta"), "delta")
    match delta.get("type"), delta:
        case "text_delta", {"text": str(text)}:
            return answer.add(text)
        case "input_json_delta", {"partial_json": str(piece)}:
            index = document.get("index")
            draft = next((each for each in reversed(answer.drafts) if each.index == index), None)
            if draft is not None:  # without one, the tool runs at the provider
                draft.pieces.append(piece)
    return ""


def _draft(index: object, block: Mapping[str, Any]) -> ToolDraft:
    arguments = _arguments(block) if block.get("input") else ""
    return ToolDraft(
        index if isinstance(index, int) else None, name=_text(block.get("name")), given=arguments
    )


def _arguments(block: Mapping[str, Any]) -> str:
    return json.dumps(block.get("input") or {}, ensure_ascii=False)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _stop(ending: Mapping[str, Any], answer: Answer) -> None:
    """Note the stop reason. ``max_tokens``, ``model_context_window_exceeded`` and ``pause_turn`` are answers,
    too, cut short: the finish reason shows it.
    """
    reason = ending.get("stop_reason")
    answer.finish(reason)
    if answer.finish_reason is not None:
        answer.take_drafts()
        answer.closed = True
    if reason == "refusal":
        words = (within(ending, "stop_details", name) for name in ("category", "explanation"))
        why = [word for word in words if isinstance(word, str)]
        answer.refusal = ": ".join(
            ["the provider's safety filter stopped the answer (stop_reason refusal)", *why]
        )


def _count(usage: object, answer: Answer) -> None:
    """Note the token counts; a stream has the input at its start and the cumulative output at its end.

    Anthropic counts apart what of the prompt was written to the cache, and what was read from it; `Usage` has
    all of it as input. Its totals lack the calls that compacted the context.
    """
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    steps = within(usage, "iterations")
    within_it = steps if isinstance(steps, list) else []
    parts = [usage, *(step for step in within_it if within(step, "type") == "compaction")]
    answer.count_beside_cache(
        {name: sum_tokens(*(within(part, name) for part in parts)) for name in names}, *names
    )
