"""Anthropic's messages on the wire."""

from __future__ import annotations

from typing import Any

from tests.support.scripted_server import Received, event
from tests.support.wires.wire import Asked, Wire


class AnthropicMessagesWire(Wire):
    protocol = "anthropic"
    filter_reason = "refusal"
    stop_reason = "end_turn"
    key_header = "x-api-key"

    def path(self, stream: bool = False) -> str:
        return "/v1/messages"

    def asked(self, received: Received) -> Asked:
        body = received.json
        messages = [(message["role"], message["content"]) for message in body["messages"]]
        return Asked(body["model"], messages, body.get("temperature"), body.get("max_tokens"))

    def whole(self, text: str | None, reason: str | None = None) -> dict[str, Any]:
        return {
            "type": "message",
            "model": "m-1",
            "role": "assistant",
            "content": [] if text is None else [{"type": "text", "text": text}],
            "stop_reason": reason or self.stop_reason,
            "usage": {"input_tokens": 7, "output_tokens": 3},
        }

    def begin(self) -> bytes:
        usage = {"input_tokens": 7, "output_tokens": 1}
        message = {"role": "assistant", "model": "m-1", "content": [], "usage": usage}
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
