"""Embeddings of OpenAI, Azure and Mistral, as the simulated provider speaks them."""

from collections.abc import Mapping
from typing import Any, ClassVar

from fairlane.evaluators.embeddings import base64_of
from fairlane.lab.simulator.protocols.openai.azure import AzureOpenAI
from fairlane.lab.simulator.protocols.openai.chat import OpenAIChat
from fairlane.lab.simulator.protocols.openai.mistral import MistralChat
from fairlane.lab.simulator.wire.dialect import NO_PATH, Call, Reply, RequestError, Stamp, write_json

_MOST_INPUTS = 2048
_OF_MISTRAL = frozenset({"model", "input", "metadata", "encoding_format", "output_dimension", "output_dtype"})


class OpenAIEmbeddings(OpenAIChat):
    """One vector for each text. A text always gets the same one; texts that share words are similar."""

    paths: ClassVar[tuple[str, ...]] = ("/v1/embeddings",)

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """One text or a list of up to 2048; none may be empty."""
        return read_inputs(payload)

    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        """The vectors in the order of the inputs, as numbers or in base64."""
        return write_json(_document(call, reply))


class AzureEmbeddings(AzureOpenAI):
    """The same for a deployment, or for the v1 API."""

    paths: ClassVar[tuple[str, ...]] = (
        "/openai/deployments/{deployment}/embeddings",
        "/openai/v1/embeddings",
    )

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """See `OpenAIEmbeddings.parse` and `AzureOpenAI.parse`."""
        return read_inputs(self.addressed(payload, path))

    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        """See `OpenAIEmbeddings.completion`."""
        return write_json(_document(call, reply))


class MistralEmbeddings(MistralChat):
    """Mistral's, below ``{url}/mistral``: it counts no output, and has its own form of errors."""

    paths: ClassVar[tuple[str, ...]] = ("/mistral/v1/embeddings",)

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """One text or a list; numbers, not base64, are the answer."""
        return self.checked(payload, _OF_MISTRAL, read_inputs)

    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        """The vectors, with an id and the usage of a chat."""
        usage = {
            "prompt_tokens": call.prompt_tokens,
            "completion_tokens": 0,
            "total_tokens": call.prompt_tokens,
        }
        return write_json({"id": f"embd-{stamp.ordinal}", **_document(call, reply), "usage": usage})


def read_inputs(payload: Any) -> Call:
    """The texts to embed. Raises `RequestError`."""
    if not isinstance(payload, dict) or not isinstance(payload.get("model"), str):
        raise RequestError("model: a model name is required")
    given = payload.get("input")
    inputs = [given] if isinstance(given, str) else given
    if not isinstance(inputs, list) or not 1 <= len(inputs) <= _MOST_INPUTS:
        raise RequestError(f"input: a text, or a list of 1 to {_MOST_INPUTS} of them, is required")
    if not all(isinstance(each, str) and each for each in inputs):
        raise RequestError("input: no text may be empty")
    form = payload.get("encoding_format", "float")
    if form not in ("float", "base64"):
        raise RequestError("encoding_format: float or base64 is required")
    return Call(
        model=payload["model"],
        prompt="\n".join(inputs),
        question=inputs[-1],
        inputs=tuple(inputs),
        base64=form == "base64",
    )


def _document(call: Call, reply: Reply) -> dict[str, Any]:
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64_of(vector) if call.base64 else list(vector),
        }
        for index, vector in enumerate(reply.vectors)
    ]
    usage = {"prompt_tokens": call.prompt_tokens, "total_tokens": call.prompt_tokens}
    return {"object": "list", "data": data, "model": call.model, "usage": usage}
