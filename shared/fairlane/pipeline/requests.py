"""Reads a request that a row holds in the form of OpenAI's API: chat completions, embeddings, responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fairlane.pipeline.responses_as_chat import MalformedRequest, as_chat

CHAT_URL, EMBEDDINGS_URL, RESPONSES_URL = "/v1/chat/completions", "/v1/embeddings", "/v1/responses"

URLS = (CHAT_URL, EMBEDDINGS_URL, RESPONSES_URL)
_API = "/v1/"

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
    if isinstance(url, str) and url.startswith(_API) and url not in URLS:
        raise MalformedRequest(f"its {URL_FIELD!r} is {url!r}, not one of {', '.join(URLS)}")
    body = body_of(body)
    if url == EMBEDDINGS_URL:
        return Asked([], _without(body, "input"), inputs_of(body.get("input")))
    if url == RESPONSES_URL:
        return _native(body) if as_responses else Asked(*as_chat(body))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise MalformedRequest("it has no messages")
    chat = _objects(messages, "messages")
    for place, message in enumerate(chat):
        if "role" not in message:
            named = " (from and value are role and content here)" if "from" in message else ""
            raise MalformedRequest(f"messages[{place}] has no role{named}")
    return Asked(chat, _without(body, "messages"))


def body_of(given: object) -> Mapping[str, Any]:
    """The request that a row's field holds: an object, a list of messages, or either as a text of JSON.

    Raises `MalformedRequest` for anything else.
    """
    read = _parsed(given) if isinstance(given, str) else given
    if isinstance(read, list):
        return {"messages": read}
    if not isinstance(read, Mapping):
        raise MalformedRequest(f"it is no object and no list of messages, but a {type(read).__name__}")
    return read


def _parsed(text: str) -> object:
    try:
        read = json.loads(text)
        json.dumps(read, allow_nan=False, ensure_ascii=False).encode()  # what the request is sent as
    except (ValueError, RecursionError):
        raise MalformedRequest("it is no object, but a text that is no JSON") from None
    return read


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
