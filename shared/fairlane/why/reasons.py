"""Translates what limits a lane into a constraint, a few words and a sentence: the one place that does."""

from shlex import quote
from typing import NamedTuple, cast

from fairlane.core.clock import span, until
from fairlane.core.figures import percent
from fairlane.model.lane import FUNCTIONS
from fairlane.model.run import Plan
from fairlane.store.run_queries import RunFields
from fairlane.store.write.lanes.lane_view import AXES, AxisView, HeldModels, Hold, LaneView
from fairlane.why.waiting import Constraint

CAPACITY_CONSTRAINTS = frozenset((*AXES, "window", "slots", "gap"))
"""Constraints of a fully used lane: capacity that one team leaves goes to another."""

RAISES_MANY, RAISES_OFTEN = 10, 0.8
"""Rate limits of a function, and their number for each return, from which on they may be of its rows. A true
limit costs a tenth of that (0178).
"""

UNITS = {
    "requests": "requests/min",
    "tokens": "tokens/min",
    "input": "input tokens/min",
    "output": "output tokens/min",
    "day": "requests/day",
}
SOURCES = {
    "configured": "configured",
    "headers": "from its headers",
    "probed": "learned from 429s",
    "starting": "still probing",
    "refusals": "learned from 429s",
    "latency": "learned from latency",
    "deadlines": "learned from deadlines",
    "search": "an estimate, which grows while answers a second do",
}


SHORT_WORDS = {
    "requests": "request rate",
    "tokens": "token rate",
    "input": "input token rate",
    "output": "output token rate",
    "day": "requests of the day",
    "window": "concurrency",
    "slots": "workers' slots",
    "gap": "least gap",
    "reserved": "the rest is reserved for other teams",
    "circuit": "circuit open",
    "held": "held: its quota is used up, or its provider asked for a long wait",
    "probing": "circuit half-open: one probe is in flight",
    "doubt": "calls fail or take too long, and none is answered: few calls start",
    "refused": "429s: one call tests whether the lane opens",
}
"""Constraints of a lane in a few words, for tables; those that are missing are words of their own."""


class Reason(NamedTuple):
    """A constraint, a sentence that explains it, and its end in server milliseconds if time alone ends it."""

    constraint: Constraint
    sentence: str
    until_ms: int | None = None


LEADERLESS = Reason("scheduler", "no scheduler leads: nothing starts until one does; see `fairlane doctor`")


def reason_of(
    view: LaneView, queued: int, slots: int, *, led: bool, share: float = 1.0, lacking: str = ""
) -> Reason | None:
    """What limits ``queued`` jobs of a lane whose workers have ``slots``; ``None`` where nothing does.

    ``share`` is the asking team's part of the lane; below 1 other teams use it, too. ``lacking`` says why the
    connected workers do not serve it.
    """
    lane, hold = view.lane, view.hold(queued)
    if hold is not None and hold.reason not in CAPACITY_CONSTRAINTS:
        words = _shut_in_words(view, hold) + _raised_in_words(view, hold)
        return Reason(cast(Constraint, hold.reason), words, hold.until_ms)
    if not led and queued:
        return LEADERLESS
    if not slots and queued:
        return Reason("slots", f"no worker serves {lane}: {lacking or 'start one, or let one serve it'}")
    if hold is None:
        return None
    words = used_up_in_words(view, hold.reason, slots) + _raised_in_words(view, hold)
    if share < 1:
        explained = (
            f"{lane} is used to the full ({words}); this team has {percent(share)}% of it beside others"
        )
        return Reason("fairness", explained, hold.until_ms)
    left = f"; it resumes {until(hold.until_ms, view.now_ms)}" if hold.until_ms is not None else ""
    return Reason(cast(Constraint, hold.reason), f"{lane} is used to the full: {words}{left}", hold.until_ms)


def _raised_in_words(view: LaneView, hold: Hold) -> str:
    """What to change about a function that raises rate limits as often as it returns; empty for others."""
    if not view.lane.startswith(f"{FUNCTIONS}:") or hold.reason not in ("requests", "window", "blocked"):
        return ""
    if view.limited < max(RAISES_MANY, view.succeeded * RAISES_OFTEN):
        return ""
    return (
        f"; its function raised {view.limited:,} rate limits and returned {view.succeeded:,} times: "
        "where these are of single rows, let it wait itself, or raise a ConnectionError"
    )


def used_up_in_words(view: LaneView, reason: str, slots: int) -> str:
    """What is used up, its limit, and the limit's source."""
    if reason == "window":
        source = f", {SOURCES[view.places.source]}" if view.places.source else ""
        late = f" ({view.late})" if view.late and view.places.source == "deadlines" else ""
        return f"{view.in_flight:,} calls in flight of {view.places.most or view.in_flight:,}{source}{late}"
    if reason == "slots":
        reserved = "some reserved for teams that hold few"
        return f"no free worker slot (its workers have {slots:,}, {reserved}), or max_in_flight is reached"
    if reason == "gap":
        return f"calls start at least {view.limits.min_gap_ms:,} ms apart"
    return rate_in_words(reason, view.axes[reason])


def rate_in_words(name: str, axis: AxisView) -> str:
    """``"about 598 requests/min, learned from 429s"``."""
    chance = (
        f"; {percent(axis.by_chance, places=1)}% of calls are rejected at any rate" if axis.by_chance else ""
    )
    if axis.allowed is None:
        return f"no limit of {UNITS[name]}{chance}"
    about = "" if axis.source == "configured" else "about "
    source = f", {SOURCES[axis.source]}" if axis.source else ""
    return f"{about}{per_minute(axis.allowed)} {UNITS[name]}{source}{chance}"


def resuming(lane: str) -> str:
    """The command that resumes a lane. Teams choose the names of models, which no shell must interpret."""
    return f"`fairlane lanes resume {quote(lane)}`"


def held_in_words(lane: str, models: HeldModels, now_ms: int) -> str:
    """``"gpu calls qwen (4 in flight) while it has jobs, and changes in 42 s at the latest"``."""
    if models.until_ms is None:
        return f"{lane} calls {models}"
    if models.until_ms <= now_ms:
        return f"{lane} changes models once the calls of {models} have ended"
    return (
        f"{lane} calls {models} while it has jobs, and changes {until(models.until_ms, now_ms)} at the latest"
    )


def per_minute(rate: float) -> str:
    """A rate to three digits or whole: ``"1,200"``, ``"59.7"``, ``"0.25"``."""
    return f"{rate:,.0f}" if abs(rate) >= 100 else f"{rate:,.3g}"


def outage_end(plan: Plan | None, run: RunFields, view: LaneView, failed_ms: int | None, who: str) -> str:
    """``"; it fails in 12 min, if sim:fast answers nobody until then (max_outage)"``; ``who``: "it fails".

    The scheduler's `Outages` counts the time in the same way. ``failed_ms``: when the job's first call
    failed since the lane last answered. Empty if the lane is not down and no call of the job has failed, and
    while the run or the lane is paused.
    """
    down_ms = view.down_since_ms if view.circuit != "closed" else None
    begins = [since for since in (down_ms, failed_ms) if since is not None]
    if plan is None or not begins or run.pause is not None or view.paused or view.parked is not None:
        return ""
    at_ms = _end_ms(max(min(begins), run.count("started_ms")), plan.spec.bounds.max_outage, run)
    return f"; {who} {until(at_ms, view.now_ms)}, if {view.lane} answers nobody until then (max_outage)"


def _end_ms(since_ms: int, most_s: float, run: RunFields) -> int:
    """When a run has waited for ``most_s`` seconds since a server time, its pauses so far not counted."""
    at_ms = since_ms + round(1000 * most_s)
    for begins_ms, ends_ms in run.pauses:
        if begins_ms < at_ms and ends_ms > since_ms:
            at_ms += ends_ms - max(since_ms, begins_ms)
    return at_ms


def _shut_in_words(view: LaneView, hold: Hold) -> str:
    lane = view.lane
    when = until(hold.until_ms, view.now_ms) if hold.until_ms is not None else "then"
    match hold.reason:
        case "paused":
            return f"{lane} is paused by an operator; {resuming(lane)} resumes it"
        case "parked":
            remedy = f"once that is fixed, {resuming(lane)} tries it"
            again = "" if hold.until_ms is None else f"one call asks again {when}, and "
            return f"{lane} is parked: {view.parked}; {again}{remedy}"
        case "circuit":
            return f"{_down_in_words(view)}: its circuit is open, one call tries again {when}"
        case "held":
            end = until(view.held_until_ms or view.now_ms, view.now_ms)
            cause = f"its provider asked to come back {end}" if view.held_named else "its quota is used up"
            words = f"{lane} is held{_last_words(view)}: {cause}"
            return f"{words}; one call asks again {when}, and {resuming(lane)} lifts the hold"
        case "probing":
            return f"{_down_in_words(view)}; one call tests whether it answers now"
        case "doubt":
            words = f"calls on {lane} fail or take far longer than usual"
            return f"{words}, and none has been answered since; few calls start until one is"
        case "blocked" if view.asked_to_wait:
            return f"{lane} is blocked: the provider asked to come back, {when}"
        case "blocked":
            words = "after a 429, an overload or a Retry-After, or as its quota is used up"
            return f"{lane} is blocked {words}; it resumes {when}"
        case "reserved":
            words = f"the rest of {lane} is reserved for teams that do not lend it"
            return f"{words}; `fairlane teams list` has them"
        case "refused":
            return f"{lane} met 429s; one call tests whether the provider takes calls again"
        case later:
            return f"{lane} waits for {later!r}, a constraint that this version of Fairlane does not know"


def _down_in_words(view: LaneView) -> str:
    """``"sim:fast has answered nobody for 12 min (connection refused)"``."""
    error = _last_words(view)
    if view.down_since_ms is None:
        return f"{view.lane} is not tested yet{error}"
    return f"{view.lane} has answered nobody for {span(max(0, view.now_ms - view.down_since_ms))}{error}"


def _last_words(view: LaneView) -> str:
    """The provider's words in its latest error, in brackets; empty if there was none."""
    return f" ({view.last_error})" if view.last_error else ""
