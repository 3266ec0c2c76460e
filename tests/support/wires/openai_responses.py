"""OpenAI's responses on the wire."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.support.scripted_server import Received, event
from tests.support.wires.wire import Asked, Wire


class OpenAIResponsesWire(Wire):
    protocol = "openai_responses"
    filter_reason = "content_filter"
    stop_reason = "completed"
    has_end: ClassVar[bool] = False

    def path(self, stream: bool = False) -> str:
        return "/v1/responses"

    def asked(self, received: Received) -> Asked:
        body = received.json
        messages = [(item["role"], item["content"]) for item in body["input"]]
        return Asked(body["model"], messages, body.get("temperature"), body.get("max_output_tokens"))

    def whole(self, text: str | None, reason: str | None = None) -> dict[str, Any]:
        thought = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
        part = {"type": "output_text", "text": text, "annotations": []}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [part]}
        return self._response([thought] if text is None else [thought, message], reason)

    def begin(self) -> bytes:
        response = {
            "id": "resp_1",
            "object": "response",
            "status": "in_progress",
            "error": None,
            "output": [],
        }
        item = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
        part = {"type": "output_text", "text": "", "annotations": []}
        return (
            self._event({"type": "response.created", "response": response})
            + self._event({"type": "response.output_item.added", "output_index": 0, "item": item})
            + self._event({"type": "response.content_part.added", "item_id": "msg_1", "part": part})
        )

    def piece(self, text: str) -> bytes:
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        return self._event({"type": "response.output_text.delta", **place, "delta": text})

    def finish(self, reason: str | None = None) -> bytes:
        response = self._response([], reason)
        return self._event({"type": f"response.{response['status']}", "response": response})

    def end(self) -> bytes:
        return b""

    def error(self, kind: str, message: str = "the provider's words") -> dict[str, Any]:
        return {"error": {"message": message, "type": kind, "param": None, "code": kind}}

    def late_error(self, kind: str) -> bytes:
        return self._event({"type": "error", "sequence_number": 4, **self.error(kind)})

    def _response(self, output: list[dict[str, Any]], reason: str | None) -> dict[str, Any]:
        whole = reason in (None, self.stop_reason)
        return {
            "id": "resp_1",
            "object": "response",
            "model": "m-1",
            "status": "completed" if whole else "incomplete",
            "error": None,
            "incomplete_details": None if whole else {"reason": reason},
            "output": output,
            "usage": {
                "input_tokens": 7,
                "input_tokens_details": {},
                "output_tokens": 3,
                "output_tokens_details": {"reasoning_tokens": 1},
                "total_tokens": 10,
            },
        }

    def _event(self, data: dict[str, Any]) -> bytes:
        return event(data, data["type"])
