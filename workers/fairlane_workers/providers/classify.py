"""What a refusal means: a provider's error, by status and type, to the outcome that the lane learns from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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


class _Verdict(StrEnum):
    """The values are what `settings.Connection.error_map` may say."""

    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    TIMED_OUT = "timed_out"
    PERMANENT = "permanent"
    QUOTA = "quota"
    AUTH = "auth"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Reading:
    """How a connection's refusals are read.

    ``limits`` names the dialect that hints are told in (`fairlane_workers.providers.limits`); the headers may
    prove another one. ``error_map`` says what an error is whose kind (lower case) or status is its key, ahead
    of all rules. ``late_statuses``: see `Dialect`.
    """

    limits: str | None = None
    error_map: Mapping[str, str] = field(default_factory=dict)
    late_statuses: Mapping[str, int] = field(default_factory=dict)


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
        "billing_error",
        "billing_disabled",
        "billing_hard_limit_reached",
        "billing_not_active",
        "servicequotaexceededexception",
    }
)
_QUOTA_ENDINGS = ("_spend_limit_exceeded", "_spend_limit_reached", "_usage_limit_exceeded")

# Amazon says some of this with a 400: https://docs.aws.amazon.com/bedrock/latest/APIReference/CommonErrors.html
_AUTH_KINDS = frozenset(
    {
        *("expiredtoken", "expiredtokenexception", "incompletesignature", "incompletesignatureexception"),
        *("invalidclienttokenid", "invalidsignatureexception", "missingauthenticationtoken"),
        *("missingauthenticationtokenexception", "notauthorized", "requestexpired"),
        "unrecognizedclientexception",
        # Google's and Anthropic's, with a 400 too.
        *("api_key_invalid", "api_key_expired", "organization_on_hold"),
    }
)
# Bedrock's 424: the model broke, not the request.
_SERVER_KINDS = frozenset({"modelerrorexception", "modelstreamerrorexception"})
_CONTENT_KINDS = frozenset({"content_filter", "content_policy_violation"})

# Azure answers `insufficient_quota` where it means a rate that the next window (60 s) restores.
_AZURE_HEADERS = ("apim-request-id", "x-ms-region", "x-ratelimit-renewalperiod-requests")
_AZURE_SHORT_MS = 120_000

_UNKNOWN_STATUS = 500


def classify(
    error: ErrorBody,
    status: int,
    headers: Mapping[str, str],
    reading: Reading,
    *,
    now_ms: int,
    secrets: tuple[str, ...] = (),
) -> Outcome:
    """The outcome of an answer whose HTTP status is not 2xx.

    Only the status and the error's own type and code decide, never its prose ("request 4291 tokens" is not a
    429). ``headers`` are looked up in lower case. The message is the provider's own, bounded, without
    ``secrets``; ``now_ms`` (epoch milliseconds) is for Retry-After.
    """
    message = bounded(scrubbed(error.message or _wordless(status, headers), secrets))
    return _outcome(error, status, headers, message, reading, now_ms)


def classify_late_error(
    error: ErrorBody,
    headers: Mapping[str, str],
    reading: Reading,
    *,
    now_ms: int,
    secrets: tuple[str, ...] = (),
) -> Outcome:
    """The outcome of an error that came after a 2xx: its type stands for the status it would have had.

    A type that nobody knows counts as the server's own fault (500): it is tried again.
    """
    known = reading.late_statuses
    named = next((known[kind] for kind in error.kinds if kind in known), None)
    fallback = 429 if any(map(_is_quota, error.kinds)) else _UNKNOWN_STATUS
    message = error.message or f"an error without a message after HTTP 200 ({', '.join(error.kinds)})"
    message = bounded(scrubbed(message, secrets))
    return _outcome(error, named or error.status or fallback, headers, message, reading, now_ms)


def _outcome(
    error: ErrorBody, status: int, headers: Mapping[str, str], message: str, reading: Reading, now_ms: int
) -> Outcome:
    wait_ms, limits = retry_after_ms(headers, now_ms), reading.limits
    azure = any(headers.get(name) is not None for name in _AZURE_HEADERS)
    brief = azure and wait_ms is not None and wait_ms <= _AZURE_SHORT_MS
    verdict = _told(error, status, reading.error_map) or _verdict(
        status, frozenset(error.kinds), brief_azure_wait=brief
    )
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


def _told(error: ErrorBody, status: int, error_map: Mapping[str, str]) -> _Verdict | None:
    """What the connection says of such an error; its kind goes before its status."""
    names = (*error.kinds, str(status)) if error_map else ()
    return next((_Verdict(error_map[name]) for name in names if name in error_map), None)


def _verdict(status: int, kinds: frozenset[str], *, brief_azure_wait: bool) -> _Verdict:
    if status // 100 == 4:
        if any(map(_is_quota, kinds)) and not (status == 429 and brief_azure_wait):
            return _Verdict.QUOTA
        if kinds & _AUTH_KINDS:
            return _Verdict.AUTH
        if kinds & _SERVER_KINDS:
            return _Verdict.OVERLOADED
        if kinds & _CONTENT_KINDS:
            return _Verdict.PERMANENT
    if status == 503 and "resource_exhausted" in kinds:
        return _Verdict.RATE_LIMITED
    if status == 499 and "cancelled" in kinds:  # Google's: the server gave the call up
        return _Verdict.TIMED_OUT
    return _OF_STATUS.get(status) or _OF_CLASS.get(status // 100, _Verdict.INVALID)


def _is_quota(kind: str) -> bool:
    return kind in _QUOTA_KINDS or kind.endswith(_QUOTA_ENDINGS)


def _wordless(status: int, headers: Mapping[str, str]) -> str:
    """A message for an answer that brought none of its own."""
    if status // 100 == 3:
        target = headers.get("location") or "nowhere"
        return f"HTTP {status}: redirects to {target} and is not followed; set base_url to the final address"
    return f"HTTP {status} without a message"
