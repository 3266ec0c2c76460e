"""Gemini's ``generateContent`` on the wire, at Google AI Studio and on Vertex AI."""

from __future__ import annotations

import json
from typing import Any

from tests.support.scripted_server import Received, event
from tests.support.wires.wire import Asked, Wire

_CODES = {"UNAVAILABLE": 503}


class GeminiWire(Wire):
    protocol = "gemini"
    base = "/v1beta"
    filter_reason = "SAFETY"
    stop_reason = "STOP"
    key_header = "x-goog-api-key"
    has_end = False
    has_end_event = False
    overloaded = "UNAVAILABLE"
    overloaded_status = 503
    resource = "/v1beta/models/m-1"

    def path(self, stream: bool = False) -> str:
        return self.resource + (":streamGenerateContent?alt=sse" if stream else ":generateContent")

    def asked(self, received: Received) -> Asked:
        body, model = received.json, received.path.rpartition("/")[2].partition(":")[0]
        messages = [(each["role"], each["parts"][0]["text"]) for each in body["contents"]]
        generation = body.get("generationConfig", {})
        return Asked(model, messages, generation.get("temperature"), generation.get("maxOutputTokens"))

    def whole(self, text: str | None, reason: str | None = None) -> dict[str, Any]:
        return self._answer(text, reason or self.stop_reason)

    def begin(self) -> bytes:
        return event({"usageMetadata": {"promptTokenCount": 7, "totalTokenCount": 7}, "modelVersion": "m-1"})

    def piece(self, text: str) -> bytes:
        return event(self._answer(text))

    def finish(self, reason: str | None = None) -> bytes:
        return event(self._answer(None, reason or self.stop_reason))

    def end(self) -> bytes:
        return b""

    def error(self, kind: str, message: str = "the provider's words") -> dict[str, Any]:
        return {"error": {"code": _CODES.get(kind, 400), "message": message, "status": kind}}

    def late_error(self, kind: str) -> bytes:
        return json.dumps(self.error(kind), indent=2).encode() + b"\n"

    def _answer(self, text: str | None, reason: str | None = None) -> dict[str, Any]:
        content = {"role": "model"} if text is None else {"role": "model", "parts": [{"text": text}]}
        candidate: dict[str, Any] = {"content": content, "index": 0}
        usage = {"promptTokenCount": 7, "totalTokenCount": 7}
        if reason is not None:
            candidate["finishReason"] = reason
            usage = {"promptTokenCount": 7, "candidatesTokenCount": 2, "thoughtsTokenCount": 1}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m-1"}


class VertexWire(GeminiWire):
    protocol = "vertex"
    base = "/v1/projects/p-1/locations/us-central1"
    key_header = "authorization"
    resource = "/v1/projects/p-1/locations/us-central1/publishers/google/models/m-1"

    def settings(self, url: str) -> dict[str, Any]:
        return {**super().settings(url), "auth": "bearer"}
