"""Times as people read them: how long ago, how long still; and as programs do: ISO 8601, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def iso(at_ms: int | None) -> str | None:
    """``"2026-01-31T08:05:00.123Z"``; ``None`` stays what it is."""
    if at_ms is None:
        return None
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(milliseconds: float) -> str:
    """A duration in its largest unit, rounded down: ``"850 ms"``, ``"12 s"``, ``"3 min"``, ``"2 d"``."""
    whole = max(0, int(milliseconds))
    for unit_ms, unit in _UNITS:
        if whole >= unit_ms:
            return f"{whole // unit_ms} {unit}"
    return f"{whole} ms"


def took(milliseconds: float) -> str:
    """A duration to the second, and to a tenth of one below a minute: ``"42.3 s"``, ``"1:02:03"``."""
    if milliseconds < 60_000:
        return f"{max(0.0, milliseconds) / 1000:.1f} s"
    minutes, seconds = divmod(int(milliseconds) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02} min"


def ago(at_ms: int | None, now_ms: int) -> str:
    """``"3 min ago"``; a dash for what has not happened."""
    if at_ms is None:
        return "–"
    return "just now" if now_ms - at_ms < 1000 else f"{span(now_ms - at_ms)} ago"
