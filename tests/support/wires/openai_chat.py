"""OpenAI's chat completions on the wire."""

from __future__ import annotations

from typing import Any

from tests.support.scripted_server import Received, event
from tests.support.wires.wire import Asked, Wire


class OpenAIChatWire(Wire):
    protocol = "openai"
    filter_reason = "content_filter"
    stop_reason = "stop"

    def path(self, stream: bool = False) -> str:
        return "/v1/chat/completions"

    def asked(self, received: Received) -> Asked:
        body = received.json
        messages = [(message["role"], message["content"]) for message in body["messages"]]
        return Asked(body["model"], messages, body.get("temperature"), body.get("max_tokens"))

    def whole(self, text: str | None, reason: str | None = None) -> dict[str, Any]:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": reason or self.stop_reason}
        return {
            "model": "m-1",
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
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return event({"model": "m-1", "choices": [choice], "usage": None})
