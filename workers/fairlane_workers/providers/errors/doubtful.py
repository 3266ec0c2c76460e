"""Recognises a 4xx with which the same request may succeed a moment later."""

from __future__ import annotations

import re

from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.errors.server_state import is_of_gateway, opening_of

_NOT_FOUND = 404
"""A model that does not exist, and also what services answer for a moment: OpenAI without a body, OpenRouter
with "Provider returned error", Azure for minutes after a deployment was created."""

_BARE = (400, 403, 405)
"""Statuses that an API sends with words. Without any they are a proxy's page, or come from a server that has
closed the connection."""

_PASSES = re.compile(
    r"\b(?:temporarily|currently) (?:un|not )available\b"
    r"|\b(?:is|are|was|temporarily|currently) (?:overloaded|at (?:full )?capacity)\b"
    r"|\bcapacity (?:is )?exceeded\b"
    r"|\b(?:try again|retry) (?:later|soon|shortly|in (?:a|\d))|\bplease retry\b"
    # The body is always JSON, so it was damaged on its way.
    r"|\b(?:could not|couldn't|cannot|failed to|unable to) parse (?:the |your )?json\b"
    r"|\b(?:invalid|malformed) json (?:body|payload|request)\b"
    # A file that the request names could not be fetched: OpenAI's and Google's.
    r"|\b(?:timeout|timed out) while downloading\b|\b(?:failed to|cannot|could not) (?:download|fetch)\b"
    # OpenRouter's, for what its provider said without a reason, and for a moment without any
    r"|^provider returned error\W*$|^no models provided\b"
    # LiteLLM's proxy, also for a model that one of its workers has not loaded yet
    r"|\binvalid model name passed in model=",
    re.IGNORECASE,
)
_LATER = re.compile(r"\b(?:try again|retry) (?:later|soon|shortly)\b", re.IGNORECASE)
# Groq's: the model wrote a call or a document that does not fit the request's schema. Another answer may.
_OF_SAMPLE = frozenset({"tool_use_failed", "json_validate_failed"})


def passes(error: ErrorBody) -> bool:
    """Whether an error's first words say that it passes: try again later."""
    return _LATER.search(opening_of(error.message)) is not None


def is_doubtful(error: ErrorBody, status: int) -> bool:
    """Whether the same request may succeed a moment later, although its status rejects it."""
    if status == _NOT_FOUND or is_of_gateway(error, status) or not _OF_SAMPLE.isdisjoint(error.kinds):
        return True
    if error.message is None:
        return status in _BARE and not error.kinds
    return status // 100 == 4 and _PASSES.search(opening_of(error.message)) is not None


def is_of_proxy(error: ErrorBody, status: int) -> bool:
    """Whether a proxy or a web server seems to answer in place of the API: while that restarts, say.

    Such an answer has a gateway's own words, or nothing that an API writes: no JSON object, or for a status
    but 404 no words at all.
    """
    if is_of_gateway(error, status):
        return True
    if error.error or error.kinds:
        return False
    return status == _NOT_FOUND or (status in _BARE and error.message is None)
