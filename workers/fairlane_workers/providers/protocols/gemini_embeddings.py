"""Embeddings of the protocol "gemini": ``embedContent`` of Google AI Studio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlane_workers.providers.answers.answer import Answer, as_list, as_object, packed
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.protocols.gemini_request import resource

# https://ai.google.dev/api/embeddings
_DROPPED = frozenset({"encoding_format", "user"})
_OWN_NAMES = {"dimensions": "outputDimensionality", "task_type": "taskType", "auto_truncate": "autoTruncate"}


class GeminiEmbeddings(Dialect):
    """``:embedContent`` for one text, ``:batchEmbedContents`` for more.

    The answer's text has the form of `fairlane.evaluators.embeddings`.
    """

    protocol = "gemini"
    streams = False

    def target(self, request: Request) -> str:
        """See `Dialect.target`."""
        method = "embedContent" if len(request.inputs or ()) == 1 else "batchEmbedContents"
        return f"{_model(request)}:{method}"

    def body(self, request: Request) -> dict[str, Any]:
        """One request, or a list of them. OpenAI's ``dimensions`` is ``outputDimensionality``."""
        params = {
            _OWN_NAMES.get(name, name): value
            for name, value in request.params.items()
            if name not in _DROPPED and value is not None
        }
        model = _model(request).removeprefix("/")
        asked = [
            {**params, "model": model, "content": {"parts": [{"text": text}]}}
            for text in request.inputs or ()
        ]
        return asked[0] if len(asked) == 1 else {"requests": asked}

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        """Read the vectors in the order of the texts. Most models count no tokens."""
        if document.get("error"):
            answer.error = document["error"]
            return
        usage = document.get("usageMetadata")
        if isinstance(usage, dict):
            answer.count(0, usage.get("promptTokenCount"))
        one = document.get("embedding")
        listed = as_list(document.get("embeddings"), "embeddings") if one is None else [one]
        vectors = [as_object(each, "embeddings[]").get("values") for each in listed]
        answer.add(packed(as_list(each, "embeddings[].values") for each in vectors))
        answer.ended = True


def _model(request: Request) -> str:
    return resource(request.model, ("models", "tunedModels"), "models")
