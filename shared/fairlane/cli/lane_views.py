"""A lane as people read it, and as programs do: what it may do, what it does, what holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.text import Text

from fairlane.admission.reasons import SOURCES, UNITS, per_minute
from fairlane.admission.views import AxisView, Hold, LaneView
from fairlane.cli.lane_words import axis_in_words, limits_in_words, short_count
from fairlane.cli.moments import at_local_time, iso
from fairlane.cli.output import print_fields, print_table, say
from fairlane.durations import span, until


class Allowed(NamedTuple):
    """Requests a minute, and who says so: a source of `AxisView`, or ``unlimited`` without a rate."""

    per_minute: float | None
    source: str


# What a lane was last told holds it while jobs are queued.
_WAITS = {
    "requests": "request rate",
    "tokens": "token rate",
    "input": "input token rate",
    "output": "output token rate",
    "day": "requests of the day",
    "window": "concurrency",
    "slots": "workers' slots",
    "gap": "least gap",
    "reserved": "the rest is kept for other teams",
    "circuit": "circuit open",
    "probing": "circuit: probing",
    "refused": "refused: one call finds out whether it opens",
}


@dataclass(frozen=True, slots=True)
class LaneReport:
    """A lane at one moment of the server's clock, with the jobs that are ready on it."""

    view: LaneView
    queued: int

    @property
    def now_ms(self) -> int:
        return self.view.now_ms

    @property
    def allowed(self) -> Allowed:
        axis = self.view.axes["requests"]
        return Allowed(axis.allowed, "unlimited" if axis.allowed is None else axis.source or "unlimited")

    @property
    def hold(self) -> Hold | None:
        """What keeps jobs from starting; ``None`` where nothing does, or nothing waits."""
        return self.view.hold(self.queued)

    @property
    def hold_in_words(self) -> str:
        """The hold and how long it lasts; empty where there is none."""
        hold = self.hold
        if hold is None:
            return ""
        if hold.reason == "parked":
            return f"parked: {self.view.parked}"
        words = _WAITS.get(hold.reason, hold.reason)
        if hold.reason == "blocked" and self.view.asked_to_wait:
            words = "blocked, as the provider asked"
        return words if hold.until_ms is None else f"{words}, until {self._when(hold.until_ms)}"

    def _when(self, at_ms: int) -> str:
        return f"{at_local_time(at_ms, self.now_ms)}, {until(at_ms, self.now_ms)}"

    @property
    def shared_in_words(self) -> str:
        """What others take of the same key; empty where nobody was found."""
        taken = [
            f"{per_minute(axis.foreign)} {UNITS[name]}"
            for name, axis in self.view.axes.items()
            if axis.foreign
        ]
        return f"about {' and '.join(taken)}" if taken else ""

    def document(self) -> dict[str, Any]:
        """Every field, times in ISO 8601; limits that are not stated are null."""
        view, hold = self.view, self.hold
        return {
            "lane": view.lane,
            "requests_per_minute": self.allowed.per_minute,
            "source": self.allowed.source,
            "learned_per_minute": view.learned_per_minute,
            "limits": view.limits.model_dump(),
            "axes": {name: _axis_document(axis) for name, axis in view.axes.items()},
            "shared": view.shared,
            "in_flight": view.in_flight,
            "most_in_flight": view.places.most,
            "most_in_flight_source": view.places.source,
            "queued": self.queued,
            "granted": view.granted,
            "succeeded": view.succeeded,
            "rate_limits": view.limited,
            "failed": view.failed,
            "held_by": hold.reason if hold else None,
            "held_until": iso(hold.until_ms) if hold else None,
            "blocked_until": iso(view.blocked_until_ms),
            "circuit": view.circuit,
            "ramp": view.ramp,
            "parked": view.parked,
            "paused": view.paused,
        }


def print_lanes(reports: list[LaneReport]) -> None:
    """Lanes as a table, in the order given."""
    columns = ["lane", ">requests/min", ">in flight", ">queued", ">granted", ">429s", "held by"]
    print_table(columns, (_row(report) for report in reports))
    for report in reports:
        if report.view.parked is not None:
            lane = report.view.lane
            say(f"{lane} is parked: {report.view.parked}; `fairlane lanes resume {lane}` tries a single call")
        if report.view.shared:
            say(f"{report.view.lane} is shared with others, who take {report.shared_in_words}")


def print_lane(report: LaneReport) -> None:
    """One lane in full."""
    view = report.view
    print_fields(
        [
            ("lane", view.lane),
            ("configured", limits_in_words(view.limits)),
            *((f"{name} axis", axis_in_words(name, axis, view.now_ms)) for name, axis in _told(view)),
            *([("shared", f"with others, who take {report.shared_in_words}")] if view.shared else []),
            ("in flight", _in_flight_in_words(view)),
            ("queued", f"{report.queued:,}"),
            ("granted", f"{view.granted:,}"),
            ("ended", f"{view.succeeded:,} well, {view.failed:,} failed, {view.limited:,} with 429"),
            ("circuit", view.circuit.replace("_", " ")),
            *([("ramp", f"{view.ramp:.0%} of its rate, after an outage")] if view.ramp < 1 else []),
            ("held by", report.hold_in_words or "nothing"),
        ]
    )


def _row(report: LaneReport) -> list[object]:
    view = report.view
    numbers = (f"{report.queued:,}", short_count(view.granted), short_count(view.limited))
    return [view.lane, _allowed(report.allowed), _flying(view, "/"), *numbers, _coloured(report)]


def _coloured(report: LaneReport) -> Text:
    hold = report.hold
    style = ""
    if hold is not None:
        style = {"parked": "red", "circuit": "red", "paused": "yellow"}.get(hold.reason, "")
    return Text("" if hold is None else _hold_in_short(hold, report.now_ms), style)


def _hold_in_short(hold: Hold, now_ms: int) -> str:
    return hold.reason if hold.until_ms is None else f"{hold.reason} {span(hold.until_ms - now_ms)}"


def _flying(view: LaneView, between: str) -> str:
    return f"{view.in_flight:,}" + (f"{between}{view.places.most:,}" if view.places.most is not None else "")


def _in_flight_in_words(view: LaneView) -> str:
    source = f", {SOURCES[view.places.source]}" if view.places.source else ""
    return _flying(view, " of at most ") + source


def _allowed(allowed: Allowed) -> str:
    if allowed.per_minute is None:
        return allowed.source
    return f"{per_minute(allowed.per_minute)} {allowed.source}"


def _told(view: LaneView) -> list[tuple[str, AxisView]]:
    """The axes of which something is known, requests first."""
    return [
        (name, axis)
        for name, axis in view.axes.items()
        if name == "requests" or axis != AxisView(renews_ms=axis.renews_ms)
    ]


def _axis_document(axis: AxisView) -> dict[str, Any]:
    told = axis._asdict()
    for name in ("told", "probed", "from", "renews"):
        told[f"{name}_at"] = iso(told.pop(f"{name}_ms"))
    return told
