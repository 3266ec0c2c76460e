"""What each protocol's answers look like on the wire, so that one suite covers them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tests.support.scripted_server import event


class Wire(Protocol):
    """One protocol's answers, built by hand."""

    protocol: str
    path: str
    filter_reason: str
    stop_reason: str

    def whole(self, text: str | None, reason: str | None = None) -> dict[str, Any]:
        """A whole answer that used 7 input and 3 output tokens."""
        ...

    def begin(self) -> bytes:
        """A stream's first event."""
        ...

    def piece(self, text: str) -> bytes:
        """An event with text."""
        ...

    def finish(self, reason: str | None = None) -> bytes:
        """The event that says why the text ends, with usage of 7 and 3 tokens."""
        ...

    def end(self) -> bytes:
        """The protocol's end mark."""
        ...

    def error(self, kind: str, message: str = "the provider's words") -> dict[str, Any]:
        """An error of this type."""
        ...


@dataclass(frozen=True)
class OpenAIWire:
    protocol: str = "openai"
    path: str = "/v1/chat/completions"
    filter_reason: str = "content_filter"
    stop_reason: str = "stop"

    def whole(self, text: str | None, reason: str | None = None) -> dict[str, Any]:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": reason or self.stop_reason}
        return {
            "choices": [choice],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, text: str) -> bytes:
        return self._chunk({"content": text})

    def finish(self, reason: str | None = None) -> bytes:
        usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
        return self._chunk({}, reason or self.stop_reason) + event(usage)

    def end(self) -> bytes:
        return event("[DONE]")

    def error(self, kind: str, message: str = "the provider's words") -> dict[str, Any]:
        return {"error": {"message": message, "type": kind, "param": None, "code": kind}}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        return event({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], "usage": None})


@dataclass(frozen=True)
class AnthropicWire:
    protocol: str = "anthropic"
    path: str = "/v1/messages"
    filter_reason: str = "refusal"
    stop_reason: str = "end_turn"

    def whole(self, text: str | None, reason: str | None = None) -> dict[str, Any]:
        return {
            "type": "message",
            "role": "assistant",
            "content": None if text is None else [{"type": "text", "text": text}],
            "stop_reason": reason or self.stop_reason,
            "usage": {"input_tokens": 7, "output_tokens": 3},
        }

    def begin(self) -> bytes:
        message = {"role": "assistant", "content": [], "usage": {"input_tokens": 7, "output_tokens": 1}}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        return self._event({"type": "message_start", "message": message}) + self._event(block)

    def piece(self, text: str) -> bytes:
        delta = {"type": "text_delta", "text": text}
        return self._event({"type": "content_block_delta", "index": 0, "delta": delta})

    def finish(self, reason: str | None = None) -> bytes:
        delta = {"stop_reason": reason or self.stop_reason, "stop_sequence": None}
        return self._event({"type": "content_block_stop", "index": 0}) + self._event(
            {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 3}}
        )

    def end(self) -> bytes:
        return self._event({"type": "message_stop"})

    def error(self, kind: str, message: str = "the provider's words") -> dict[str, Any]:
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}

    def _event(self, data: dict[str, Any]) -> bytes:
        return event(data, data["type"])


WIRES: tuple[Wire, ...] = (OpenAIWire(), AnthropicWire())
