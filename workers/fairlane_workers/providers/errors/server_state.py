"""Recognises errors that show the state of a server or a gateway, or that may pass a moment later."""

import re

from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.errors.spent import BEHIND_LITELLM

_LITELLMS = re.compile(BEHIND_LITELLM)

_OPENING = 200
"""Characters of a message that may say so; what the request contains may follow."""

_MAY_BE_BROKEN = (400, 404, 409, 412, 422)
_UNAUTHORIZED = 401
_NOT_FOUND = 404
"""A model that does not exist, and also what services answer for a moment: OpenAI without a body, OpenRouter
with "Provider returned error", Azure for minutes after a deployment was created."""

_BARE = (400, 403, 405)
"""Statuses that an API sends with words. Without any they are a proxy's page, or come from a server that has
closed the connection."""

_FAULT_KINDS = frozenset(
    {
        *("internal_server_error", "internalservererror", "server_error", "servererror", "internal_error"),
        *("service_unavailable_error", "serviceunavailable", "serviceunavailableerror", "unavailable_error"),
        "no_db_connection",  # LiteLLM's
    }
)
"""Types that name a server's fault, as Mistral and others send them with a 400."""

_PARTS = (
    r"(?:model|engine|enginecore|endpoint|deployment|server|service|worker|backend|instance|replica|runner"
    r"|runtime|container|background loop)"
)
_BE = r"(?:is|are|was|has|have|being|been|still|currently|already)"
_STATES = (
    rf"(?:(?:{_BE} ){{0,3}}(?:not (?:yet )?(?:ready|running|loaded|started|initiali[sz]ed|healthy)|unhealthy"
    r"|crashed|unloaded|scaled to zero|paused|dead|died|errored|encountered an issue)"
    rf"|(?:{_BE} ){{1,3}}(?:loading|loaded|starting|restarting|initiali[sz]ing|warming up|booting|scaling"
    r"|shutting down|stopping))"
)
_FAULTS = re.compile(
    # As in: The model has crashed, Model unloaded, Endpoint x is not ready, EngineCore encountered an issue
    rf"\b{_PARTS} (?:[\w./:@-]{{1,100}} )??{_STATES}\b|\bscaled to zero\b"
    # A status' own name for a server's fault, with another status
    r"|^(?:internal server error|internal error|server error|service (?:temporarily )?unavailable|bad gateway"
    r"|gateway time-?out)\W*$"
    # NVIDIA's "Function id '…': DEGRADED function cannot be invoked"
    r"|\bdegraded function cannot be invoked\b"
    # LM Studio's, vLLM's router for a sleeping engine, and Triton's
    r"|^no models? (?:are |is )?loaded\b|^failed to load model\b|^channel error\W*$|\bengine is sleeping\b"
    r"|\bhas no available versions\b|\brequest timeout expired\b"
    # A call that the server ended for its own reasons: LM Studio, SGLang
    r"|^operation cancell?ed\W*$|\baborted by a higher priority request\b"
    # Amazon's internal error in what LiteLLM calls a BadRequestError
    r"|\bunexpected error during processing\b|\btry your request again\b"
    # A gateway's connection to the server broke
    r"|\bclosed (?:the )?connection before\b|\bupstream connect error\b"
    # FastChat's, and a race in the tokenizer of vLLM
    r"|\bnetwork error due to high traffic\b|^already borrowed\b",
    re.IGNORECASE,
)
_NO_DATABASE = re.compile(r"\bno connected db\b|\bcan't reach database server\b", re.IGNORECASE)
"""LiteLLM's proxy cannot look up a key: it answers with a 401 or a 400."""

_BUSY = re.compile(
    r"\bqueue (?:is )?full\b"
    r"|\b(?:model|server|service|engine|system)(?: is)? (?:too |very |currently )?busy\b"
    r"|\bexceeds maximum queue size\b",
    re.IGNORECASE,
)
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

# Kong's, APISIX', Envoy's, Tyk's and ingress-nginx'
_GATEWAYS = re.compile(
    r"\bno routes? (?:matched|found)\b|\broute not found\b|\bno (?:healthy )?upstreams?\b"
    r"|\bno healthy (?:backend|host|endpoint)s?\b|\bfailure to get a peer\b|^default backend\b"
    r"|\bno (?:api|service|backend)s? (?:is |was )?(?:registered|configured|matched)\b",
    re.IGNORECASE,
)
_OF_API_MANAGEMENT = "statusCode"
"""How Azure's API Management numbers its error: ``{"statusCode": 404, "message": "Resource not found"}``."""

_PASSES = re.compile(
    r"\b(?:temporarily|currently) (?:un|not )available\b"
    r"|\b(?:is|are|was|temporarily|currently) (?:overloaded|at (?:full )?capacity)\b"
    r"|\bcapacity (?:is )?exceeded\b"
    r"|\b(?:try again|retry) (?:later|soon|shortly|in (?:a|\d))|\bplease retry\b"
    # The body is always JSON, so it was damaged in transit.
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


def lacks_capacity(error: ErrorBody) -> bool:
    """Whether the message of a 429 says that the service has no capacity left for anybody.

    Google serves some models to all customers from one pool, and Azure rejects calls while it is busy. Such a
    429 comes by chance, whatever the caller's rate is.
    """
    opening = (error.message or "")[:_OPENING]
    return _NO_CAPACITY.search(opening) is not None or _BUSY.search(opening) is not None


def states_overload(error: ErrorBody, status: int) -> bool:
    """Whether a service says with a 4xx that its queue is full or it is busy."""
    return status in _MAY_BE_BROKEN and _BUSY.search(opening_of(error.message)) is not None


def states_fault(error: ErrorBody, status: int) -> bool:
    """Whether a service says with a 4xx that it is broken or not up: that is a server error."""
    opening = opening_of(error.message)
    if status in (*_MAY_BE_BROKEN, _UNAUTHORIZED) and _NO_DATABASE.search(opening):
        return True
    if status not in _MAY_BE_BROKEN:
        return False
    return not _FAULT_KINDS.isdisjoint(error.kinds) or _FAULTS.search(opening) is not None


def is_of_gateway(error: ErrorBody, status: int) -> bool:
    """Whether a gateway says in its own words that it knows no server for the call.

    Kong, APISIX and API Management write JSON, also while they load their routes.
    """
    opening = opening_of(error.message)
    if status in (_UNAUTHORIZED, 403, _NOT_FOUND) and _GATEWAYS.search(opening):
        return True
    return status == _NOT_FOUND and not error.kinds and error.error.get(_OF_API_MANAGEMENT) == _NOT_FOUND


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


def opening_of(message: str | None) -> str:
    """A message's beginning up to a quotation, without what LiteLLM's proxy puts before it."""
    message = message or ""
    before = _LITELLMS.match(message)
    inner = message[before.end() :] if before else message
    return re.split('["`\\n]', inner[:_OPENING], maxsplit=1)[0]
