"""Recognises a 4xx that is the fault of the service, a proxy or the network, not of the request."""

from __future__ import annotations

import re

from fairlane_workers.providers.errors.error_body import ErrorBody

_NOT_FOUND = 404
"""A model that does not exist, and also what services answer for a moment: OpenAI without a body, OpenRouter
with "Provider returned error", Azure for minutes after a deployment was created."""

_BARE = (400, 403, 405)
"""Statuses that an API sends with words. Without any they are a proxy's page, or come from a server that has
closed the connection."""

_OPENING = 200
"""Characters of a message that may say so; what the request contains may follow."""

_PASSES = re.compile(
    r"\b(?:temporarily|currently) (?:un|not )available\b"
    r"|\b(?:is|are|was|temporarily|currently) (?:overloaded|at (?:full )?capacity)\b"
    r"|\bcapacity (?:is )?exceeded\b"
    r"|\b(?:try again|retry) (?:later|soon|shortly|in (?:a|\d))|\bplease retry\b"
    # The body is always JSON, so it was damaged on its way.
    r"|\b(?:could not|couldn't|cannot|failed to|unable to) parse (?:the |your )?json\b"
    r"|\b(?:invalid|malformed) json (?:body|payload|request)\b",
    re.IGNORECASE,
)

# Google's is from https://cloud.google.com/vertex-ai/generative-ai/docs/error-code-429. For a quota it says
# something else, as "Quota exceeded for …" or "Resource has been exhausted (e.g. check quota).".
_NO_CAPACITY = re.compile(
    r"^resource exhausted[.,] please try again later"
    r"|\bservice is temporarily out of capacity\b"
    r"|\b(?:system|service|model) is currently experiencing high (?:demand|load|traffic)\b",
    re.IGNORECASE,
)


def lacks_capacity(error: ErrorBody) -> bool:
    """Whether the message of a 429 says that the service has no capacity left for anybody.

    Google serves some models to all customers from one pool, and Azure rejects calls while it is busy. Such a
    429 comes by chance, whatever the caller's rate is.
    """
    return error.message is not None and _NO_CAPACITY.search(error.message[:_OPENING]) is not None


def is_doubtful(error: ErrorBody, status: int) -> bool:
    """Whether the same request may succeed a moment later, although its status rejects it."""
    if status == _NOT_FOUND:
        return True
    if error.message is None:
        return status in _BARE and not error.kinds
    return status // 100 == 4 and _PASSES.search(_opening(error.message)) is not None


def _opening(message: str) -> str:
    return re.split('["`\n]', message[:_OPENING], maxsplit=1)[0]
