"""What a refusal means: a provider's error, by status and type, to the outcome that the lane learns from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto

from fairlane.job import (
    AccessRefused,
    InvalidResponse,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    TimedOut,
)
from fairlane_workers.providers.error_body import ErrorBody
from fairlane_workers.providers.limits import read_limits, read_refusal
from fairlane_workers.providers.retry_after import retry_after_ms
from fairlane_workers.providers.wording import bounded, scrubbed


class _Verdict(Enum):
    RATE_LIMITED = auto()
    OVERLOADED = auto()
    TIMED_OUT = auto()
    PERMANENT = auto()
    QUOTA = auto()
    AUTH = auto()
    INVALID = auto()


_OF_STATUS = {
    401: _Verdict.AUTH,
    402: _Verdict.QUOTA,
    403: _Verdict.AUTH,
    408: _Verdict.TIMED_OUT,
    429: _Verdict.RATE_LIMITED,
    504: _Verdict.TIMED_OUT,
}
_OF_CLASS = {3: _Verdict.PERMANENT, 4: _Verdict.PERMANENT, 5: _Verdict.OVERLOADED}

# Money is spent or forbidden: coming back sooner changes nothing.
_QUOTA_KINDS = frozenset(
    {
        "insufficient_quota",
        "credit_balance_exhausted",
        "enforced_spend_limit_reached",
        "billing_error",
        "billing_hard_limit_reached",
        "billing_not_active",
    }
)
_QUOTA_ENDINGS = ("_spend_limit_exceeded", "_usage_limit_exceeded")
_CONTENT_KINDS = frozenset({"content_filter", "content_policy_violation"})

# Azure answers `insufficient_quota` where it means a rate that the next window (60 s) restores.
_AZURE_HEADERS = ("apim-request-id", "x-ms-region", "x-ratelimit-renewalperiod-requests")
_AZURE_SHORT_MS = 120_000

# The status an error would have had, for errors that arrive after a 200: in a stream, or as the whole body.
_ANTHROPIC_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_OPENAI_STATUS = {
    **_ANTHROPIC_STATUS,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
    "invalid_api_key": 401,
    "model_not_found": 404,
    "insufficient_quota": 429,
    "credit_balance_exhausted": 429,
    "rate_limit_exceeded": 429,
    "resource_exhausted": 429,
    "slow_down": 429,
    "server_error": 500,
    "server_is_overloaded": 503,
    "service_unavailable_error": 503,
}
_STATUS_OF_KIND = {"openai": _OPENAI_STATUS, "anthropic": _ANTHROPIC_STATUS}
_UNKNOWN_STATUS = 500


def classify(
    protocol: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now_ms: int,
    secrets: Iterable[str] = (),
    limits: str | None = None,
) -> Outcome:
    """The outcome of an answer whose HTTP status is not 2xx.

    Only the status and the error's own type and code decide, never its prose ("request 4291 tokens" is not a
    429). ``headers`` are looked up in lower case. The message is the provider's own, bounded, without
    ``secrets``; ``now_ms`` (epoch milliseconds) is for Retry-After. ``limits`` names the dialect that the
    hints are told in (`fairlane_workers.providers.limits`); the headers may prove another one.
    """
    error = ErrorBody.parse(body)
    message = bounded(scrubbed(error.message or _wordless(status, headers), secrets))
    return _outcome(protocol, status, error, headers, message, now_ms, limits)


def classify_late_error(
    protocol: str,
    error: object,
    headers: Mapping[str, str],
    *,
    now_ms: int,
    secrets: Iterable[str] = (),
    limits: str | None = None,
) -> Outcome:
    """The outcome of an error that came after a 2xx: its type stands for the status it would have had.

    A type that nobody knows counts as the server's own fault (500): it is tried again.
    """
    body = ErrorBody.of(error)
    known = _STATUS_OF_KIND.get(protocol, _OPENAI_STATUS)
    named = next((known[kind] for kind in body.kinds if kind in known), None)
    fallback = 429 if any(map(_is_quota, body.kinds)) else _UNKNOWN_STATUS
    message = body.message or f"an error without a message after HTTP 200 ({', '.join(body.kinds)})"
    message = bounded(scrubbed(message, secrets))
    return _outcome(protocol, named or body.status or fallback, body, headers, message, now_ms, limits)


def _outcome(
    protocol: str,
    status: int,
    error: ErrorBody,
    headers: Mapping[str, str],
    message: str,
    now_ms: int,
    limits: str | None,
) -> Outcome:
    wait_ms = retry_after_ms(headers, now_ms)
    azure = protocol == "openai" and any(headers.get(name) is not None for name in _AZURE_HEADERS)
    brief = azure and wait_ms is not None and wait_ms <= _AZURE_SHORT_MS
    verdict = _verdict(status, frozenset(error.kinds), brief_azure_wait=brief)
    if verdict is _Verdict.RATE_LIMITED:
        hints, wait_ms = read_refusal(limits, headers, error, wait_ms, now_ms)
        return RateLimited(message, status, wait_ms, hints)
    hints = read_limits(limits, headers, now_ms)
    match verdict:
        case _Verdict.OVERLOADED:
            return Overloaded(message, status, wait_ms, hints)
        case _Verdict.TIMED_OUT:
            return TimedOut(message, status, wait_ms, hints)
        case _Verdict.PERMANENT:
            return PermanentFailure(message, status, wait_ms, hints)
        case _Verdict.QUOTA:
            return AccessRefused(message, status, "quota", wait_ms, hints)
        case _Verdict.AUTH:
            return AccessRefused(message, status, "auth", wait_ms, hints)
        case _Verdict.INVALID:
            return InvalidResponse(message, status, wait_ms, hints)


def _verdict(status: int, kinds: frozenset[str], *, brief_azure_wait: bool) -> _Verdict:
    if status // 100 == 4:
        if any(map(_is_quota, kinds)) and not (status == 429 and brief_azure_wait):
            return _Verdict.QUOTA
        if kinds & _CONTENT_KINDS:
            return _Verdict.PERMANENT
    if status == 503 and "resource_exhausted" in kinds:
        return _Verdict.RATE_LIMITED
    return _OF_STATUS.get(status) or _OF_CLASS.get(status // 100, _Verdict.INVALID)


def _is_quota(kind: str) -> bool:
    return kind in _QUOTA_KINDS or kind.endswith(_QUOTA_ENDINGS)


def _wordless(status: int, headers: Mapping[str, str]) -> str:
    """A message for an answer that brought none of its own."""
    if status // 100 == 3:
        target = headers.get("location") or "nowhere"
        return f"HTTP {status}: redirects to {target} and is not followed; set base_url to the final address"
    return f"HTTP {status} without a message"
