"""How a lane stands, for people: read from its two hashes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fairlane.lane import LaneLimits

_STATED = {
    "requests": "requests_per_minute",
    "tokens": "tokens_per_minute",
    "input": "input_tokens_per_minute",
    "output": "output_tokens_per_minute",
    "day": "requests_per_day",
}
AXES = tuple(_STATED)

UNITS = 60_000_000
"""Parts of a request or token that a bucket's level counts (``lua/lib/bucket.lua``)."""


class AxisView(NamedTuple):
    """One axis of a lane. Rates are a minute's, on the axis ``day`` a day's; ``None``: there is none.

    ``level`` is what was left when the lane was last looked at, in requests or tokens; below 0 it is owed.
    ``None`` where nothing was ever counted or nothing is limited.
    """

    stated: float | None = None
    learned: float | None = None
    level: float | None = None
    exact: bool = False

    @property
    def allowed(self) -> float | None:
        """What the lane keeps to; ``None``: no limit. The operator's number, if not exact, is a ceiling."""
        if self.stated == 0:
            return None
        if self.stated is None or self.learned is None:
            return self.learned if self.stated is None else self.stated
        return self.stated if self.exact else min(self.stated, self.learned)


@dataclass(frozen=True, slots=True)
class LaneView:
    """How a lane stands. Times are server milliseconds; ``axes`` has every axis, by its name."""

    lane: str
    limits: LaneLimits
    axes: Mapping[str, AxisView]
    in_flight: int
    granted: int
    succeeded: int
    limited: int
    failed: int
    reason: str
    blocked_until_ms: int | None
    day_until_ms: int | None
    circuit: str
    open_until_ms: int | None
    parked: str | None
    paused: bool

    @property
    def learned_per_minute(self) -> float | None:
        """The rate of requests that 429s have taught."""
        return self.axes["requests"].learned


def read_view(lane: str, state: Mapping[str, str], stored: Mapping[str, str]) -> LaneView:
    """A lane from its hashes ``lane:<lane>:state`` and ``:limits``."""

    def count(name: str) -> int:
        return int(float(state.get(name, 0)))

    limits = read_limits(stored)
    return LaneView(
        lane=lane,
        limits=limits,
        axes={axis: _axis(axis, state, limits) for axis in AXES},
        in_flight=count("inflight"),
        granted=count("granted"),
        succeeded=count("seen_ok"),
        limited=count("seen_limited"),
        failed=sum(count(f"seen_{signal}") for signal in ("answered", "overloaded", "broken", "refused")),
        reason=state.get("stop", ""),
        blocked_until_ms=count("blocked_ms") or None,
        day_until_ms=count("day_until_ms") or None,
        circuit=state.get("circuit", "closed"),
        open_until_ms=count("open_ms") if state.get("circuit") == "open" else None,
        parked=state.get("parked"),
        paused=state.get("paused") == "1",
    )


def read_limits(stored: Mapping[str, str]) -> LaneLimits:
    """Limits as `stored_limit` has written them; fields of another version are passed over."""
    fields: dict[str, float | str] = {
        name: value for name, value in stored.items() if name in LaneLimits.model_fields
    }
    if "burst_ms" in stored:
        fields["burst_seconds"] = float(stored["burst_ms"]) / 1000
    return LaneLimits.model_validate(fields)


def stored_limit(name: str, value: float | bool | str) -> tuple[str, str]:
    """A limit's field and value in Redis: numbers as they are, yes as 1, no as 0, a burst in milliseconds."""
    if name == "burst_seconds":
        return "burst_ms", str(round(float(value) * 1000))
    return name, str(int(value) if isinstance(value, bool) else value)


def _axis(axis: str, state: Mapping[str, str], limits: LaneLimits) -> AxisView:
    learned = state.get(f"{axis}_rate")
    view = AxisView(
        stated=getattr(limits, _STATED[axis]),
        learned=None if learned is None else float(learned),
        exact=limits.exact,
    )
    if view.allowed is None:
        return view
    if axis == "day":
        return view._replace(level=view.allowed - float(state.get("day_used", 0)))
    level = state.get(f"{axis}_level")
    return view if level is None else view._replace(level=float(level) / UNITS)
