"""Gemini's ``generateContent``, as the simulated provider speaks it: at Google AI Studio and on Vertex AI."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fairlane.lab.simulator.protocols.google.gemini_errors import AI_STUDIO, error_document, status_of
from fairlane.lab.simulator.protocols.google.gemini_request import generation_parameters, read_call
from fairlane.lab.simulator.wire.dialect import (
    NO_PATH,
    Call,
    Dialect,
    Problem,
    Reply,
    RetryAfterForm,
    Stamp,
    credential,
    write_json,
)

_METHODS = "{method:generateContent|streamGenerateContent}"
VERTEX = "/{version:v1|v1beta1}/projects/{project}/locations/{location}"


class Gemini(Dialect):
    """``generateContent`` and ``streamGenerateContent?alt=sse``; a stream ends without a closing event.

    Only the bodies of rejections report limits.
    """

    paths: ClassVar[tuple[str, ...]] = (
        "/{version:v1|v1beta}/models/{model}:" + _METHODS,
        "/{version:v1|v1beta}/tunedModels/{model}:" + _METHODS,
    )
    retry_after_forms: tuple[RetryAfterForm, ...] = ()
    service: ClassVar[str] = AI_STUDIO

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """The path names the model and the method."""
        return read_call(payload, path)

    def parameters(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Dialect.parameters`: they are in ``generationConfig``."""
        return generation_parameters(payload)

    def unsupported(self, name: str, value: Any) -> Problem:
        """See `Dialect.unsupported`; both penalties are one to Google."""
        if name == "response_format":
            return Problem(400, "JSON mode is not enabled for this model")
        word = "Penalty" if name.endswith("_penalty") else f"`{name}`"
        return Problem(400, f"{word} is not enabled for this model")

    def presented_key(self, headers: Mapping[str, str]) -> str | None:
        """The key of ``x-goog-api-key``."""
        return headers.get("x-goog-api-key")

    def status(self, problem: Problem) -> int:
        """See `Dialect.status`."""
        return status_of(problem, self.service)

    def error(self, problem: Problem) -> bytes:
        """See `Dialect.error`."""
        return write_json(error_document(problem, self.service))

    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        """See `Dialect.completion`."""
        return write_json(_answer(call, stamp, _parts(reply), reply))

    def frames(self, call: Call, reply: Reply, pieces: Sequence[str], stamp: Stamp) -> list[bytes]:
        """One event per piece; the last one has the finish reason and the tokens."""
        *early, last = ([{"text": piece}] for piece in pieces)
        answers = [_answer(call, stamp, parts) for parts in early]
        answers.append(_answer(call, stamp, last if reply.tool is None else _parts(reply), reply))
        return [b"data: " + write_json(answer) + b"\r\n\r\n" for answer in answers]

    def stream_error(self, problem: Problem) -> bytes:
        """The bare error on several lines, not an event."""
        return json.dumps(error_document(problem, self.service), indent=2).encode() + b"\n"


class Vertex(Gemini):
    """The same protocol below a project and a location, with a bearer token."""

    paths: ClassVar[tuple[str, ...]] = (
        VERTEX + "/publishers/google/models/{model}:" + _METHODS,
        VERTEX + "/endpoints/{model}:" + _METHODS,
    )
    service: ClassVar[str] = "aiplatform.googleapis.com"

    def presented_key(self, headers: Mapping[str, str]) -> str | None:
        """The bearer token."""
        return credential(headers)


def _parts(reply: Reply) -> list[dict[str, Any]]:
    if reply.tool is None:
        return [{"text": reply.text}]
    return [{"functionCall": {"name": reply.tool.name, "args": json.loads(reply.tool.arguments)}}]


def _finish(reply: Reply) -> str:
    if reply.refused:
        return "SAFETY"
    return "MAX_TOKENS" if reply.truncated else "STOP"


def _answer(
    call: Call, stamp: Stamp, parts: list[dict[str, Any]], reply: Reply | None = None
) -> dict[str, Any]:
    """A response: with ``reply`` the whole one or a stream's last, else an earlier one of a stream."""
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    usage = {"promptTokenCount": call.prompt_tokens, "totalTokenCount": call.prompt_tokens}
    if reply is not None:
        candidate["finishReason"] = _finish(reply)
        usage["candidatesTokenCount"] = reply.completion_tokens
        usage["totalTokenCount"] += reply.completion_tokens
    details = [{"modality": "TEXT", "tokenCount": call.prompt_tokens}]
    return {
        "candidates": [candidate],
        "usageMetadata": {**usage, "promptTokensDetails": details},
        "modelVersion": call.model,
        "responseId": f"resp-{stamp.ordinal}",
    }
