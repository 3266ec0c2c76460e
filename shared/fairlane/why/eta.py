"""Estimates when a job starts, from its lane's limits and the jobs before it."""

from __future__ import annotations

import math
from typing import NamedTuple

from fairlane.store.write.lanes.lane_view import AxisView, LaneView
from fairlane.why.waiting import Eta

MINUTE_MS, DAY_MS = 60_000, 86_400_000
_TRIED_AGAIN = ("circuit", "held", "probing", "blocked", "refused")


class Cost(NamedTuple):
    """The mean charge of the sampled jobs when they start."""

    input: float
    output: float

    def on(self, axis: str) -> float:
        """Its charge on one axis."""
        charges = {"tokens": self.input + self.output, "input": self.input, "output": self.output}
        return charges.get(axis, 1.0)


def start_of(jobs: int, view: LaneView, cost: Cost, slots: int) -> Eta:
    """When the ``jobs``-th job from now starts (1: the next) on a lane whose workers have ``slots``.

    The slowest axis decides, or the calls in flight (Little's law). Unknown latencies are left out;
    ``None`` where that is all there is, or where an operator must act first.
    """
    hold = view.hold(jobs)
    if slots == 0 or view.paused or view.parked is not None or (hold and hold.reason == "probing"):
        return Eta(None, True)
    shut_until_ms = (view.shut.until_ms if view.shut else None) or view.now_ms
    gap_ms = view.limits.min_gap_ms
    times = [float(max(shut_until_ms, (view.started_ms or 0) + gap_ms) + (jobs - 1) * gap_ms)]
    times += [_by_axis(name, axis, jobs, cost, shut_until_ms) for name, axis in view.axes.items()]
    in_flight_ms = _by_places(view, jobs, min(slots, view.places.most or slots))
    if in_flight_ms is not None:
        times.append(shut_until_ms + in_flight_ms)
    elif hold is not None and hold.reason in ("window", "slots"):
        return Eta(None, True)
    at_least = hold is not None and hold.reason in _TRIED_AGAIN and not view.asked_to_wait
    return Eta(math.ceil(max(times)), at_least)


def _by_axis(name: str, axis: AxisView, jobs: int, cost: Cost, from_ms: int) -> float:
    if not axis.allowed:
        return from_ms
    # A job larger than the bucket starts when the bucket is full, and leaves a debt.
    last = cost.on(name) if axis.full is None else min(cost.on(name), axis.full)
    missing = (jobs - 1) * cost.on(name) + last - (axis.level or 0.0)
    if missing <= 0:
        return from_ms
    if name == "day":
        return (axis.renews_ms or from_ms) + math.ceil(missing / axis.allowed - 1) * DAY_MS
    return max(from_ms, axis.from_ms or 0) + missing / axis.allowed * MINUTE_MS


def _by_places(view: LaneView, jobs: int, places: int) -> float | None:
    waits = jobs - max(0, places - view.in_flight)
    if waits <= 0:
        return 0.0
    return None if view.latency_ms is None else waits * view.latency_ms / places
