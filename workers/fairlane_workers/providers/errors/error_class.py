"""The class of an error: what its names and first words say, or else its status."""

import re
from collections.abc import Mapping
from enum import StrEnum

from fairlane_workers.providers.errors.content import is_too_long, rejects_content
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.errors.rate_limit_names import (
    CERTAIN,
    FORBIDDEN,
    TOO_MANY_REQUESTS,
    is_rate_limit,
)
from fairlane_workers.providers.errors.server_state import (
    is_of_gateway,
    lacks_capacity,
    passes,
    states_fault,
    states_overload,
)
from fairlane_workers.providers.errors.spent import LEAST_ANSWER, affordable_tokens, is_shut, is_spent


class ErrorClass(StrEnum):
    """The values are those of `Connection.error_map`."""

    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    TIMED_OUT = "timed_out"
    PERMANENT = "permanent"
    TOO_LONG = "too_long"
    QUOTA = "quota"
    AUTH = "auth"
    INVALID = "invalid"


_OF_STATUS = {
    401: ErrorClass.AUTH,
    402: ErrorClass.QUOTA,
    403: ErrorClass.AUTH,
    408: ErrorClass.TIMED_OUT,
    # Another request is in the way, or the connection is too new: OpenAI's own client repeats a 409, too.
    409: ErrorClass.SERVER_ERROR,
    # A proxy took another connection's way.
    421: ErrorClass.SERVER_ERROR,
    # "Locked": the model is being loaded.
    423: ErrorClass.OVERLOADED,
    # The model behind a server failed: text-generation-inference, Azure ML, SageMaker.
    424: ErrorClass.SERVER_ERROR,
    425: ErrorClass.SERVER_ERROR,
    429: ErrorClass.RATE_LIMITED,
    # "Client closed request": a gateway gave up waiting, or Google's server cancelled the call.
    499: ErrorClass.TIMED_OUT,
    503: ErrorClass.OVERLOADED,
    504: ErrorClass.TIMED_OUT,
    # Cloudflare's: the server behind it has not answered within 100 s.
    524: ErrorClass.TIMED_OUT,
    529: ErrorClass.OVERLOADED,
}
_OF_CLASS = {3: ErrorClass.PERMANENT, 4: ErrorClass.PERMANENT, 5: ErrorClass.SERVER_ERROR}

# Amazon sends some of these with a 400: https://docs.aws.amazon.com/bedrock/latest/APIReference/CommonErrors.html
_AUTH_KINDS = frozenset(
    {
        *("expiredtoken", "expiredtokenexception", "incompletesignature", "incompletesignatureexception"),
        *("invalidclienttokenid", "invalidsignatureexception", "missingauthenticationtoken"),
        *("missingauthenticationtokenexception", "notauthorized", "requestexpired"),
        "unrecognizedclientexception",
        "organization_restricted",  # Groq's
        # Google's and Anthropic's, with a 400 too.
        *("api_key_invalid", "api_key_expired", "organization_on_hold"),
        # OpenAI's.
        *("invalid_api_key", "account_deactivated", "unsupported_country_region_territory"),
    }
)
# LiteLLM's, with a 401 or a 403: the key, its team or its user may not use the model.
_MODEL_DENIED = "_model_access_denied"
# "No capacity" in the words of OpenAI, Anthropic, Moonshot, Google, Amazon and Groq, with any status that
# does not say what is wrong. A 429 with one says nothing about the caller's limits.
_OVERLOAD_KINDS = frozenset(
    {
        *("overloaded_error", "server_is_overloaded", "engine_overloaded", "engine_overloaded_error"),
        *("model_overloaded", "server_overloaded", "service_unavailable", "serviceunavailableexception"),
        # text-generation-inference's "Model is overloaded", with a 429
        *("unavailable", "modelnotreadyexception", "overloaded", "capacity_exceeded"),
        # Mistral's, Cerebras', Google's, Volcengine's and OpenAI's (flex), with a 429
        *("service_tier_capacity_exceeded", "queue_exceeded", "model_capacity_exhausted", "serveroverloaded"),
        "resource_unavailable",
    }
)
_PASSING = frozenset({408, 429, 503, 504, 529})
"""Statuses that pass. A type that stands for one counts more than a 400: Bedrock throttles with 400s, too."""

_OF_MODEL = 424
_NO_MONEY = 402
_PROMPT_BEYOND_CREDITS = re.compile(r"prompt tokens limit exceeded: ", re.IGNORECASE)
"""OpenRouter's 402 for one prompt that is longer than the account's credits allow: shorter ones may pass."""
_LOGIN = re.compile(r"/(?:cdn-cgi/access/)?(?:log-?in|sign-?in|sso|oauth2?)(?:[/?]|$)", re.IGNORECASE)
"""Where a proxy sends who is not logged in, as Cloudflare Access and oauth2-proxy do."""
_LONG_CALL = "__modal_function_call_id="
"""In Modal's redirect of a call that takes longer than 150 s."""


def class_of(
    error: ErrorBody,
    status: int,
    headers: Mapping[str, str],
    statuses: Mapping[int, str],
    *,
    shared: bool,
    brief: bool = False,
) -> ErrorClass:
    """The class of an error with the status that it means (`meant_status`).

    ``statuses``: what the provider means by some, where an error's names and words say no more. ``shared``:
    several models share its lane. ``brief``: it names a short wait, so no money is missing.
    """
    if (worded := _class_by_wording(error, status)) is not None:
        return worded
    if status // 100 == 3 and (target := _of_redirect(headers)) is not None:
        return target
    kinds = frozenset(error.kinds)
    if status // 100 == 4:
        if is_spent(error) and not brief:
            return ErrorClass.QUOTA
        if is_shut(error) or kinds & _AUTH_KINDS:
            return ErrorClass.AUTH
    if status == FORBIDDEN and passes(error):
        return ErrorClass.OVERLOADED
    if status in statuses:
        return ErrorClass(statuses[status])
    if shared and (status == FORBIDDEN or any(kind.endswith(_MODEL_DENIED) for kind in kinds)):
        return ErrorClass.PERMANENT
    if status == 503 and "resource_exhausted" in kinds:
        return ErrorClass.RATE_LIMITED
    if status == 503 and "model_not_found" in kinds:  # new-api's: nobody behind it serves this model now
        return ErrorClass.SERVER_ERROR
    if status not in CERTAIN and kinds & _OVERLOAD_KINDS:
        return ErrorClass.OVERLOADED
    return _OF_STATUS.get(status) or _OF_CLASS.get(status // 100, ErrorClass.INVALID)


def configured_class(error: ErrorBody, status: int, error_map: Mapping[str, str]) -> ErrorClass | None:
    """The class that the connection configures for an error, by type or code first, then by status."""
    names = (*error.kinds, str(status)) if error_map else ()
    return next((ErrorClass(error_map[name]) for name in names if name in error_map), None)


def meant_status(
    error: ErrorBody, status: int, headers: Mapping[str, str], late_statuses: Mapping[str, int]
) -> int:
    """The status that an error means: that of the model behind a server, or 429 where another throttles."""
    if status == _OF_MODEL:
        status = _status_of_model(error, headers) or status
    kinds = (kind for kind in error.kinds if late_statuses.get(kind) in _PASSING)
    named = next((late_statuses[kind] for kind in kinds), status)
    if status == 400 and named != status:
        return named
    return TOO_MANY_REQUESTS if is_rate_limit(error, status) else status


def _status_of_model(error: ErrorBody, headers: Mapping[str, str]) -> int | None:
    """The 4xx of a model whose server answers 424: Azure ML's header, SageMaker's and Bedrock's field."""
    given = [error.error.get(name) for name in ("OriginalStatusCode", "originalStatusCode")]
    for text in (headers.get("ms-azureml-model-error-statuscode"), *given):
        if str(text).isascii() and str(text).isdigit() and int(str(text)) // 100 == 4:
            return int(str(text))
    return None


def remedy_of_redirect(target: str) -> str:
    """What the operator can do about a redirect, which is not followed."""
    if _LOGIN.search(target):
        return "the credentials are not accepted: check them, and the policy of the proxy before the server"
    if _LONG_CALL in target:
        return "the call takes longer than the service waits"
    return "set base_url to the final address"


def _class_by_wording(error: ErrorBody, status: int) -> ErrorClass | None:
    """The class of an error whose names or first words say more than its status."""
    if rejects_content(error):
        return ErrorClass.PERMANENT
    if status not in (TOO_MANY_REQUESTS, _NO_MONEY) and is_too_long(error):
        return ErrorClass.TOO_LONG
    if status == TOO_MANY_REQUESTS and lacks_capacity(error):
        return ErrorClass.OVERLOADED
    if states_overload(error, status):
        return ErrorClass.OVERLOADED
    if status // 100 == 4 and is_of_gateway(error, status):
        return ErrorClass.PERMANENT
    if status == _NO_MONEY and _PROMPT_BEYOND_CREDITS.match(error.message or ""):
        return ErrorClass.TOO_LONG
    if status == _NO_MONEY and affordable_tokens(error) >= LEAST_ANSWER:
        return ErrorClass.PERMANENT
    return ErrorClass.SERVER_ERROR if states_fault(error, status) else None


def _of_redirect(headers: Mapping[str, str]) -> ErrorClass | None:
    """The class of a redirect to a page where people log in, or to the answer of a call that takes long."""
    target = headers.get("location", "")
    if _LONG_CALL in target:
        return ErrorClass.TIMED_OUT
    return ErrorClass.AUTH if _LOGIN.search(target) else None
