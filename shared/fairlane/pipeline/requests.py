"""Reads a request that a row holds in the form of OpenAI's API: chat completions, embeddings, responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fairlane.pipeline.responses_as_chat import MalformedRequest, as_chat

CHAT_URL, EMBEDDINGS_URL, RESPONSES_URL = "/v1/chat/completions", "/v1/embeddings", "/v1/responses"

URL_FIELD = "url"
"""The field of a row that names the API of its request, as in batch files; without one it is a chat."""


class Asked(NamedTuple):
    """What a request asks for: ``messages`` or ``inputs`` to embed, and its own parameters."""

    messages: list[dict[str, Any]]
    params: dict[str, Any]
    inputs: tuple[str, ...] | None = None


def read_request(url: object, body: object, *, as_responses: bool) -> Asked:
    """The request in ``body``. ``as_responses``: the connection takes requests for responses as they are.

    Another connection gets them as a chat. Raises `MalformedRequest` that names the part of the body which is
    malformed, or which chats cannot say.
    """
    if not isinstance(body, Mapping):
        raise MalformedRequest("it is no object")
    if url == EMBEDDINGS_URL:
        return Asked([], _without(body, "input"), inputs_of(body.get("input")))
    if url == RESPONSES_URL:
        return _native(body) if as_responses else Asked(*as_chat(body))
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise MalformedRequest("it has no messages")
    return Asked(_objects(messages, "messages"), _without(body, "messages"))


def inputs_of(given: object) -> tuple[str, ...]:
    """The texts to embed. Raises `MalformedRequest` for other input, like numbers of tokens."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise MalformedRequest("input: a text or a list of texts is expected")
    if not all(isinstance(text, str) and text for text in texts):
        raise MalformedRequest(
            "input: texts that are not empty are expected; numbers of tokens are not taken"
        )
    return tuple(texts)


def _native(body: Mapping[str, Any]) -> Asked:
    given = body.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise MalformedRequest("input: a text or a list of items is expected")
    return Asked(_objects(given, "input"), _without(body, "input"))


def _objects(given: list[Any], where: str) -> list[dict[str, Any]]:
    """The items of a list that are all objects. Raises `MalformedRequest` for another."""
    for place, each in enumerate(given):
        if not isinstance(each, Mapping):
            raise MalformedRequest(f"{where}[{place}] is no object")
    return [dict(each) for each in given]


def _without(body: Mapping[str, Any], content: str) -> dict[str, Any]:
    """The parameters of a request: the run sets its model, and the connection whether it streams."""
    return {name: value for name, value in body.items() if name not in ("model", "stream", content)}
