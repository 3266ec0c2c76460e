"""Anthropic's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fairlane_workers.providers.answer import Answer, as_list, as_object, parse_object, token_count
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.framing.event import StreamEvent

DEFAULT_MAX_TOKENS = 1024
API_VERSION = "2023-06-01"

_SYSTEM_ROLES = ("system", "developer")


LATE_STATUSES = {
    "invalid_request_error": 400,
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
    late_statuses: ClassVar[Mapping[str, int]] = LATE_STATUSES

    def headers(self) -> dict[str, str]:
        return {"anthropic-version": API_VERSION}

    def target(self, request: Request) -> str:
        return "/messages"

    def body(self, request: Request) -> dict[str, Any]:
        """The parameters and messages: system messages become ``system``, ``max_tokens`` defaults to 1024."""
        messages = [message for message in request.messages if message["role"] not in _SYSTEM_ROLES]
        lifted = [message["content"] for message in request.messages if message["role"] in _SYSTEM_ROLES]
        body = {
            "max_tokens": DEFAULT_MAX_TOKENS,
            **request.params,
            "model": request.model,
            "messages": messages,
            "stream": request.stream,
        }
        if lifted:
            body["system"] = _system(request.params.get("system"), "\n\n".join(lifted))
        return body

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        if document.get("type") == "error" or document.get("error"):
            answer.error = document.get("error") or document
            return
        _count(document.get("usage"), answer)
        for block in as_list(document.get("content"), "content"):
            _take_block(as_object(block, "content[]"), answer)
        _stop(document.get("stop_reason"), answer)
        answer.ended = True

    def fold(self, event: StreamEvent, answer: Answer) -> str:
        document = parse_object(event.data)
        match document.get("type"):
            case "content_block_delta":
                delta = as_object(document.get("delta"), "delta")
                if delta.get("type") == "text_delta" and isinstance(text := delta.get("text"), str):
                    return answer.add(text)
            case "content_block_start":
                return _take_block(as_object(document.get("content_block"), "content_block"), answer)
            case "message_start":
                _count(as_object(document.get("message"), "message").get("usage"), answer)
            case "message_delta":
                _count(document.get("usage"), answer)
                _stop(as_object(document.get("delta"), "delta").get("stop_reason"), answer)
            case "message_stop":
                answer.ended = True
            case "error":
                answer.error = document.get("error") or document
            case _:  # ping, content_block_stop, and what the protocol may gain: to be ignored, it says
                pass
        return ""


def _system(given: object, lifted: str) -> object:
    """What the parameters already say to the model, followed by what the messages say."""
    if isinstance(given, list):
        return [*given, {"type": "text", "text": lifted}]
    return f"{given}\n\n{lifted}" if given else lifted


def _take_block(block: Mapping[str, Any], answer: Answer) -> str:
    text = block.get("text")
    return answer.add(text) if block.get("type") == "text" and isinstance(text, str) else ""


def _stop(reason: object, answer: Answer) -> None:
    answer.finish(reason)
    if reason == "refusal":
        answer.refusal = "the provider's safety filter stopped the answer (stop_reason refusal)"


def _count(usage: object, answer: Answer) -> None:
    """Note the counts given; a stream gives the input at its start and the output, cumulative, at its end.

    Anthropic counts apart what of the prompt was written to the cache, and what was read from it; `Usage` has
    all of it as input.
    """
    if not isinstance(usage, dict):
        return
    given = token_count(usage.get("input_tokens"))
    if given is not None:
        written = token_count(usage.get("cache_creation_input_tokens")) or 0
        answer.cached_tokens = token_count(usage.get("cache_read_input_tokens"))
        answer.input_tokens = given + written + (answer.cached_tokens or 0)
    output = token_count(usage.get("output_tokens"))
    if output is not None:
        answer.output_tokens = output
