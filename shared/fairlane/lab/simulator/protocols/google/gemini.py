"""Gemini's ``generateContent``, as the simulated provider speaks it: at Google AI Studio and on Vertex AI."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fairlane.lab.simulator.limits.admission import Axis
from fairlane.lab.simulator.protocols.google.gemini_request import (
    content_text,
    generation_parameters,
    read_call,
)
from fairlane.lab.simulator.wire.dialect import (
    NO_PATH,
    Call,
    Dialect,
    Exceeded,
    Problem,
    Reply,
    RequestError,
    RetryAfterForm,
    Stamp,
    credential,
    write_json,
)

_METHODS = "{method:generateContent|streamGenerateContent}"
VERTEX = "/{version:v1|v1beta1}/projects/{project}/locations/{location}"

AI_STUDIO = "generativelanguage.googleapis.com"


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
        """Google's status: never 529; 402 without credit; at AI Studio 400 for a wrong key."""
        if problem.code == "quota":
            return 402
        if problem.status == 401 and self.service == AI_STUDIO:
            return 400
        return 503 if problem.status == 529 else problem.status

    def error_document(self, problem: Problem) -> dict[str, Any]:
        """The body of an error.

        AI Studio names the exceeded quota, its value and the delay before a retry. Vertex AI reports that its
        shared capacity is exhausted, and the delay if it is configured to.
        """
        status, service = self.status(problem), self.service
        error: dict[str, Any] = {
            "code": status,
            "message": _message(problem, service),
            "status": _OF_STATUS.get(status, "INTERNAL"),
        }
        details = []
        if problem.exceeded is not None and problem.exceeded.axis in _QUOTAS and service == AI_STUDIO:
            details.append(_quota_failure(problem.exceeded))
        if problem.retry_after_ms is not None:
            seconds = -(-problem.retry_after_ms // 1000)
            delay = DAYS_RETRY_DELAY if problem.code == "day" else f"{seconds}s"
            details.append({"@type": f"{_PREFIX}RetryInfo", "retryDelay": delay})
        if problem.status == 401 and service == AI_STUDIO:
            reason = {
                "reason": "API_KEY_INVALID",
                "domain": "googleapis.com",
                "metadata": {"service": service},
            }
            details.append({"@type": f"{_PREFIX}ErrorInfo", **reason})
        if details:
            error["details"] = details
        return {"error": error}

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
        return json.dumps(self.error_document(problem), indent=2).encode() + b"\n"


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


_OF_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "RESOURCE_EXHAUSTED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_PREFIX = "type.googleapis.com/google.rpc."
_QUOTAS: dict[Axis, tuple[str, str]] = {
    "requests": ("GenerateRequestsPerMinutePerProjectPerModel", "generate_content_requests"),
    "tokens": ("GenerateContentInputTokensPerModelPerMinute", "generate_content_input_token_count"),
    "input": ("GenerateContentInputTokensPerModelPerMinute", "generate_content_input_token_count"),
    "output": ("GenerateContentOutputTokensPerModelPerMinute", "generate_content_output_token_count"),
    "day": ("GenerateRequestsPerDayPerProjectPerModel", "generate_content_requests"),
}
DAYS_RETRY_DELAY = "22s"
"""The delay that Google reports when a day's quota is used up, although it renews hours later."""


def _message(problem: Problem, service: str) -> str:
    if problem.status == 529:
        return "The model is overloaded. Please try again later."
    if problem.status == 401 and service == AI_STUDIO:
        return "API key not valid. Please pass a valid API key."
    if problem.exceeded is not None:
        return "You exceeded your current quota, please check your plan and billing details."
    if problem.status == 429 and problem.code != "quota":
        return "Resource has been exhausted (e.g. check quota)."
    return problem.message


def _quota_failure(exceeded: Exceeded) -> dict[str, Any]:
    quota, metric = _QUOTAS[exceeded.axis]
    violation = {
        "quotaMetric": f"{AI_STUDIO}/{metric}",
        "quotaId": quota,
        "quotaDimensions": {"location": "global", "model": exceeded.model},
        "quotaValue": str(exceeded.limit),
    }
    return {"@type": f"{_PREFIX}QuotaFailure", "violations": [violation]}


_MOST_REQUESTS = 100


class GeminiEmbeddings(Gemini):
    """``embedContent`` for one text, ``batchEmbedContents`` for up to 100. An answer counts no tokens."""

    paths: ClassVar[tuple[str, ...]] = (
        "/{version:v1|v1beta}/models/{model}:{method:embedContent|batchEmbedContents}",
    )

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """The path names the model; each request of a batch must name the same one."""
        if not isinstance(payload, dict):
            raise RequestError("Invalid JSON payload received. The body is no object.")
        batch = path.get("method") == "batchEmbedContents"
        requests = payload.get("requests") if batch else [payload]
        if not isinstance(requests, list) or not 1 <= len(requests) <= _MOST_REQUESTS:
            raise RequestError(f"* BatchEmbedContentsRequest.requests: 1 to {_MOST_REQUESTS} are required")
        inputs = tuple(_text(number, each, path["model"], batch) for number, each in enumerate(requests))
        return Call(
            model=path["model"],
            prompt="\n".join(inputs),
            question=inputs[-1],
            include_usage=batch,
            inputs=inputs,
        )

    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        """One embedding, or those of a batch in the order of its requests."""
        embeddings = [{"values": list(vector)} for vector in reply.vectors]
        return write_json({"embeddings": embeddings} if call.include_usage else {"embedding": embeddings[0]})


def _text(number: int, request: Any, model: str, batch: bool) -> str:
    if not isinstance(request, dict):
        raise RequestError(f"Invalid value at 'requests[{number}]': an object is required")
    if batch and request.get("model") != f"models/{model}":
        raise RequestError(
            f"* BatchEmbedContentsRequest.requests[{number}].model: models/{model} is required"
        )
    text = content_text("content", request.get("content"))
    if not text:
        raise RequestError("* EmbedContentRequest.content: contents is empty")
    return text
