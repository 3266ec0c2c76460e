"""Durations and moments in words, for messages and tables."""

from __future__ import annotations

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def span(milliseconds: float) -> str:
    """A duration in its largest unit, rounded down: ``"850 ms"``, ``"12 s"``, ``"3 min"``, ``"2 d"``."""
    whole = max(0, int(milliseconds))
    for unit_ms, unit in _UNITS:
        if whole >= unit_ms:
            return f"{whole // unit_ms} {unit}"
    return f"{whole} ms"


def until(at_ms: int, now_ms: int) -> str:
    """``"in 59 min"``; ``"now"`` for what is past or a moment away."""
    return f"in {span(at_ms - now_ms)}" if at_ms - now_ms >= 1000 else "now"
