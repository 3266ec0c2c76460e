"""Numbers and times that only a report writes."""

from datetime import UTC, datetime

from fairlane.core import figures

TEXT_CHARS = 4000
"""Characters shown of a row's field or of an output."""


def change(value: float | None) -> str:
    """A difference, with its sign."""
    return figures.figure(value, sign="+")


def error(value: float | None) -> str:
    """Two digits of a standard error; a dash for ``None``."""
    return figures.figure(value, 2)


def percent(part: float, whole: float) -> str:
    """A percentage to a tenth: 100 % only for all."""
    return f"{figures.percent(part, whole, 1).removesuffix('.0')} %" if whole else "–"


def clock(milliseconds: float) -> str:
    """A time since the start, for an axis: ``"0:36"``, ``"1:02:03"``."""
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def moment(at_ms: int) -> str:
    """``"31 January 2026, 08:05 UTC"``."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at.day} {at:%B %Y, %H:%M} UTC"


def clipped(text: str) -> str:
    """At most `TEXT_CHARS` of a text, with an ellipsis if some are missing."""
    return text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]}…"
