"""How long a lane needs for its part of a run, by what it allows now."""

from __future__ import annotations

from dataclasses import replace

from fairlane.apps.estimate.counting import Use
from fairlane.client.views.forecast import LaneForecast, Limit
from fairlane.store.write.lanes.lane_view import LaneView
from fairlane.why.eta import DAY_MS, MINUTE_MS, Cost, start_of

MANY_SLOTS = 1_000_000
"""Slots to assume while no worker is up: they limit nothing."""


def forecast_lane(view: LaneView, use: Use, slots: int, queued: int, gap_ms: float) -> LaneForecast:
    """Forecast ``use`` of a lane; ``slots`` are its workers', 0 where there is none yet."""
    factor = view.limits.output_factor
    cost = Cost(use.input / use.calls, use.output * factor / use.calls)
    bounds = _bounds(view, use.calls, cost, slots, max(gap_ms, view.limits.min_gap_ms))
    by = max(bounds.items(), key=lambda each: each[1])[0] if bounds else None
    seconds, source = None, None
    if by is not None:
        seconds = _seconds(view, use.calls, cost, slots, gap_ms)
        source = view.axes[by].source if by in view.axes else view.places.source if by == "places" else None
    return LaneForecast(
        lane=view.lane,
        calls=round(use.calls),
        input_tokens=round(use.input),
        output_tokens=round(use.output),
        seconds=seconds,
        limited_by=by,
        source=source,
        queued=queued,
    )


def call_seconds(view: LaneView, calls: float) -> float:
    """Seconds that so many calls take one after another; 0 where no latency is known."""
    return calls * (view.latency_ms or 0.0) / 1000


def _bounds(view: LaneView, calls: float, cost: Cost, slots: int, gap_ms: float) -> dict[Limit, float]:
    """Milliseconds in the long run, by each limit that is known."""
    found: dict[Limit, float] = {}
    limits: tuple[Limit, ...] = ("requests", "tokens", "input", "output", "day")
    for name in limits:
        allowed = view.axes[name].allowed
        if allowed:
            found[name] = calls * cost.on(name) / allowed * (DAY_MS if name == "day" else MINUTE_MS)
    if view.latency_ms is not None and (view.places.most or slots):
        places, by = min((view.places.most or MANY_SLOTS, "places"), (slots or MANY_SLOTS, "slots"))
        found["places" if by == "places" else "slots"] = calls * view.latency_ms / places
    if gap_ms:
        found["gap"] = calls * gap_ms
    return found


def _seconds(view: LaneView, calls: float, cost: Cost, slots: int, gap_ms: float) -> float | None:
    if gap_ms > view.limits.min_gap_ms:
        view = replace(view, limits=view.limits.model_copy(update={"min_gap_ms": round(gap_ms)}))
    last = start_of(max(1, round(calls)), view, cost, slots or MANY_SLOTS)
    if last.at_ms is None:
        return None
    return (max(0, last.at_ms - view.now_ms) + (view.latency_ms or 0.0)) / 1000
