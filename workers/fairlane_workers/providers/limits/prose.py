"""Reads the limit that the sentence of a 429 names.

Providers, gateways and proxies word it in their own ways, and many send nothing else. So the reader knows the
field's words, and hardly any provider's sentence: an amount with a period (``tokens per min``), and calls at
once. Two limits name none, unless one of them stands in a sentence of advice.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from fairlane.model.hints import Axis
from fairlane_workers.providers.limits.amounts import number

_LENGTH = 2000
"""Characters of a message that are read: what it is about comes first."""
_NEAR = 80
"""Characters before and after a limit's name that may hold its size."""

_AXES: tuple[tuple[str, Axis], ...] = (
    ("input", "input"), ("prompt", "input"), ("output", "output"), ("completion", "output"), ("t", "tokens"),
)  # fmt: skip
"""The axis of an amount, by how it begins; all others count requests."""
_MINUTES: dict[str, float] = {"s": 1 / 60, "m": 1.0}
"""Periods in minutes, by their first letter. An hour's limit says little of a minute, so it has no size."""

_NOUN = r"((?:(?:input|prompt|output|completion)[ _])?(?:requests?|tokens?|calls?|query|queries))"
_PERIOD = r"(s|sec|second|m|min|minute|h|hour|d|day)(?![a-z0-9])"
_WORD = r"(?<![a-z0-9])"
_NAMES = (
    # As in: tokens per min (TPM), requests_per_minute_per_project, 40 API calls / minute
    re.compile(rf"{_WORD}{_NOUN}[ _]?(?:per|/|an?)[ _]?{_PERIOD}(?:\s?\([rt]p[smhd]\))?", re.IGNORECASE),
    # As in: max RPM: 20, or TPM limit reached
    re.compile(r"(?<![a-z0-9(])([rt])p([smhd])(?![a-z0-9])", re.IGNORECASE),
    # As in SlowAPI's and Flask-Limiter's "600 per 1 minute"
    re.compile(rf"(?<=[0-9] )()per (?:1 )?{_PERIOD}", re.IGNORECASE),
    # As in OpenRouter's free-models-per-day
    re.compile(rf"{_WORD}()[a-z]+-per-{_PERIOD}", re.IGNORECASE),
    # As in: exceeded token rate limit, or Requests rate limit exceeded
    re.compile(rf"{_WORD}{_NOUN}[ _]rate[ _]limit()", re.IGNORECASE),
    # As in: Rate limit reached for requests, or Limit type: tokens
    re.compile(rf"\blimit (?:reached|exceeded) (?:for|on) {_NOUN}()\b(?! plan\b)", re.IGNORECASE),
    re.compile(rf"\blimit type: {_NOUN}()\b", re.IGNORECASE),
    # As in: Number of request tokens has exceeded your daily rate limit
    re.compile(rf"\bnumber of (?:request )?{_NOUN}()\b", re.IGNORECASE),
    # Amazon's and xAI's. Any HTTP server's "Too many requests" names no limit.
    re.compile(r"^too many (tokens)()\b(?! per\b)", re.IGNORECASE),
    re.compile(r"^too many (requests|tokens)(?: per (day))?,", re.IGNORECASE),
)
_EITHER = re.compile(r"\b(?:requests? (?:or|and) tokens?|tokens? (?:or|and) requests?)\b", re.IGNORECASE)
_ADVICE = re.compile(
    r"(?:^|(?<=[.!\n])) {0,3}(?:please |to |you can |consider )?"
    r"(?:(?:rais|increas|reduc|lower|upgrad|slow|contact|check)\w{0,3}|see|visit)\b[^.!\n]{0,300}",
    re.IGNORECASE,
)
"""A sentence of advice, as LiteLLM's: "Raise max_parallel_requests (or the rpm/tpm it is derived from)"."""
_AMOUNT = r"([0-9][0-9,]{0,14}(?:\.[0-9]{1,6})?)(?![0-9])"
_LONG = re.compile(
    # As in: Weekly limit reached, your daily free allocation, Monthly token quota exceeded
    r"\b(?:daily|weekly|monthly)\b[^.\n]{0,40}?\b(?:limits?|quotas?|allocation|allowance|usage|cap)\b"
    # As in: you've reached your session usage limit
    r"|\b(?:session|hourly) usage limit\b"
    # As in: limited to 1000 API calls / month, the request limit for today
    r"|\b(?:limits?|quotas?|requests?|tokens?|calls?)[^.\n]{0,20}?(?:\b(?:per|for|of|an?)|/) ?"
    r"(?:today|(?:the |this )?(?:week|month))\b"
    # As in: 5-hour usage limit reached, Usage limit reached for 5 hour
    r"|\b[0-9]{1,2}-hour\b[^.\n]{0,20}?\blimit\b"
    r"|\blimit (?:reached|exceeded) for [0-9]{1,2}[ -]hours?\b"
    # All that Amazon's API Gateway says of a usage plan's quota; its throttle says "Too Many Requests"
    r"|\A\s*limit exceeded\W*\Z",
    re.IGNORECASE,
)
"""Limits of many hours and more: they are renewed too late to be waited for call by call."""
_IN_SECONDS = re.compile(rf"\blimit of {_AMOUNT} per ([0-9]{{1,6}})s\b", re.IGNORECASE)
"""GitHub Models': "Rate limit of 50 per 86400s exceeded for UserByModelByDay"."""
_DAY_S = 86_400
_DAILY = re.compile(r"\b(?:daily|(?:per|a)[ -]day)\b", re.IGNORECASE)
_AT_ONCE = re.compile(
    r"concurren(?:cy|t)(?: requests?| connections?| calls?)?"
    r"|(?:parallel|simultaneous|in[- ]?flight)[ _](?:requests?|calls?|connections?)"
    r"|并发",
    re.IGNORECASE,
)

_SIZES_AFTER = (
    re.compile(rf"^\s*(?::|=|is)\s*{_AMOUNT}"),  # "max RPM: 20"
    re.compile(rf"^[^\n]{{0,60}}?\blimit(?::?\s+|=){_AMOUNT}", re.IGNORECASE),  # "…: Limit 10000, Used 9000"
    re.compile(
        rf"^[^\n]{{0,30}}?/limit\):\s*[0-9]+/{_AMOUNT}", re.IGNORECASE
    ),  # "(actual/limit): 65605/16000"
)
_SIZE_BEFORE = re.compile(  # "rate limit of 40,000 input tokens per minute"
    rf"\b(?:of|to|is|limit:|exceeded:|reached:|requests:|maximum|max|than)\s+{_AMOUNT}(?: API)?\s+$",
    re.IGNORECASE,
)

_LONG_CONTEXT = re.compile(r"^extra usage is required for long context", re.IGNORECASE)
"""Anthropic's, for one request that is too long for its plan."""
_REQUESTED = re.compile(rf"\blimit:?\s+{_AMOUNT}[^\n]{{0,40}}?\brequested:?\s+~?{_AMOUNT}", re.IGNORECASE)


class NamedLimit(NamedTuple):
    """A limit that an error names: its axis and, if given, its size."""

    axis: Axis
    limit: float | None = None


def named_limit(message: str | None) -> NamedLimit | None:
    """The one limit that a sentence names; only for an answer whose status or type says rate limited.

    The size is per minute (a limit per second is multiplied), per day on the axis ``day``, at once on
    ``concurrency``. A day's limit of tokens has none: that axis counts requests. A limit of hours, a week or
    a month is on it, too, without a size.
    """
    if not message:
        return None
    message = message[:_LENGTH]
    for text in (message, _ADVICE.sub(" ", message)):
        found = list(_found(text))
        if len({limit.axis for limit in found}) == 1:
            return next((limit for limit in found if limit.limit), found[0])
    return None


def is_beyond_limit(message: str | None) -> bool:
    """Whether a sentence names a limit and a larger request, as OpenAI's and Groq's do: no wait admits it."""
    found = _REQUESTED.search(message[:_LENGTH]) if message else None
    if found is None:
        return False
    limit, requested = (number(each.replace(",", "")) for each in found.groups())
    return bool(limit and requested and requested > limit)


def is_too_long_for_plan(message: str | None) -> bool:
    """Whether a 429 says that one request is too long for the account's plan, as Anthropic's does."""
    return message is not None and _LONG_CONTEXT.match(message) is not None


def _found(message: str) -> Iterator[NamedLimit]:
    """Every limit that the message names, also repeatedly."""
    if _EITHER.search(message):
        return
    at_once = list(_AT_ONCE.finditer(message))
    for name in at_once:
        yield NamedLimit("concurrency", _size(message, name))
    if _LONG.search(_ADVICE.sub(" ", message)):
        yield NamedLimit("day")
    if (found := _IN_SECONDS.search(message)) and (seconds := int(found[2])):
        amount = number(found[1].replace(",", ""))
        if seconds == _DAY_S:
            yield NamedLimit("day", amount)
        elif amount:
            yield NamedLimit("requests", amount * 60 / seconds)
    daily = _DAILY.search(message) is not None
    for pattern in _NAMES:
        for name in pattern.finditer(message):
            axis = _axis(name[1].lower())
            period = (name[2] or "").lower()[:1]
            if at_once and not period:
                continue  # as in: Concurrency limit reached for requests
            if period == "d" or (daily and not period):
                yield NamedLimit("day", _size(message, name) if axis == "requests" else None)
                continue
            minutes = _MINUTES.get(period or "m")
            size = _size(message, name) if minutes else None
            yield NamedLimit(axis, size and minutes and size / minutes)


def _axis(noun: str) -> Axis:
    for start, axis in _AXES:
        if noun.startswith(start):
            return axis
    return "requests"


def _size(message: str, name: re.Match[str]) -> float | None:
    """The number that goes with a limit's name: just before it, or as "limit" after it."""
    found = _SIZE_BEFORE.search(message[max(0, name.start() - _NEAR) : name.start()])
    after = message[name.end() : name.end() + _NEAR]
    for pattern in _SIZES_AFTER:
        found = found or pattern.search(after)
    return number(found[1].replace(",", "")) or None if found else None
