"""Ollama's own chat API on the wire."""

from __future__ import annotations

import json
from typing import Any

from fairlane.model.outcome import ServerError
from tests.support.scripted_server import Received
from tests.support.wires.wire import Asked, Wire


class OllamaWire(Wire):
    protocol = "ollama"
    late_overload = ServerError
    base = ""
    filter_reason = None
    stop_reason = "stop"
    stream_type = "application/x-ndjson"
    has_end = False
    event_end = b"\n"
    comment = b"\n"
    broken = b"{oops\n"
    distinguishes_quota = False
    overloaded_status = 500  # an error in a 200 answer has no type

    def path(self, stream: bool = False) -> str:
        return "/api/chat"

    def asked(self, received: Received) -> Asked:
        body = received.json
        messages = [(message["role"], message["content"]) for message in body["messages"]]
        options = body.get("options", {})
        return Asked(body["model"], messages, options.get("temperature"), options.get("num_predict"))

    def whole(self, text: str | None, reason: str | None = None) -> dict[str, Any]:
        return {**self._said(text), **self._ending(reason)}

    def begin(self) -> bytes:
        return self.piece("")

    def piece(self, text: str) -> bytes:
        return json.dumps({**self._said(text), "done": False}).encode() + b"\n"

    def finish(self, reason: str | None = None) -> bytes:
        return json.dumps({**self._said(""), **self._ending(reason)}).encode() + b"\n"

    def end(self) -> bytes:
        return b""

    def without_text(self) -> bytes:
        return json.dumps({**self._said(None), **self._ending(None)}).encode() + b"\n"

    def error(self, kind: str, message: str = "the provider's words") -> dict[str, Any]:
        return {"error": message}

    def late_error(self, kind: str) -> bytes:
        return json.dumps(self.error(kind)).encode() + b"\n"

    def _said(self, text: str | None) -> dict[str, Any]:
        message = {"role": "assistant"} | ({} if text is None else {"content": text})
        return {"model": "m-1", "created_at": "2025-10-26T17:15:24.097767Z", "message": message}

    def _ending(self, reason: str | None) -> dict[str, Any]:
        counts = {"prompt_eval_count": 7, "eval_count": 3, "total_duration": 174560334}
        return {"done": True, "done_reason": reason or self.stop_reason, **counts}
