"""Reads the limit that an error's body names: Google's details, and the types of OpenAI and others."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fairlane.model.hints import Axis, AxisHint
from fairlane_workers.providers.limits.amounts import number, reset_ms
from fairlane_workers.providers.limits.clocks import Axes

_MOST_DETAILS = 50
_WAITS = (
    *("retry_after", "retryAfter", "retry_after_seconds", "resets_in_seconds", "resets_at", "reset_at"),
    "rateLimitNext",
)
"""Seconds, or a moment: gateways', OpenAI's of a plan that is used up, Echo's, and Akamai's."""
_AXIS_OF_KIND: dict[str, Axis] = {
    "requests": "requests",
    "tokens": "tokens",
    "input_tokens": "input",
    "output_tokens": "output",
    "limit_requests": "requests",
    "request_quota_exceeded": "requests",
    "token_quota_exceeded": "tokens",
}


class Violations(NamedTuple):
    """Quotas that were exceeded, the one to wait for first."""

    axes: Axes
    exhausted: Axis | None


def named_wait_ms(error: Mapping[str, Any], now_ms: int) -> int | None:
    """The wait in milliseconds that a field of an error gives; ``None`` if none does.

    Google's ``RetryInfo.retryDelay`` (``"22s"``), a field of `_WAITS`, or the reset in the headers that
    OpenRouter puts into ``metadata``.
    """
    for detail in _details(error, "RetryInfo"):
        delay = detail.get("retryDelay")
        if isinstance(delay, str) and (found := reset_ms(delay, 0)) is not None:
            return found
    for name in _WAITS:
        given = error.get(name)
        if isinstance(given, int | float | str) and not isinstance(given, bool):
            return reset_ms(str(given), now_ms)
    metadata = error.get("metadata")
    headers = metadata.get("headers") if isinstance(metadata, dict) else None
    if isinstance(headers, dict):
        shown = {str(name).lower(): str(value) for name, value in headers.items()}
        if shown.get("x-ratelimit-remaining") == "0":
            return reset_ms(shown.get("x-ratelimit-reset"), now_ms)
    return None


def violations(error: Mapping[str, Any], now_ms: int) -> Violations:
    """Google's ``QuotaFailure``: each quota's axis and value.

    A day's quota is renewed at midnight Pacific (https://ai.google.dev/gemini-api/docs/rate-limits), whatever
    ``retryDelay`` says.
    """
    axes: Axes = {}
    for detail in _details(error, "QuotaFailure"):
        for violation in _objects(detail.get("violations")):
            quota, metric = violation.get("quotaId"), violation.get("quotaMetric")
            axis = _axis_of_quota(quota if isinstance(quota, str) else "", metric)
            if axis is None:
                continue
            value = violation.get("quotaValue")
            limit = number(str(value)) if isinstance(value, str | int) else None
            daily = axis == "day"
            if daily and "Token" in str(quota):
                limit = None  # the axis counts requests
            axes[axis] = AxisHint(limit or None, 0, until_midnight_pacific_ms(now_ms) if daily else None)
    return Violations(axes, "day" if "day" in axes else next(iter(axes), None))


def until_midnight_pacific_ms(now_ms: int) -> int:
    """Milliseconds from ``now_ms`` until the next day begins on the American west coast.

    On a machine without time zones it uses winter time all year: in summer the day begins an hour late.
    """
    zone = _pacific()
    now = datetime.fromtimestamp(now_ms / 1000, zone)
    midnight = datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), zone)
    return max(1, round(midnight.astimezone(UTC).timestamp() * 1000) - now_ms)


@cache
def _pacific() -> tzinfo:
    try:
        return ZoneInfo("America/Los_Angeles")
    except ZoneInfoNotFoundError:
        return timezone(timedelta(hours=-8))


def axis_of_kinds(kinds: Iterable[str]) -> Axis | None:
    """The axis in an error's own names (OpenAI's type ``tokens``, ``concurrent_request_limit_exceeded``)."""
    for kind in kinds:
        if kind in _AXIS_OF_KIND or "concurren" in kind:
            return _AXIS_OF_KIND.get(kind, "concurrency")
    return None


def axis_of_type(text: str | None) -> Axis | None:
    """The axis in ``x-ratelimit-type`` (Azure, GitHub Models: ``tokens``, ``UserConcurrentRequests`` …)."""
    if not text:
        return None
    text = text.lower()
    words: tuple[tuple[str, Axis], ...] = (
        ("concurren", "concurrency"),
        ("day", "day"),
        ("token", "tokens"),
        ("request", "requests"),
        ("minute", "requests"),
    )
    return next((axis for word, axis in words if word in text), None)


def _axis_of_quota(quota: str, metric: object) -> Axis | None:
    if "PerDay" in quota:
        return "day"
    quoted = f"{quota} {metric if isinstance(metric, str) else ''}".lower()
    words: tuple[tuple[str, Axis], ...] = (
        ("concurren", "concurrency"),
        ("inputtoken", "input"),
        ("input_token", "input"),
        ("outputtoken", "output"),
        ("output_token", "output"),
        ("token", "tokens"),
        ("request", "requests"),
    )
    return next((axis for word, axis in words if word in quoted), None)


def _details(error: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    for detail in _objects(error.get("details")):
        named = detail.get("@type")
        if isinstance(named, str) and named.endswith(f"google.rpc.{kind}"):
            yield detail


def _objects(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        for item in value[:_MOST_DETAILS]:
            if isinstance(item, dict):
                yield item
