"""Embeddings of the protocol "openai": of OpenAI and compatible servers."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlane.evaluators.embeddings import vector_of
from fairlane_workers.providers.answers.answer import (
    Answer,
    UnreadableError,
    as_list,
    as_object,
    packed,
)
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect

UNPOOLED = (
    "the answer holds a vector for each token, and none of the whole text: start the server with pooling "
    "(llama.cpp: --pooling mean)"
)


class OpenAIEmbeddings(Dialect):
    """``POST {base_url}/embeddings``. The answer's text has the form of `fairlane.evaluators.embeddings`."""

    protocol = "openai"
    path = "/embeddings"
    streams = False

    def body(self, request: Request) -> dict[str, Any]:
        """See `Dialect.body`."""
        return {**request.params, "model": request.model, "input": list(request.inputs or ())}

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        """Read vectors in the order of the texts; servers send numbers, or base64 on request."""
        if error := document.get("error") or (document if document.get("object") == "error" else None):
            answer.error = error
            return
        answer.name_model(document.get("model"))
        usage = document.get("usage")
        if isinstance(usage, dict):
            answer.count(0, usage.get("prompt_tokens"))
        listed = [as_object(each, "data[]") for each in as_list(document.get("data"), "data")]
        if all(type(each.get("index")) is int for each in listed):
            listed.sort(key=lambda each: int(each["index"]))
        vectors = [_unnested(each.get("embedding")) for each in listed]
        if any(map(_is_nested, vectors)):
            answer.refusal = UNPOOLED
        else:
            answer.add(packed(_vector(number, vector) for number, vector in enumerate(vectors)))
        answer.ended = True


def _is_nested(vector: object) -> bool:
    return isinstance(vector, list) and bool(vector) and all(isinstance(each, list) for each in vector)


def _unnested(vector: object) -> object:
    """A vector that is the only one in a list, as llama.cpp and its Python server send it."""
    while isinstance(vector, list) and len(vector) == 1 and isinstance(vector[0], list | str):
        vector = vector[0]
    return vector


def _vector(number: int, vector: object) -> Sequence[float]:
    if isinstance(vector, str):
        try:
            return vector_of(vector)
        except ValueError:
            raise UnreadableError(f"data[{number}].embedding: neither numbers nor base64") from None
    return as_list(vector, f"data[{number}].embedding")
