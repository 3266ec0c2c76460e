"""Embeddings of the protocol "ollama": ``/api/embed``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fairlane.evaluators.embeddings import BrokenEmbeddings, pack
from fairlane_workers.providers.answers.answer import Answer, UnreadableError, as_list, token_count
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.errors.error_body import ErrorBody

# https://github.com/ollama/ollama/blob/main/docs/api.md#generate-embeddings
_OWN = frozenset({"dimensions", "keep_alive", "options", "truncate"})
_NO_MODEL = re.compile(r"^model ['\"]?([^'\"\s]+)['\"]? not found")
_DROPPED = frozenset({"encoding_format", "user"})


class OllamaEmbeddings(Dialect):
    """``POST {base_url}/api/embed``. The answer's text has the form of `fairlane.evaluators.embeddings`."""

    protocol = "ollama"
    streams = False

    def target(self, request: Request) -> str:
        """See `Dialect.target`."""
        return "/api/embed"

    def body(self, request: Request) -> dict[str, Any]:
        """Names that are not the API's own become ``options``, such as ``num_ctx``; given ones go before."""
        given = {name: value for name, value in request.params.items() if value is not None}
        own = {name: value for name, value in given.items() if name in _OWN}
        options = {name: value for name, value in given.items() if name not in _OWN | _DROPPED}
        if options and isinstance(own.get("options", {}), Mapping):
            own["options"] = {**options, **own.get("options", {})}
        return {**own, "model": request.model, "input": list(request.inputs or ())}

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        """Read the vectors, in the order of the texts."""
        if document.get("error"):
            answer.error = document["error"]
            return
        answer.name_model(document.get("model"))
        answer.input_tokens, answer.output_tokens = token_count(document.get("prompt_eval_count")), 0
        listed = as_list(document.get("embeddings"), "embeddings")
        try:
            answer.add(pack(as_list(vector, "embeddings[]") for vector in listed))
        except BrokenEmbeddings as broken:
            raise UnreadableError(str(broken)) from None
        answer.ended = True

    def error(self, headers: Mapping[str, str], body: bytes) -> ErrorBody:
        """See `Dialect.error`."""
        return with_remedy(ErrorBody.parse(body))


def with_remedy(error: ErrorBody) -> ErrorBody:
    """The error; if the server lacks the model, its message has the command that fetches it."""
    found = _NO_MODEL.match(error.message or "")
    if found is None:
        return error
    remedy = f"model '{found[1]}' not found: run `ollama pull {found[1]}` on the server"
    return replace(error, message=remedy)
