"""The protocol "replicate": predictions, started with a POST and polled until they end."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import quote

from fairlane_workers.providers.answers.answer import (
    Answer,
    Pending,
    UnreadableError,
    output_text,
    within,
)
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect, UnmappableError
from fairlane_workers.providers.requests.messages import Text, read_messages
from fairlane_workers.providers.requests.parameters import stop_words

LOOK_AFTER_S = 0.5
"""In seconds: Replicate's own client polls twice a second."""

_IN_PROGRESS = frozenset({"starting", "processing"})
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_HANDLE = re.compile(r"[A-Za-z0-9_-]{1,100}")

# https://replicate.com/docs/reference/error-codes, and messages of models.
_FAILURES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("content_filter", re.compile(r"\(E005\)|flagged as sensitive|NSFW content|content policy", re.I)),
    ("interrupted", re.compile(r"Prediction interrupted|\bcode: PA\b|\bE(6716|8367|8765|9243|9825)\b", re.I)),
    ("timeout", re.compile(r"\bE1002\b|timed out", re.I)),
)


class Replicate(Dialect):
    """``POST {base_url}/models/{owner}/{name}/predictions``, then ``GET {base_url}/predictions/{id}``.

    A model is ``owner/name``, ``owner/name:version``, a version's id alone, or ``deployments/owner/name``.
    """

    protocol = "replicate"
    streams = False
    late_statuses: ClassVar[Mapping[str, int]] = {
        "content_filter": 400,
        "interrupted": 503,
        "timeout": 504,
        "aborted": 504,
    }

    def target(self, request: Request) -> str:
        """See `Dialect.target`."""
        kind, parts = _model(request.model)
        return "/predictions" if kind == "version" else f"/{kind}/{'/'.join(parts)}/predictions"

    def body(self, request: Request) -> dict[str, Any]:
        """The parameters become the model's input unchanged; the messages become its prompt, see `_prompt`.

        A list ``stop`` becomes ``stop_sequences``, which is one text with commas. ``input``, an object, goes
        before all of these. Without ``messages`` as a parameter the model gets a prompt; with them, these.
        """
        params = {name: value for name, value in request.params.items() if value is not None}
        own = params.pop("input", {})
        if not isinstance(own, Mapping):
            raise UnmappableError("params.input: an object is expected")
        given: dict[str, Any] = {**_with_stop(params), **own}
        if not given.get("messages"):
            given.pop("messages", None)
            given = {**_prompt(request.messages), **given}
        kind, parts = _model(request.model)
        return {"version": parts[0], "input": given} if kind == "version" else {"input": given}

    def read(self, document: Mapping[str, Any], answer: Answer) -> None:
        """See `Dialect.read`."""
        status = document.get("status")
        if not isinstance(status, str):
            if document.get("error") or document.get("detail"):
                answer.error = document.get("error") or document
                return
            raise UnreadableError("status: a text was expected")
        text = output_text(document.get("output"))
        if text is not None:
            answer.add(text)
        if status in _IN_PROGRESS:
            answer.pending = Pending(_handle(document.get("id")), LOOK_AFTER_S)
        elif status == "succeeded":
            metrics = document.get("metrics")
            answer.counts = isinstance(metrics, dict) and "output_token_count" in metrics
            answer.count(within(metrics, "output_token_count"), within(metrics, "input_token_count"))
            answer.name_model(document.get("model"))
            answer.finish(status)
            answer.ended = True
        elif status == "aborted":
            answer.error = {"type": status, "message": "the prediction was not begun before its deadline"}
        else:
            _fail(status, document.get("error"), answer)

    def look(self, handle: str) -> str:
        """See `Dialect.look`."""
        return f"/predictions/{_handle(handle)}"

    def cancel(self, handle: str) -> str | None:
        """See `Dialect.cancel`."""
        return f"/predictions/{handle}/cancel" if _HANDLE.fullmatch(handle) else None


def _model(name: str) -> tuple[str, list[str]]:
    """The address of a model: ``models`` or ``deployments`` with its path, or ``version`` with its id."""
    path, _, version = name.partition(":")
    parts = path.split("/")
    if version or len(parts) == 1:
        parts, kind = [version or path], "version"
    elif len(parts) == 3 and parts[0] == "deployments":
        parts, kind = parts[1:], "deployments"
    else:
        kind = "models"
    if len(parts) != (1 if kind == "version" else 2) or not all(map(_SEGMENT.fullmatch, parts)):
        known = '"owner/name", "owner/name:version", a version\'s id or "deployments/owner/name"'
        raise UnmappableError(f"model {name!r}: {known} is expected")
    return kind, [quote(part, safe="") for part in parts]


def _with_stop(params: dict[str, Any]) -> dict[str, Any]:
    """The run's stop words as ``stop_sequences``: one text, separated by commas."""
    if params.get("stop") is None or "stop_sequences" in params:
        return params
    words = stop_words(params["stop"])
    if any("," in word for word in words):
        raise UnmappableError("params.stop: commas part the sequences here, so none may be in one")
    others = {name: value for name, value in params.items() if name != "stop"}
    return {**others, "stop_sequences": ",".join(words)}


def _prompt(messages: list[dict[str, Any]]) -> dict[str, str]:
    """System messages, with an empty line between them, are the ``system_prompt``. A single user message is
    the ``prompt``; of several messages that is a transcript, each with its speaker, which the assistant goes
    on with. Raises `UnmappableError` for what is no text.
    """
    read = read_messages(messages)
    for message in read:
        if message.calls or not all(isinstance(part, Text) for part in message.parts):
            raise UnmappableError(
                f"{message.place}: a prompt is text alone; give files as the model's own input, and no calls"
            )
    system = [message.text for message in read if message.role == "system"]
    said = [message for message in read if message.role != "system"]
    found = {"system_prompt": "\n\n".join(system)} if system else {}
    if len(said) == 1 and said[0].role == "user":
        return {**found, "prompt": said[0].text}
    lines = [f"{message.role.capitalize()}: {message.text}" for message in said]
    return {**found, "prompt": "\n\n".join([*lines, "Assistant:"] if said else [])}


def _handle(value: object) -> str:
    if not isinstance(value, str) or not _HANDLE.fullmatch(value):
        raise UnreadableError(f"id: no prediction's: {str(value)[:80]!r}")
    return value


def _fail(status: str, error: object, answer: Answer) -> None:
    """A failed prediction. If its cause is unknown, a retry may succeed, and
    it says nothing of the account's limits.
    """
    words = error if isinstance(error, str) and error.strip() else f"the prediction {status}"
    kind = next((kind for kind, words_of in _FAILURES if words_of.search(words)), None)
    if status == "failed" and kind is not None:
        answer.error = {"type": kind, "message": words}
        return
    raise UnreadableError(words if status in ("failed", "canceled") else f"status {status!r}: {words}")
