"""Parses header texts as numbers and durations: bounded, and ``None`` for implausible values."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from fairlane_workers.providers.errors.retry_after import wait_ms

MOST = 1e12
_LONGEST = 100
LONGEST_MS = 31 * 86_400_000

_NUMBER = re.compile(r"[0-9]{1,13}(\.[0-9]{0,20})?", re.ASCII)
_PART = r"(?:([0-9]{1,12}(?:\.[0-9]{0,12})?)%s)?"
_DURATION = re.compile(
    "".join(_PART % unit for unit in ("d", "h", "m(?!s)", "s", "ms", "(?:us|µs)")), re.ASCII
)
_UNITS_MS = (86_400_000.0, 3_600_000.0, 60_000.0, 1000.0, 1.0, 0.001)


def number(text: str | None) -> float | None:
    """A count of at least 0 and at most `MOST`; ``-1`` and the like mean unknown."""
    if text is None:
        return None
    if len(text) <= 12 and text.isdigit() and text.isascii():
        return float(text)
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if value <= MOST else None


def reset_ms(text: str | None, now_ms: int) -> int | None:
    """Milliseconds, rounded up, until the time in ``text``: at least 0 and at most `LONGEST_MS`.

    ``6m0s``, ``2m59.56s``, ``12ms`` and ``1s`` are durations. A bare number is seconds, epoch seconds or
    epoch milliseconds, depending on its size; dates are RFC 3339 or HTTP's.
    """
    if not text or len(text) > _LONGEST:
        return None
    text = text.strip()
    found = _duration_ms(text) if _has_unit(text) else wait_ms(text, now_ms)
    return found if found is not None and found <= LONGEST_MS else None


def _has_unit(text: str) -> bool:
    """Whether the text is a duration: it ends with a unit and, unlike a date, begins with a digit."""
    return text[-1:] in ("s", "m", "h", "d") and text[:1].isdigit()


@lru_cache(maxsize=1024)  # few distinct resets occur within seconds
def _duration_ms(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    total = 0.0
    for part, unit_ms in zip(match.groups(), _UNITS_MS, strict=True):
        if part:
            total += float(part) * unit_ms
    return math.ceil(round(total, 6))
