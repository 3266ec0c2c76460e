"""Reads a provider's error: its types, codes and message, in any of the known shapes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

_MOST_DETAILS = 50
_LONGEST_KIND = 100
_STATUS_NAMES = frozenset(status.phrase.lower() for status in HTTPStatus)


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """``kinds``: the error's names for itself, most specific first, in lower case. ``message``: its prose.
    ``error``: the error as received, empty if it is no JSON object.
    """

    kinds: tuple[str, ...]
    message: str | None
    error: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, body: bytes) -> ErrorBody:
        """Read the body of an HTTP error; text that is not JSON is the message, an HTML page is none."""
        try:
            return cls.of(json.loads(body))
        except (ValueError, RecursionError):
            text = body.decode("utf-8", "replace").strip()
            return cls((), text if text and not text.startswith("<") else None)

    @classmethod
    def of(cls, document: object) -> ErrorBody:
        """Read ``{"error": …}``, the same in a list (Gemini), or a document that is the error (vLLM).

        Frameworks of web servers write ``{"error": "Bad Request", "message": …}`` (Fastify, NestJS, Spring).
        """
        if isinstance(document, list) and document:
            document = document[0]
        if isinstance(document, dict) and document.get("error") is not None:
            name = document["error"]
            if isinstance(name, str) and (message := _message(document)):
                return cls._named(name.strip(), message, document)
            document = name
        if isinstance(document, str):
            return cls((), document.strip() or None)
        if not isinstance(document, dict):
            return cls((), None)
        return cls(tuple(_kinds(document)), _message(document), document)

    @classmethod
    def _named(cls, name: str, message: str, error: dict[str, Any]) -> ErrorBody:
        """An error with a name beside its message: one word is a kind, and a status' name is dropped."""
        kinds = tuple(_kinds(error))
        if " " not in name and len(name) <= _LONGEST_KIND:
            return cls((name.lower(), *kinds), message, error)
        said = name.lower() in _STATUS_NAMES or name in message
        return cls(kinds, message if said else f"{message} ({name})", error)

    @property
    def status(self) -> int | None:
        """The HTTP status that some compatible servers and proxies send as the error's code."""
        for kind in self.kinds:
            if kind.isascii() and kind.isdigit() and 400 <= int(kind) < 600:
                return int(kind)
        return None


def _kinds(error: dict[str, object]) -> Iterator[str]:
    finer = _finer(error.get("details"))
    for value in (*finer, error.get("code"), error.get("type"), error.get("status")):
        if isinstance(value, str) or type(value) is int:
            kind = str(value).lower()
            if len(kind) <= _LONGEST_KIND:
                yield kind


def _finer(details: object) -> Iterator[object]:
    """Codes finer than the type: Anthropic's ``error_code``, the ``reason`` of Google's ``ErrorInfo``."""
    if isinstance(details, dict):
        yield details.get("error_code")
    elif isinstance(details, list):
        yield from (detail.get("reason") for detail in details[:_MOST_DETAILS] if isinstance(detail, dict))


def _message(error: dict[str, object]) -> str | None:
    for name in ("message", "detail"):
        value = error.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, list | dict) and value:
            return json.dumps(value)
    return None
