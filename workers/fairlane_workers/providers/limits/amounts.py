"""Parses header texts as numbers and durations: bounded, and ``None`` for implausible values."""

import re

from fairlane_workers.providers.errors.retry_after import wait_ms

MOST = 1e12
_LONGEST = 100
LONGEST_MS = 31 * 86_400_000
_PAST_MS = 3_600_000

_NUMBER = re.compile(r"[0-9]{1,13}(\.[0-9]{0,20})?", re.ASCII)
_SPACED = re.compile(r"[0-9].* .*[smhd]", re.ASCII)
"""As in "1 m", which may be anything; a date begins or ends otherwise."""


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

    A date may have passed while the provider answered: up to an hour ago is 0.

    ``6m0s``, ``2m59.56s``, ``12ms`` and ``1s`` are durations. A bare number is seconds, epoch seconds or
    epoch milliseconds, depending on its size; dates are RFC 3339 or HTTP's.
    """
    if not text or len(text) > _LONGEST:
        return None
    text = text.strip()
    if _SPACED.fullmatch(text):
        return None
    found = wait_ms(text, now_ms)
    if found is None and wait_ms(text, now_ms - _PAST_MS) is not None:
        return 0
    return found if found is not None and found <= LONGEST_MS else None
