"""Reads a provider's error: its types, codes and message, in any of the known shapes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fairlane.core.json_answers import json_or

_MOST_DETAILS = 50
_LONGEST_KIND = 100
_NAMES_OF_KIND = (
    *("code", "type", "status", "Code", "errorCode", "error_code", "error_type"),
    *("status_code", "errorType"),
)
"""Of most providers; Tencent's, Salesforce's, Baidu's, text-generation-inference's, MiniMax', Lambda's."""
_NAMES_OF_MESSAGE = (
    *("message", "faultstring", "Message", "error_msg", "msg", "status_msg", "detail"),
    *("title", "errorMessage"),
)
"""Of most providers; Apigee's, Tencent's, Baidu's, MiniMax', of problem documents (RFC 9457), Lambda's."""
_MAY_BE_JSON = ("message", "detail")
_SUCCESS = re.compile(r"(?:success(?:ful|fully)?|succeeded|ok)[.!]?", re.IGNORECASE)
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

        Gateways write ``fault`` (Apigee, WSO2), ``errors`` (watsonx), ``base_resp`` (MiniMax) or
        ``Response.Error`` (Tencent). Frameworks of web servers (Fastify, NestJS, Spring) write
        ``{"error": "Bad Request", "message": …}``.
        """
        document = _unwrapped(document)
        if isinstance(document, str):
            return cls((), document.strip() or None)
        if not isinstance(document, dict):
            return cls((), None)
        message, inner = _message(document), _inner(document)
        if isinstance(inner, dict):
            return cls(tuple(_kinds(inner)), _message(inner) or message, inner)
        if inner and message:
            return cls._named(inner.strip(), message, document)
        return cls(tuple(_kinds(document)), message or (inner and inner.strip()) or None, document)

    @classmethod
    def in_place_of_answer(cls, body: bytes) -> Mapping[str, Any] | None:
        """The error in the body of a 2xx that is no answer; ``None`` if it is no JSON object with words.

        Some services send every error with a 200: ``{"base_resp": {"status_code": …, "status_msg": …}}``.
        """
        error = _unwrapped(json_or(body))
        return cls.with_words(error) if isinstance(error, dict) else None

    @classmethod
    def with_words(cls, document: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The document, if it has words as an error has; ``None`` for others, and for the word "success"."""
        texts = (text for name in _NAMES_OF_MESSAGE if isinstance(text := document.get(name), str))
        said = [text for text in texts if text.strip()]
        return None if not said or all(_SUCCESS.fullmatch(text.strip()) for text in said) else document

    @classmethod
    def _named(cls, name: str, message: str, error: dict[str, Any]) -> ErrorBody:
        """An error with a name next to its message: one word is a kind, and a status' name is dropped."""
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


def _inner(document: dict[str, Any]) -> str | dict[str, Any] | None:
    """The error or the text that a document has under ``error``; ``None`` for anything else."""
    inner = document.get("error")
    inner = inner[0] if isinstance(inner, list) and inner else inner  # Cloudflare's gateway
    return inner if isinstance(inner, str | dict) and inner else None


def _unwrapped(document: object) -> object:
    """The error, out of what gateways put around it; the document itself if it has words of its own."""
    if isinstance(document, list) and document:
        document = document[0]
    if not isinstance(document, dict) or _message(document):
        return document
    if _inner(document):
        return document
    response = document.get("Response")
    around = response.get("Error") if isinstance(response, dict) else None
    for inner in (around, *(document.get(name) for name in ("fault", "errors", "base_resp"))):
        inner = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(inner, dict) and _message(inner):
            return inner
    return document


def _kinds(error: dict[str, object]) -> Iterator[str]:
    finer = _finer_codes(error.get("details") or error.get("detail"))
    reasons = _reasons(error.get("errors"))
    for value in (*finer, *reasons, *(error.get(name) for name in _NAMES_OF_KIND)):
        if isinstance(value, str) or type(value) is int:
            kind = str(value).lower()
            if len(kind) <= _LONGEST_KIND:
                yield kind


def _reasons(errors: object) -> Iterator[object]:
    """The reasons of several errors, as Google has them: ``{"code": 403, "errors": [{"reason": …}]}``."""
    if isinstance(errors, list):
        yield from (each.get("reason") for each in errors[:_MOST_DETAILS] if isinstance(each, dict))


def _finer_codes(details: object) -> Iterator[object]:
    """Codes finer than the type: Anthropic's ``error_code``, Apigee's ``errorcode``, Google's ``reason``."""
    if isinstance(details, dict):
        yield from (details.get(name) for name in ("error_code", "errorcode"))
    else:
        yield from _reasons(details)


def _message(error: dict[str, object]) -> str | None:
    for name in _NAMES_OF_MESSAGE:
        value = error.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()
        if name in _MAY_BE_JSON and isinstance(value, list | dict) and value:
            inner = value.get("error") if isinstance(value, dict) and len(value) == 1 else None
            return inner if isinstance(inner, str) and inner.strip() else json.dumps(value)
    return None
