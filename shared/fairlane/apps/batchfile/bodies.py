"""Says what is wrong with the body of a batch's request, for each API that such a request may be for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fairlane.pipeline.requests import CHAT_URL, EMBEDDINGS_URL, RESPONSES_URL, inputs_of
from fairlane.pipeline.responses_as_chat import MalformedRequest

ENDPOINTS = (CHAT_URL, EMBEDDINGS_URL, RESPONSES_URL)

_KINDS = {CHAT_URL: "chat request", EMBEDDINGS_URL: "request for embeddings", RESPONSES_URL: "request"}
_NEEDS_STATE = ("previous_response_id", "conversation")


def body_problems(url: str, body: object, *, own_models: bool) -> Iterator[str]:
    """What is wrong with a body, each with its remedy. ``own_models``: its own model is to be asked."""
    if not isinstance(body, dict):
        yield f"body is {shown(body)}. Write the {_KINDS[url]} there, as an object"
        return
    if url == CHAT_URL:
        yield from _chat(body)
    elif url == EMBEDDINGS_URL:
        yield from _embeddings(body)
    else:
        yield from _response(body)
    model = body.get("model")
    if own_models and (not isinstance(model, str) or not model.strip()):
        yield f"body.model is {shown(model)}. Name a model there, or give one for all lines with --model"


def shown(value: object) -> str:
    """A value in a message, on one line and not too long."""
    if value is None:
        return "missing"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _chat(body: dict[str, Any]) -> Iterator[str]:
    messages, choices = body.get("messages"), body.get("n")
    if not isinstance(messages, list) or not messages:
        yield f"body.messages is {shown(messages)}. Write a list of at least one message"
    else:
        for place, message in enumerate(messages):
            if not isinstance(message, dict) or not isinstance(message.get("role"), str):
                yield f'body.messages[{place}] is no message. Write {{"role": "user", "content": "…"}}'
                break
    if choices not in (None, 1):
        yield f"body.n is {shown(choices)}, and one choice is kept. Write a line for each"


def _embeddings(body: dict[str, Any]) -> Iterator[str]:
    given, form = body.get("input"), body.get("encoding_format")
    try:
        inputs_of(given)
    except MalformedRequest:
        yield f"body.input is {shown(given)}. Write a text or a list of texts that are not empty"
    if form not in (None, "float", "base64"):
        yield f'body.encoding_format is {shown(form)}. Write "float" or "base64"'


def _response(body: dict[str, Any]) -> Iterator[str]:
    given = body.get("input")
    if isinstance(given, list) and given:
        for place, item in enumerate(given):
            if not isinstance(item, dict):
                yield f'body.input[{place}] is no item. Write {{"role": "user", "content": "…"}}'
                break
    elif not isinstance(given, str) or not given:
        yield f"body.input is {shown(given)}. Write a text or a list of items"
    for name in _NEEDS_STATE:
        if body.get(name) is not None:
            yield f"body.{name} continues an earlier answer. Write the whole conversation into body.input"
    if body.get("background"):
        yield "body.background is true. Leave it out: the worker waits for the answer"
