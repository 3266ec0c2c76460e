"""Replicate's predictions on the wire. They do not stream; the client polls them until they end."""

from __future__ import annotations

from typing import Any

from tests.support.scripted_server import Received
from tests.support.wires.wire import Asked, Wire


class ReplicateWire(Wire):
    protocol = "replicate"
    filter_reason = "The input or output was flagged as sensitive. Please try again. (E005)"
    answers_as = None
    stop_reason = "succeeded"
    streams = False
    overloaded = "503"
    overloaded_status = 503

    def path(self, stream: bool = False) -> str:
        return "/v1/predictions"

    def asked(self, received: Received) -> Asked:
        given = received.json["input"]
        said = [("user", given["prompt"])]
        return Asked(received.json["version"], said, given.get("temperature"), given.get("max_tokens"))

    def whole(self, text: str | None, reason: str | None = None) -> dict[str, Any]:
        if reason is not None:
            return self.prediction("failed", error=reason)
        output = None if text is None else [text[:1], text[1:]]
        metrics = {"predict_time": 0.4, "input_token_count": 7, "output_token_count": 3}
        return self.prediction("succeeded", output=output, metrics=metrics)

    def prediction(self, status: str, **fields: Any) -> dict[str, Any]:
        """A prediction as Replicate's API returns it."""
        shown = {"id": "gm3qorzdhgbfurvjtvhg6dckhu", "version": "m-1", "input": {"prompt": "hi"}, "logs": ""}
        return {**shown, "status": status, "output": None, "error": None, "metrics": {}, **fields}

    def begin(self) -> bytes:
        return b""

    def piece(self, text: str) -> bytes:
        return text.encode(errors="replace")

    def finish(self, reason: str | None = None) -> bytes:
        return b""

    def end(self) -> bytes:
        return b""

    def error(self, kind: str, message: str = "the provider's words") -> dict[str, Any]:
        status = {"status": int(kind)} if kind.isdigit() else {}
        return {"title": "Something is the matter", "detail": message, **status}
