"""Reads one limited axis from its three headers: limit, remaining and reset."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from fairlane.model.hints import Axis, AxisHint
from fairlane_workers.providers.limits.amounts import MOST, number, reset_ms

Axes: TypeAlias = dict[Axis, AxisHint]


class Clock(NamedTuple):
    """The headers of an axis. ``per_minute`` converts the reported limit to one per minute.

    On the axis ``day`` limits are per day and stay so. An empty ``reset`` means that no such header exists.
    """

    axis: Axis
    limit: str
    remaining: str
    reset: str = ""
    per_minute: float = 1.0


def clock(axis: Axis, pattern: str, *, reset: bool = True, per_minute: float = 1.0) -> Clock:
    """The clock whose headers are ``pattern`` with its ``*`` replaced by limit, remaining and reset."""
    limit, remaining, renewed = (pattern.replace("*", word) for word in ("limit", "remaining", "reset"))
    return Clock(axis, limit, remaining, renewed if reset else "", per_minute)


def read_clocks(clocks: Iterable[Clock], headers: Mapping[str, str], now_ms: int) -> Axes:
    """The axes that the headers report, each independent of the others."""
    axes: Axes = {}
    for axis, limit, remaining, reset, per_minute in clocks:
        quota = number(headers.get(limit))
        if quota is not None:
            quota *= per_minute
        hint = hint_of(quota, number(headers.get(remaining)), reset_ms(headers.get(reset), now_ms))
        if hint is not None:
            add(axes, axis, hint)
    return axes


def hint_of(limit: float | None, remaining: float | None, reset: int | None) -> AxisHint | None:
    """A hint without contradictions; ``None`` if nothing is left.

    A limit of 0 with 0 remaining marks an axis that is not metered. A reset of 0 counts only if something
    remains: a budget that is renewed already cannot be exhausted.
    """
    if limit == 0 and not remaining:
        return None
    if limit is not None and not 0 < limit <= MOST:
        limit = None
    if reset == 0 and not remaining:
        reset = None
    if limit is None and remaining is None and reset is None:
        return None
    return AxisHint(limit, remaining, reset)


def add(axes: Axes, axis: Axis, hint: AxisHint) -> None:
    """Note a hint of an axis. Of two hints the one with less remaining counts."""
    known = axes.get(axis)
    if known is None or _left(hint) < _left(known):
        axes[axis] = hint


def _left(hint: AxisHint) -> tuple[float, float]:
    unknown = float("inf")
    remaining = unknown if hint.remaining is None else hint.remaining
    return remaining, unknown if hint.limit is None else hint.limit
