"""Gemini's embeddings, as the simulated provider speaks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fairlane.lab.simulator.protocols.google.gemini import Gemini
from fairlane.lab.simulator.protocols.google.gemini_request import content_text
from fairlane.lab.simulator.wire.dialect import NO_PATH, Call, Reply, RequestError, Stamp, write_json

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
            max_tokens=None,
            stream=False,
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
