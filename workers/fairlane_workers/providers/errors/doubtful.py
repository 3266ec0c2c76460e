"""Recognises a 4xx that is the fault of the service, a proxy or the network, not of the request."""

from __future__ import annotations

import re

from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.errors.spent import BEHIND_LITELLM

_LITELLMS = re.compile(BEHIND_LITELLM)

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
    r"|\b(?:invalid|malformed) json (?:body|payload|request)\b"
    # A file that the request names could not be fetched: OpenAI's and Google's.
    r"|\b(?:timeout|timed out) while downloading\b|\b(?:failed to|cannot|could not) (?:download|fetch)\b"
    # OpenRouter's, for what its provider said without a reason, and for a moment without any
    r"|^provider returned error\W*$|^no models provided\b"
    # LiteLLM's proxy, also for a model that one of its workers has not loaded yet
    r"|\binvalid model name passed in model=",
    re.IGNORECASE,
)
# Groq's: the model wrote a call or a document that does not fit the request's schema. Another answer may.
_OF_SAMPLE = frozenset({"tool_use_failed", "json_validate_failed"})

# The service says with a 4xx that it is broken or not up.
_FAULTS = re.compile(
    # NVIDIA's "Function id '…': DEGRADED function cannot be invoked"
    r"\bdegraded function cannot be invoked\b"
    # LM Studio's, and vLLM's router for a sleeping engine
    r"|^no models? (?:are |is )?loaded\b|^failed to load model\b|\bengine is sleeping\b"
    # Amazon's internal error in what LiteLLM calls a BadRequestError
    r"|\bunexpected error during processing\b|\btry your request again\b"
    # A gateway's connection to the server broke
    r"|\bclosed (?:the )?connection before\b|\bupstream connect error\b"
    # FastChat's, and a race in the tokenizer of vLLM
    r"|\bnetwork error due to high traffic\b|^already borrowed\b",
    re.IGNORECASE,
)
_MAY_BE_BROKEN = (400, 404, 409, 412, 422)

# Google's is from https://cloud.google.com/vertex-ai/generative-ai/docs/error-code-429. For a quota it says
# something else, as "Quota exceeded for …" or "Resource has been exhausted (e.g. check quota).".
_NO_CAPACITY = re.compile(
    r"^resource exhausted[.,] please try again later"
    r"|\btemporarily out of capacity\b|\bno capacity (?:is )?available\b|\bmaximum capacity\b"
    # Mistral's "Service tier capacity exceeded", Cloudflare's "Capacity temporarily exceeded"
    r"|\bcapacity (?:is |was |has been )?(?:temporarily )?exceeded\b|\bno more data centers\b"
    # Azure's and Cerebras'
    r"|\bexperiencing (?:very )?high (?:demand|load|traffic)\b"
    r"|\b(?:engine|server|service|model|system)(?: is| may be)? (?:currently |temporarily )?"
    r"(?:overloaded|saturated)\b"
    r"|^the server had an error while processing your request\b"
    # OpenRouter's pool, new-api's group of channels, and gateways for inference
    r"|\brate-limited upstream\b|上游负载已饱和|\bdue to backpressure\b|\bfailed to find target pod\b",
    re.IGNORECASE,
)


def lacks_capacity(error: ErrorBody) -> bool:
    """Whether the message of a 429 says that the service has no capacity left for anybody.

    Google serves some models to all customers from one pool, and Azure rejects calls while it is busy. Such a
    429 comes by chance, whatever the caller's rate is.
    """
    return error.message is not None and _NO_CAPACITY.search(error.message[:_OPENING]) is not None


def states_fault(error: ErrorBody, status: int) -> bool:
    """Whether a service says with a 4xx that it is broken or not up: that is a server error."""
    return status in _MAY_BE_BROKEN and _FAULTS.search(_opening(error.message or "")) is not None


def is_doubtful(error: ErrorBody, status: int) -> bool:
    """Whether the same request may succeed a moment later, although its status rejects it."""
    if status == _NOT_FOUND or not _OF_SAMPLE.isdisjoint(error.kinds):
        return True
    if error.message is None:
        return status in _BARE and not error.kinds
    return status // 100 == 4 and _PASSES.search(_opening(error.message)) is not None


def is_of_proxy(error: ErrorBody, status: int) -> bool:
    """Whether a proxy or a web server seems to answer in place of the API: while that restarts, say.

    Such an answer holds nothing that an API writes: no JSON object, or for a status but 404 no words at all.
    """
    if error.error or error.kinds:
        return False
    return status == _NOT_FOUND or (status in _BARE and error.message is None)


def _opening(message: str) -> str:
    """The message's beginning up to a quotation, without what LiteLLM's proxy puts before it."""
    before = _LITELLMS.match(message)
    inner = message[before.end() :] if before else message
    return re.split('["`\n]', inner[:_OPENING], maxsplit=1)[0]
