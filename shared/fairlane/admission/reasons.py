"""What holds a lane, as a constraint and as a sentence."""

from __future__ import annotations

from typing import NamedTuple, cast

from fairlane.admission.views import AXES, AxisView, Hold, LaneView
from fairlane.admission.waiting import Constraint
from fairlane.durations import until

SHARED_OUT = frozenset((*AXES, "window", "slots", "gap"))
"""What a lane that is used to the full is held by: what one team leaves, another takes."""

UNITS = {
    "requests": "requests/min",
    "tokens": "tokens/min",
    "input": "input tokens/min",
    "output": "output tokens/min",
    "day": "requests/day",
}
SOURCES = {
    "configured": "configured",
    "headers": "by its headers",
    "probed": "learned from refusals",
    "starting": "still finding out",
    "refusals": "learned from refusals",
    "latency": "learned from latency",
}


class Reason(NamedTuple):
    """A constraint, in words, and when it ends if time alone ends it."""

    constraint: Constraint
    sentence: str
    until_ms: int | None = None


def reason_of(view: LaneView, queued: int, slots: int, *, led: bool, share: float = 1.0) -> Reason | None:
    """What holds ``queued`` jobs of a lane whose workers have ``slots``; ``None`` where nothing does.

    ``share`` is the part of the lane that the team that asks has; below 1 others want it, too.
    """
    lane, hold = view.lane, view.hold(queued)
    if hold is not None and hold.reason not in SHARED_OUT:
        return Reason(cast(Constraint, hold.reason), _shut_in_words(view, hold), hold.until_ms)
    if not led and queued:
        return Reason("scheduler", "no scheduler leads: nothing starts until one does; see `fairlane doctor`")
    if not slots and queued:
        return Reason("slots", f"no worker serves {lane}: start one, or let one serve it")
    if hold is None:
        return None
    words = used_up_in_words(view, hold.reason, slots)
    if share < 1:
        told = f"{lane} is used to the full ({words}); this team has {share:.0%} of it beside others"
        return Reason("fairness", told, hold.until_ms)
    left = f"; it goes on {until(hold.until_ms, view.now_ms)}" if hold.until_ms is not None else ""
    return Reason(cast(Constraint, hold.reason), f"{lane} is used to the full: {words}{left}", hold.until_ms)


def used_up_in_words(view: LaneView, reason: str, slots: int) -> str:
    """What is used up, its limit, and who says so."""
    if reason == "window":
        source = f", {SOURCES[view.places.source]}" if view.places.source else ""
        return f"{view.in_flight:,} calls in flight of {view.places.most or view.in_flight:,}{source}"
    if reason == "slots":
        return f"no free worker slot (its workers have {slots:,}), or max_in_flight is reached"
    if reason == "gap":
        return f"calls start at least {view.limits.min_gap_ms:,} ms apart"
    return rate_in_words(reason, view.axes[reason])


def rate_in_words(name: str, axis: AxisView) -> str:
    """``"about 598 requests/min, learned from refusals"``."""
    if axis.allowed is None:
        return f"no limit of {UNITS[name]}"
    about = "" if axis.source == "configured" else "about "
    source = f", {SOURCES[axis.source]}" if axis.source else ""
    return f"{about}{per_minute(axis.allowed)} {UNITS[name]}{source}"


def per_minute(rate: float) -> str:
    """A rate to three digits or whole: ``"1,200"``, ``"59.7"``, ``"0.25"``."""
    return f"{rate:,.0f}" if abs(rate) >= 100 else f"{rate:,.3g}"


def _shut_in_words(view: LaneView, hold: Hold) -> str:
    lane = view.lane
    when = until(hold.until_ms, view.now_ms) if hold.until_ms is not None else "then"
    match hold.reason:
        case "paused":
            return f"{lane} is paused by an operator; `fairlane lanes resume {lane}` opens it"
        case "parked":
            mended = f"once that is mended, `fairlane lanes resume {lane}` tries it"
            return f"{lane} is parked: {view.parked}; {mended}"
        case "circuit":
            return f"{lane} cannot be reached: its circuit is open, one call tries again {when}"
        case "probing":
            return f"{lane} could not be reached; one call finds out whether it can be now"
        case "blocked" if view.asked_to_wait:
            return f"{lane} is blocked: the provider asked to come back, {when}"
        case "blocked":
            return f"{lane} is blocked after a refusal, an overload or a Retry-After; it goes on {when}"
        case "reserved":
            told = f"what is left of {lane} is kept for teams that do not lend it"
            return f"{told}; `fairlane teams list` has them"
        case _:
            return f"{lane} was refused; one call finds out whether the provider takes calls again"
