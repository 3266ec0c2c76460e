"""Times as people read them: how long ago, how long still; and as programs do: ISO 8601, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from fairlane.durations import span


def iso(at_ms: int | None) -> str | None:
    """``"2026-01-31T08:05:00.123Z"``; ``None`` stays what it is."""
    if at_ms is None:
        return None
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


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


def at_local_time(at_ms: int, now_ms: int, zone: tzinfo | None = None) -> str:
    """``"14:05:09"`` by this machine's clock (or in ``zone``), with its date where that is not today's."""
    at, now = (datetime.fromtimestamp(ms / 1000, UTC).astimezone(zone) for ms in (at_ms, now_ms))
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"
