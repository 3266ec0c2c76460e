"""A lane as people read it, and as programs do: what it may do, what it does, what holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.text import Text

from fairlane.admission.views import AxisView, LaneView
from fairlane.cli.moments import iso, span
from fairlane.cli.output import print_fields, print_table, say
from fairlane.lane import LaneLimits

NONE = "–"


class Allowed(NamedTuple):
    """Requests a minute, and who says so: ``stated``, ``learned``, or ``unlimited`` without a rate."""

    per_minute: float | None
    source: str


class Hold(NamedTuple):
    """Why nothing starts now, in the words of the granting script; when that ends, if time alone ends it."""

    reason: str
    until_ms: int | None = None


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
}


@dataclass(frozen=True, slots=True)
class LaneReport:
    """A lane at one moment of the server's clock, with the jobs that are ready on it."""

    view: LaneView
    queued: int
    now_ms: int

    @property
    def allowed(self) -> Allowed:
        axis = self.view.axes["requests"]
        if axis.allowed is None:
            return Allowed(None, "unlimited")
        return Allowed(axis.allowed, "stated" if axis.allowed == axis.stated else "learned")

    @property
    def hold(self) -> Hold | None:
        """What keeps jobs from starting; ``None`` where nothing does, or nothing waits."""
        view, now_ms = self.view, self.now_ms
        if view.paused:
            return Hold("paused")
        if view.parked is not None:
            return Hold("parked")
        if view.circuit == "half_open":
            return Hold("probing")
        if view.circuit == "open" and now_ms < (view.open_until_ms or 0):
            return Hold("circuit", view.open_until_ms)
        if view.blocked_until_ms is not None and now_ms < view.blocked_until_ms:
            return Hold("blocked", view.blocked_until_ms)
        if not self.queued or view.reason not in _WAITS:
            return None
        return Hold(view.reason, view.day_until_ms if view.reason == "day" else None)

    @property
    def hold_in_words(self) -> str:
        """The hold and how long it lasts; empty where there is none."""
        hold = self.hold
        if hold is None:
            return ""
        if hold.reason == "parked":
            return f"parked: {self.view.parked}"
        left = f" {span((hold.until_ms or 0) - self.now_ms)}" if hold.until_ms is not None else ""
        match hold.reason:
            case "circuit":
                return f"circuit open,{left}"
            case "blocked":
                return f"blocked,{left}"
            case "day":
                return f"{_WAITS['day']},{left}"
            case "probing":
                return "circuit: probing"
            case reason:
                return _WAITS.get(reason, reason)

    def document(self) -> dict[str, Any]:
        """Every field, times in ISO 8601; limits that are not stated are null."""
        view, hold = self.view, self.hold
        return {
            "lane": view.lane,
            "requests_per_minute": self.allowed.per_minute,
            "source": self.allowed.source,
            "learned_per_minute": view.learned_per_minute,
            "limits": view.limits.model_dump(),
            "axes": {name: {"allowed": axis.allowed, **axis._asdict()} for name, axis in view.axes.items()},
            "in_flight": view.in_flight,
            "queued": self.queued,
            "granted": view.granted,
            "succeeded": view.succeeded,
            "rate_limits": view.limited,
            "failed": view.failed,
            "held_by": hold.reason if hold else None,
            "held_until": iso(hold.until_ms) if hold else None,
            "circuit": view.circuit,
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


def print_lane(report: LaneReport) -> None:
    """One lane in full."""
    view, limits = report.view, report.view.limits
    print_fields(
        [
            ("lane", view.lane),
            ("allowed", _allowed_in_words(report.allowed)),
            ("limits", limits_in_words(limits)),
            *((f"{name} axis", told) for name, axis in view.axes.items() if (told := _axis_in_words(axis))),
            ("in flight", _flying(view, " of at most ")),
            ("queued", f"{report.queued:,}"),
            ("granted", f"{view.granted:,}"),
            ("ended", f"{view.succeeded:,} well, {view.failed:,} failed, {view.limited:,} with 429"),
            ("circuit", view.circuit.replace("_", " ")),
            ("held by", report.hold_in_words or "nothing"),
        ]
    )


def limits_in_words(limits: LaneLimits) -> str:
    """What an operator has said of a lane, in one line."""
    said = []
    if limits.requests_per_minute:
        said.append(f"{limits.requests_per_minute:,g} requests/min")
    elif limits.requests_per_minute == 0:
        said.append("requests unlimited")
    for number, unit in (
        (limits.tokens_per_minute, "tokens/min"),
        (limits.input_tokens_per_minute, "input tokens/min"),
        (limits.output_tokens_per_minute, "output tokens/min"),
        (limits.requests_per_day, "requests/day"),
    ):
        said += [f"{number:,g} {unit}"] if number else []
    if said and said != ["requests unlimited"]:
        said += ["exactly"] if limits.exact else []
        said.append(f"burst {limits.burst_seconds:g} s")
    said += _charges_in_words(limits)
    if limits.max_concurrency is not None:
        said.append(f"at most {limits.max_concurrency:,} in flight")
    if limits.min_gap_ms:
        said.append(f"{limits.min_gap_ms:,} ms apart")
    return ", ".join(said) or "none stated"


def _charges_in_words(limits: LaneLimits) -> list[str]:
    """How the provider charges tokens, where that is not what most do."""
    said = []
    if limits.charge == "reserved":
        said.append("reserved tokens charged")
    if limits.output_factor != 1:
        said.append(f"output tokens count {limits.output_factor:g} times")
    if limits.cache_reads == "counted":
        said.append("cache reads counted")
    return said


def _row(report: LaneReport) -> list[object]:
    view = report.view
    numbers = (f"{report.queued:,}", short_count(view.granted), short_count(view.limited))
    return [view.lane, _allowed(report.allowed), _flying(view, "/"), *numbers, _coloured(report)]


def short_count(count: int) -> str:
    """A count in at most seven characters: ``"999,999"``, ``"1.23M"``, ``"45.6G"``."""
    for size, unit in ((10**9, "G"), (10**6, "M")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:,}"


def _coloured(report: LaneReport) -> Text:
    hold = report.hold
    style = ""
    if hold is not None:
        style = {"parked": "red", "circuit": "red", "paused": "yellow"}.get(hold.reason, "")
    return Text("" if hold is None else _hold_in_short(hold, report.now_ms), style)


def _hold_in_short(hold: Hold, now_ms: int) -> str:
    return hold.reason if hold.until_ms is None else f"{hold.reason} {span(hold.until_ms - now_ms)}"


def _flying(view: LaneView, between: str) -> str:
    window = view.limits.max_concurrency
    return f"{view.in_flight:,}" + (f"{between}{window:,}" if window is not None else "")


def _allowed(allowed: Allowed) -> str:
    return allowed.source if allowed.per_minute is None else f"{_rate(allowed.per_minute)} {allowed.source}"


def _rate(per_minute: float | None) -> str:
    if per_minute is None:
        return NONE
    return f"{per_minute:,.0f}" if per_minute >= 10 else f"{per_minute:,.1f}"


def _axis_in_words(axis: AxisView) -> str:
    """What an axis keeps to, what it has learned and what was left of it; empty without a limit."""
    if axis.allowed is None:
        return ""
    told = [f"{axis.allowed:,g} allowed"]
    told += [f"{axis.learned:,.6g} learned"] if axis.learned is not None else []
    told += [f"{axis.level:,.6g} left"] if axis.level is not None else []
    return ", ".join(told)


def _allowed_in_words(allowed: Allowed) -> str:
    if allowed.per_minute is None:
        return "no limit on requests"
    return f"{_rate(allowed.per_minute)} requests/min, {allowed.source}"
