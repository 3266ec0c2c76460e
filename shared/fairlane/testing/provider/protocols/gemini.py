"""Gemini's ``generateContent``, as the simulated provider speaks it: at Google AI Studio and on Vertex AI."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fairlane.testing.provider.dialect import (
    NO_PATH,
    Call,
    Dialect,
    Problem,
    Reply,
    RetryAfterForm,
    Stamp,
    write_json,
)
from fairlane.testing.provider.limits import Axis, Level
from fairlane.testing.provider.protocols.gemini_errors import AI_STUDIO, error_document, status_of
from fairlane.testing.provider.protocols.gemini_request import read_call

_METHODS = "{method:generateContent|streamGenerateContent}"
_VERTEX = "/{version:v1|v1beta1}/projects/{project}/locations/{location}"


class Gemini(Dialect):
    """``generateContent`` and ``streamGenerateContent?alt=sse``, whose events end with the connection's body.

    Limits are told in the bodies of refusals alone.
    """

    paths: ClassVar[tuple[str, ...]] = (
        "/{version:v1|v1beta}/models/{model}:" + _METHODS,
        "/{version:v1|v1beta}/tunedModels/{model}:" + _METHODS,
    )
    retry_after_forms: tuple[RetryAfterForm, ...] = ()
    service: ClassVar[str] = AI_STUDIO

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        return read_call(payload, path)

    def presented_key(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-goog-api-key")

    def status(self, problem: Problem) -> int:
        return status_of(problem, self.service)

    def error(self, problem: Problem) -> bytes:
        return write_json(error_document(problem, self.service))

    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        return write_json(_answer(call, stamp, _parts(reply), reply))

    def frames(self, call: Call, reply: Reply, pieces: Sequence[str], stamp: Stamp) -> list[bytes]:
        *early, last = ([{"text": piece}] for piece in pieces)
        answers = [_answer(call, stamp, parts) for parts in early]
        answers.append(_answer(call, stamp, last if reply.tool is None else _parts(reply), reply))
        return [b"data: " + write_json(answer) + b"\r\n\r\n" for answer in answers]

    def stream_error(self, problem: Problem) -> bytes:
        """Not an event: the error stands bare in the stream, over several lines."""
        return json.dumps(error_document(problem, self.service), indent=2).encode() + b"\n"

    def limit_headers(self, levels: Mapping[Axis, Level], now_ms: int) -> dict[str, str]:
        return {}


class Vertex(Gemini):
    """The same below a project and a location, for a bearer's token."""

    paths: ClassVar[tuple[str, ...]] = (
        _VERTEX + "/publishers/google/models/{model}:" + _METHODS,
        _VERTEX + "/endpoints/{model}:" + _METHODS,
    )
    service: ClassVar[str] = "aiplatform.googleapis.com"

    def presented_key(self, headers: Mapping[str, str]) -> str | None:
        scheme, _, key = headers.get("Authorization", "").partition(" ")
        return key.strip() if scheme.lower() == "bearer" else None


def _parts(reply: Reply) -> list[dict[str, Any]]:
    if reply.tool is None:
        return [{"text": reply.text}]
    return [{"functionCall": {"name": reply.tool.name, "args": json.loads(reply.tool.arguments)}}]


def _answer(
    call: Call, stamp: Stamp, parts: list[dict[str, Any]], reply: Reply | None = None
) -> dict[str, Any]:
    """A response; the whole one or a stream's last if ``reply`` is given."""
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    usage = {"promptTokenCount": call.prompt_tokens, "totalTokenCount": call.prompt_tokens}
    if reply is not None:
        candidate["finishReason"] = "MAX_TOKENS" if reply.truncated else "STOP"
        usage["candidatesTokenCount"] = reply.completion_tokens
        usage["totalTokenCount"] += reply.completion_tokens
    details = [{"modality": "TEXT", "tokenCount": call.prompt_tokens}]
    return {
        "candidates": [candidate],
        "usageMetadata": {**usage, "promptTokensDetails": details},
        "modelVersion": call.model,
        "responseId": f"resp-{stamp.ordinal}",
    }
