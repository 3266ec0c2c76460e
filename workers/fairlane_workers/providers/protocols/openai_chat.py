"""OpenAI's chat completions, as spoken by OpenAI and every compatible server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fairlane_workers.providers.answer import (
    Answer,
    UnreadableError,
    as_list,
    as_object,
    parse_object,
    token_count,
)
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.protocols.anthropic_messages import LATE_STATUSES as ANTHROPIC_STATUSES

LATE_STATUSES = {
    **ANTHROPIC_STATUSES,  # gateways pass Anthropic's kinds on
    "context_length_exceeded": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
    "invalid_api_key": 401,
    "model_not_found": 404,
    "insufficient_quota": 429,
    "credit_balance_exhausted": 429,
    "rate_limit_exceeded": 429,
    "resource_exhausted": 429,
    "slow_down": 429,
    "server_error": 500,
    "server_is_overloaded": 503,
    "service_unavailable_error": 503,
}


class OpenAIChat(Dialect):
    """``POST {base_url}/chat/completions``; a stream ends with ``data: [DONE]``."""

    protocol = "openai"
    late_statuses: ClassVar[Mapping[str, int]] = LATE_STATUSES

    def target(self, request: Request) -> str:
        return "/chat/completions"

    def body(self, request: Request) -> dict[str, Any]:
        """Parameters and messages; a stream asks for its usage, unless ``stream_options`` is ``None``."""
        fixed = {"model": request.model, "messages": request.messages, "stream": request.stream}
        body = {**request.params, **fixed}
        options = body.pop("stream_options", {})
        if request.stream and options is not None:
            wanted = {"include_usage": True}
            body["stream_options"] = {**wanted, **options} if isinstance(options, dict) else options
        return body

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        if error := _error_in(document):
            answer.error = error
            return
        _count(document.get("usage"), answer)
        choice = _first_choice(as_list(document.get("choices"), "choices"))
        if choice is None:
            raise UnreadableError("choices: empty")
        message = as_object(choice.get("message"), "choices[0].message")
        _take(message, answer)
        _stop(choice.get("finish_reason"), answer)
        answer.ended = True

    def fold(self, event: StreamEvent, answer: Answer) -> str:
        if event.data == "[DONE]":
            answer.ended = True
            return ""
        document = parse_object(event.data)
        if error := (_error_in(document) or (document if event.name == "error" else None)):
            answer.error = error
            return ""
        if usage := document.get("usage"):
            _count(usage, answer)
        # Chunks without a choice carry the usage, or (Azure) the prompt's filter results.
        choice = _first_choice(as_list(document.get("choices") or [], "choices"))
        if choice is None:
            return ""
        text = _take(as_object(choice.get("delta") or {}, "choices[0].delta"), answer)
        _stop(choice.get("finish_reason"), answer)
        return text


def _error_in(document: Mapping[str, Any]) -> object:
    """An error where an answer should be: under its own key, or (vLLM) as the whole document."""
    return document.get("error") or (document if document.get("object") == "error" else None)


def _first_choice(choices: list[Any]) -> dict[str, Any] | None:
    """The choice of index 0: with ``n > 1`` a stream interleaves all of them."""
    for choice in choices:
        if as_object(choice, "choices[]").get("index", 0) in (0, None):
            found: dict[str, Any] = choice
            return found
    return None


def _take(message: Mapping[str, Any], answer: Answer) -> str:
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        answer.refusal = (answer.refusal or "") + refusal
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return answer.add(content)
    texts = [part.get("text") for part in as_list(content, "content") if isinstance(part, dict)]
    return answer.add("".join(text for text in texts if isinstance(text, str)))


def _stop(reason: object, answer: Answer) -> None:
    answer.finish(reason)
    if reason == "content_filter" and not answer.refusal:
        answer.refusal = "the provider's content filter stopped the answer"


def _count(usage: object, answer: Answer) -> None:
    if isinstance(usage, dict):
        answer.input_tokens = token_count(usage.get("prompt_tokens"))
        answer.output_tokens = token_count(usage.get("completion_tokens"))
        details = usage.get("prompt_tokens_details")
        answer.cached_tokens = (
            token_count(details.get("cached_tokens")) if isinstance(details, dict) else None
        )
