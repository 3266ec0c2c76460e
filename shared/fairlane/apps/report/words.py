"""Numbers, amounts and times as a report writes them."""

from datetime import UTC, datetime

TEXT_CHARS = 4000
"""Characters shown of a row's field or of an output."""


def number(value: float | None) -> str:
    """Four significant digits; a dash for ``None``."""
    return "–" if value is None else f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def change(value: float | None) -> str:
    """A difference, with its sign."""
    return "–" if value is None else f"{value:+,.4g}"


def tick(value: float) -> str:
    """Three significant digits, for an axis."""
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def error(value: float | None) -> str:
    """Two significant digits of a standard error; a dash for ``None``."""
    return "–" if value is None else f"{value:,.2g}"


def percent(part: float, whole: float) -> str:
    """A percentage, rounded down: 100 % only for all."""
    return f"{int(1000 * part / whole) / 10:g} %" if whole else "–"


def short(count: float) -> str:
    """``"999,999"``, ``"1.23 M"``, ``"45.6 G"``."""
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:,.0f}"


def latency(milliseconds: float) -> str:
    """``"850 ms"``, ``"1.25 s"``, ``"95 s"``."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / 1000:.3g} s" if milliseconds < 1e6 else f"{milliseconds / 1000:,.0f} s"


def took(milliseconds: float) -> str:
    """``"42.3 s"``, ``"1:02 min"``, ``"1:02:03 h"``."""
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(int(milliseconds) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02} h" if hours else f"{minutes}:{seconds:02} min"


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
