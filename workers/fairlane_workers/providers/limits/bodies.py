"""Reads the limit that an error's body names: Google's details, OpenAI's types, prose as a last resort."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fairlane.model.hints import Axis, AxisHint
from fairlane_workers.providers.limits.amounts import number, reset_ms
from fairlane_workers.providers.limits.clocks import Axes

_MOST_DETAILS = 50
_AXIS_OF_KIND: dict[str, Axis] = {
    "requests": "requests",
    "tokens": "tokens",
    "input_tokens": "input",
    "output_tokens": "output",
    "request_quota_exceeded": "requests",
    "token_quota_exceeded": "tokens",
}
_AXIS_OF_NOUN: dict[str, Axis] = {
    "requests": "requests",
    "tokens": "tokens",
    "input tokens": "input",
    "output tokens": "output",
}

_PROSE_LENGTH = 2000
_NOUN = r"\b(requests|(?:input |output )?tokens)"
_OPENAI_PROSE = re.compile(
    rf"\bon {_NOUN} per (min|minute|day)\b[^:.]{{0,20}}[:.] Limit:? ([0-9][0-9,]{{0,14}})"
)
_ANTHROPIC_PROSE = re.compile(rf"\bof ([0-9][0-9,]{{0,14}}) {_NOUN} per (min|minute|day)\b")
_BEDROCK_PROSE = re.compile(r"^Too many (requests|tokens)( per day)?,")


class NamedLimit(NamedTuple):
    """A limit that an error names: its axis and, if given, its size."""

    axis: Axis
    limit: float | None = None


class Violations(NamedTuple):
    """Quotas that were exceeded, the one to wait for first."""

    axes: Axes
    exhausted: Axis | None


def retry_info_ms(error: Mapping[str, Any]) -> int | None:
    """Google's ``RetryInfo.retryDelay`` (``"22s"``)."""
    for detail in _details(error, "RetryInfo"):
        delay = detail.get("retryDelay")
        if isinstance(delay, str) and (found := reset_ms(delay, 0)) is not None:
            return found
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
    """The axis in an error's own names (OpenAI's type ``tokens`` or ``requests``)."""
    return next((_AXIS_OF_KIND[kind] for kind in kinds if kind in _AXIS_OF_KIND), None)


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


def said_in_prose(message: str | None) -> NamedLimit | None:
    """The limit that a sentence names; only for an answer whose status or type says rate limited."""
    if not message:
        return None
    message = message[:_PROSE_LENGTH]
    if found := _OPENAI_PROSE.search(message):
        noun, period, limit = found.groups()
    elif found := _ANTHROPIC_PROSE.search(message):
        limit, noun, period = found.groups()
    elif found := _BEDROCK_PROSE.search(message):
        return NamedLimit("day" if found[2] else _AXIS_OF_NOUN[found[1]])
    else:
        return None
    amount = number(limit.replace(",", "")) or None
    if period == "day":
        return NamedLimit("day", amount if noun == "requests" else None)
    return NamedLimit(_AXIS_OF_NOUN[noun], amount)


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
