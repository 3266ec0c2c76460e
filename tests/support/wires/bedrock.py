"""Amazon Bedrock's Converse on the wire."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any
from urllib.parse import unquote

from tests.support.scripted_server import Received
from tests.support.wires.wire import Asked, Wire


def event_frame(kind: str, payload: dict[str, Any]) -> bytes:
    """An event of the stream, with its type and its JSON."""
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, json.dumps(payload).encode())


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One message: lengths, their CRC-32, headers (type 7 is text), payload, the CRC-32 of it all."""
    block = b""
    for name, value in headers.items():
        block += struct.pack(
            f"!B{len(name)}sBH{len(value)}s", len(name), name.encode(), 7, len(value), value.encode()
        )
    lengths = struct.pack("!II", 16 + len(block) + len(payload), len(block))
    message = lengths + struct.pack("!I", zlib.crc32(lengths)) + block + payload
    return message + struct.pack("!I", zlib.crc32(message))


_LENGTHS = struct.pack("!II", 1 << 20, 0)


class BedrockWire(Wire):
    protocol = "bedrock"
    base = ""
    filter_reason = "guardrail_intervened"
    answers_as = None
    stop_reason = "end_turn"
    stream_type = "application/vnd.amazon.eventstream"
    event_end = b""
    broken = frame({":message-type": "event", ":event-type": "contentBlockDelta"}, b"{oops")
    comment = event_frame("initial-response", {})
    half_event = _LENGTHS + struct.pack("!I", zlib.crc32(_LENGTHS))
    overloaded = "ServiceUnavailableException"
    overloaded_status = 503

    def settings(self, url: str) -> dict[str, Any]:
        return {**super().settings(url), "auth": "bearer"}

    def path(self, stream: bool = False) -> str:
        return "/model/m-1/converse-stream" if stream else "/model/m-1/converse"

    def asked(self, received: Received) -> Asked:
        body = received.json
        messages = [
            (message["role"], "".join(block["text"] for block in message["content"]))
            for message in body["messages"]
        ]
        inference = body.get("inferenceConfig", {})
        model = unquote(received.path.split("/")[2])
        return Asked(model, messages, inference.get("temperature"), inference.get("maxTokens"))

    def whole(self, text: str | None, reason: str | None = None) -> dict[str, Any]:
        content = [] if text is None else [{"text": text}]
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": reason or self.stop_reason,
            "usage": {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10},
            "metrics": {"latencyMs": 551},
        }

    def begin(self) -> bytes:
        return event_frame("messageStart", {"p": "abcdefghij", "role": "assistant"})

    def piece(self, text: str) -> bytes:
        return event_frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": text}, "p": "abc"})

    def finish(self, reason: str | None = None) -> bytes:
        stopped = {"p": "ab", "stopReason": reason or self.stop_reason}
        return event_frame("contentBlockStop", {"contentBlockIndex": 0}) + event_frame("messageStop", stopped)

    def end(self) -> bytes:
        usage = {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10}
        return event_frame("metadata", {"metrics": {"latencyMs": 551}, "usage": usage})

    def error(self, kind: str, message: str = "the provider's words") -> dict[str, Any]:
        return {"__type": f"com.amazon.coral.service#{kind}", "message": message}

    def late_error(self, kind: str) -> bytes:
        name = kind[0].lower() + kind[1:]
        headers = {":message-type": "exception", ":exception-type": name, ":content-type": "application/json"}
        return frame(headers, b'{"message": "the provider\'s words"}')
