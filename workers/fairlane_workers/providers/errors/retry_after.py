"""Reads the wait that an answer names: Retry-After in every form that providers send, or its message."""

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from functools import lru_cache

_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{0,20})?", re.ASCII)
_LONGEST = 100

# The size of a bare number shows its unit: no pause lasts 31 years, and no date in use lies before 2001
# (epoch seconds) or 1973 (epoch milliseconds).
_EPOCH_SECONDS = Decimal(10) ** 9
_EPOCH_MILLISECONDS = Decimal(10) ** 11
_YEAR_5138 = Decimal(10) ** 14

_FINE = ("retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after")
"""Headers in milliseconds: OpenAI's, and those that azure-core and botocore read as well."""

_LENGTH = 2000
"""Characters of a message that are read."""
_LONGEST_IN_WORDS_MS = 3_600_000
"""A longer wait in words is not believed: Azure's sentences ask for a day where a minute is enough."""
# As in: resets at 2026-05-15T15:00:00Z, please try after 2026-05-15T15:00:00Z
_DATE = re.compile(
    r"\b(?:regain|access|resets?|renews?|available|again)\b[^.\n]{0,30}? (?:on|at|after) "
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:(?: at |[ T])([0-9]{2}:[0-9]{2}(?::[0-9]{2})?))? ?(?:UTC\b|GMT\b|Z\b)",
    re.IGNORECASE,
)
"""As in: You will regain access on 2026-12-01 at 00:00 UTC. A time without its zone may be hours off."""
_LATEST_DATE_MS = 100 * 86_400_000
"""Budgets are renewed after a month, or a quarter of a year."""
_MOMENT = re.compile(
    r"\b(?:try|retry|resets?|renews)(?: again)? (?:at|after|on):? "
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d))",
    re.ASCII | re.IGNORECASE,
)
# As in: 5s, 1m30s, 500ms, 10 seconds, 2 min, 1d2h, 250us
_LENGTHS = (
    r"(?:([0-9]{1,6}(?:\.[0-9]{1,12})?) ?(?:days?|d) ?)?"
    r"(?:([0-9]{1,6}(?:\.[0-9]{1,12})?) ?(?:hours?|hrs?|h) ?)?"
    r"(?:([0-9]{1,6}(?:\.[0-9]{1,12})?) ?(?:minutes?|mins?|m(?!s)) ?)?"
    r"(?:([0-9]{1,9}(?:\.[0-9]{1,12})?) ?(?:seconds?|secs?|s) ?)?"
    r"(?:([0-9]{1,12}(?:\.[0-9]{1,12})?) ?(?:milliseconds?|ms) ?)?"
    r"(?:([0-9]{1,12}(?:\.[0-9]{1,12})?) ?(?:us|µs))?"
)
_DURATION = re.compile(_LENGTHS, re.ASCII | re.IGNORECASE)
# As in: Please try again in 6m12.5s, retry after 10 seconds, resets in ~30s, available in 5 seconds, or
# Akamai's: You can submit the request after 49 seconds
_WAIT = re.compile(
    r"\b(?:(?:try again|retry|wait|resets?)(?: again)?(?: in| after| for)?|available in|request after):? ~?"
    rf"(?P<wait>(?=[0-9]){_LENGTHS}(?<=[a-z]))\b",
    re.IGNORECASE,
)
_UNITS_MS = (86_400_000.0, 3_600_000.0, 60_000.0, 1000.0, 1.0, 0.001)
_BETWEEN = re.compile(r"(?<!day)(?<!mon)(?<!tue)(?<!wed)(?<!thu)(?<!fri)(?<!sat)(?<!sun),\s+", re.IGNORECASE)
"""Between the values of a header that came twice; the comma after a day's name is a date's."""


def retry_after_ms(headers: Mapping[str, str], now_ms: int) -> int | None:
    """Milliseconds until the provider accepts calls again, rounded up; ``None`` if it does not say.

    ``headers`` have names in lower case. One of `_FINE` takes precedence, unless it is 0 and ``retry-after``
    is not. ``now_ms`` (epoch milliseconds) turns a date into a duration. If the answer has
    its own ``date``, that does: both times are the provider's, and clock differences cancel out. Past,
    negative and unreadable values are ``None``. Of a header that came twice, as a gateway and the server
    behind it send it, the longest wait counts.
    """
    fine = next((headers[name] for name in _FINE if name in headers), None)
    coarse = headers.get("retry-after")
    if fine is None and coarse is None:
        return None
    now_ms = provider_now_ms(headers, now_ms)
    fine_ms = _longest(fine, lambda text: _number_ms(text, now_ms, unit_ms=1))
    if fine_ms or coarse is None:
        return fine_ms
    coarse_ms = _longest(coarse, lambda text: wait_ms(text, now_ms))
    return fine_ms if coarse_ms is None else coarse_ms


def _longest(header: str | None, read: Callable[[str], int | None]) -> int | None:
    values = [] if header is None else _BETWEEN.split(header[: 4 * _LONGEST])
    waits = (read(text.strip()) for text in values)
    return max((wait for wait in waits if wait is not None), default=None)


def provider_now_ms(headers: Mapping[str, str], now_ms: int) -> int:
    """The answer's own ``date`` in epoch milliseconds, or ``now_ms`` if it has none."""
    sent = headers.get("date")
    sent_ms = _date_ms(sent) if sent else None
    return sent_ms if sent_ms is not None and 0 < sent_ms < _YEAR_5138 else now_ms


def wait_ms(text: str, now_ms: int) -> int | None:
    """Milliseconds from ``now_ms`` to a time: seconds, a duration with units, a date or an epoch; ``None`` if
    past or unreadable.
    """
    if _NUMBER.fullmatch(text):
        return _number_ms(text, now_ms, unit_ms=1000)
    if text[:1].isdigit() and (length_ms := _length_ms(text)) is not None:
        return length_ms
    date_ms = _date_ms(text)
    return None if date_ms is None or date_ms < now_ms else date_ms - now_ms


def wait_in_words_ms(message: str | None, now_ms: int) -> int | None:
    """Milliseconds that a sentence asks to wait, rounded up; ``None`` if it asks for no wait.

    A duration is believed up to an hour, a moment however late it is. ``now_ms`` is in epoch milliseconds.
    """
    if not message:
        return None
    message = message[:_LENGTH]
    if found := _MOMENT.search(message):
        return wait_ms(found[1].upper(), now_ms)
    found = _WAIT.search(message)
    asked_ms = wait_ms(found["wait"], now_ms) if found else None
    return asked_ms if asked_ms is not None and asked_ms <= _LONGEST_IN_WORDS_MS else None


def stated_date_ms(message: str | None, now_ms: int) -> int | None:
    """Milliseconds until the day and time in UTC from which a sentence grants access again.

    ``None`` if it states none, one that is past, or one later than `_LATEST_DATE_MS`.
    """
    found = _DATE.search((message or "")[:_LENGTH])
    if found is None:
        return None
    until_ms = wait_ms(f"{found[1]}T{found[2] or '00:00'}+00:00", now_ms)
    return until_ms if until_ms is not None and until_ms <= _LATEST_DATE_MS else None


def _number_ms(text: str, now_ms: int, *, unit_ms: int) -> int | None:
    if not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    if number >= _YEAR_5138:
        return None
    if number >= _EPOCH_MILLISECONDS:
        delay = number - now_ms
    elif number >= _EPOCH_SECONDS and unit_ms == 1000:
        delay = number * 1000 - now_ms
    else:
        delay = number * unit_ms
    return None if delay < 0 else math.ceil(delay)


@lru_cache(maxsize=256)  # answers of some seconds share the resets of their limits
def _length_ms(text: str) -> int | None:
    """Milliseconds of a duration with units, rounded up; ``None`` for any other text."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    parts = zip(found.groups(), _UNITS_MS, strict=True)
    return math.ceil(round(sum(float(part) * unit_ms for part, unit_ms in parts if part), 6))


@lru_cache(maxsize=256)  # answers of one second share their dates
def _date_ms(text: str) -> int | None:
    """Epoch milliseconds of an HTTP date (any of its three forms) or an RFC 3339 date."""
    if len(text) > _LONGEST:
        return None
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError, TypeError, IndexError, OverflowError):
            moment = read(text)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            return round(moment.timestamp() * 1000)
    return None
