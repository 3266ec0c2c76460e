"""Lanes as tables, documents and words: limits, calls in flight and what limits them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.text import Text

from fairlane.cli.output import ago, fields_of, iso, print_fields, print_table, say, when
from fairlane.core.clock import span, until
from fairlane.core.figures import percent, short
from fairlane.model.lane import LaneLimits
from fairlane.store.write.lanes.lane_view import STATED, AxisView, Hold, LaneView
from fairlane.why.reasons import (
    SHORT_WORDS,
    SOURCES,
    UNITS,
    held_in_words,
    per_minute,
    rate_in_words,
    resuming,
)


class Allowed(NamedTuple):
    """Requests a minute, and the source of this rate as in `AxisView`; ``unlimited`` without a rate."""

    per_minute: float | None
    source: str


@dataclass(frozen=True, slots=True)
class LaneReport:
    """A lane at one moment of the server's clock, with the jobs that are ready on it."""

    view: LaneView
    queued: int

    @property
    def now_ms(self) -> int:
        """Server milliseconds at which the lane was read."""
        return self.view.now_ms

    @property
    def allowed(self) -> Allowed:
        """The request rate in force."""
        axis = self.view.axes["requests"]
        return Allowed(axis.allowed, axis.source_in_words)

    @property
    def hold(self) -> Hold | None:
        """The constraint that keeps jobs from starting; ``None`` where there is none, or no job waits."""
        return self.view.hold(self.queued)

    @property
    def hold_in_words(self) -> str:
        """The constraint and its end; empty where there is none."""
        hold = self.hold
        if hold is None:
            return ""
        if hold.reason == "parked":
            again = f"; asks again {when(hold.until_ms, self.now_ms)}" if hold.until_ms is not None else ""
            return f"parked: {self.view.parked}{again}"
        words = SHORT_WORDS.get(hold.reason, hold.reason)
        if hold.reason == "blocked" and self.view.asked_to_wait:
            words = "blocked, as the provider asked"
        return words if hold.until_ms is None else f"{words}, until {when(hold.until_ms, self.now_ms)}"

    @property
    def shared_in_words(self) -> str:
        """Rates of others that use the same key; empty where none was detected."""
        taken = [
            f"{per_minute(axis.foreign)} {UNITS[name]}"
            for name, axis in self.view.axes.items()
            if axis.foreign
        ]
        return f"about {' and '.join(taken)}" if taken else ""

    def document(self) -> dict[str, Any]:
        """Every field, times in ISO 8601; limits that are not configured are null."""
        view, hold = self.view, self.hold
        return {
            "lane": view.lane,
            "requests_per_minute": self.allowed.per_minute,
            "source": self.allowed.source,
            "learned_per_minute": view.learned_per_minute,
            "limits": view.limits.model_dump(),
            "axes": {name: _axis_document(axis) for name, axis in view.axes.items()},
            **fields_of(view, "shared", "in_flight"),
            "most_in_flight": view.places.most,
            "most_in_flight_source": view.places.source,
            "models": dict(view.models.in_flight) if view.models else None,
            "late_calls": view.late._asdict() if view.late else None,
            "queued": self.queued,
            **fields_of(view, "granted", "succeeded"),
            "rate_limits": view.limited,
            **fields_of(view, "failed", "failed_share", "last_error"),
            "last_error_at": iso(view.last_error_ms),
            "down_since": iso(view.down_since_ms),
            "permits_returned": view.returned,
            "constraint": hold.reason if hold else None,
            "constraint_until": iso(hold.until_ms) if hold else None,
            "blocked_until": iso(view.blocked_until_ms),
            "held_until": iso(view.held_until_ms),
            **fields_of(view, "state", "circuit", "ramp", "parked", "paused"),
        }


def print_lanes(reports: list[LaneReport]) -> None:
    """Print lanes as a table, in the order given."""
    if not reports:
        say("there are no lanes yet: they come from [lanes] in fairlane.toml, or with the first run")
        return
    columns = ["lane", ">requests/min", ">in flight", ">queued", ">granted", ">429s", ">errors", "limited by"]
    print_table(columns, (_row(report) for report in reports))
    for report in reports:
        view, lane = report.view, report.view.lane
        if view.parked is not None:
            say(f"{lane} is parked: {view.parked}; {resuming(lane)} tries a single call")
        if report.hold is not None and report.hold.reason == "held":
            say(f"{lane} is {report.hold_in_words}; {resuming(lane)} lifts the hold")
        if view.failed and view.last_error is not None:
            say(f"{lane} failed {_errors_in_words(view)}")
        if view.late:
            say(f"{lane}: {view.late}")
        if view.shared:
            say(f"{lane} is shared with others, who take {report.shared_in_words}")


def print_lane(report: LaneReport) -> None:
    """One lane in full."""
    view = report.view
    source = f", {SOURCES[view.places.source]}" if view.places.source else ""
    returned = f", {view.returned:,} returned unused" if view.returned else ""
    print_fields(
        [
            ("lane", view.lane),
            ("configured", limits_in_words(view.limits)),
            *((f"{name} axis", axis_in_words(name, axis, view.now_ms)) for name, axis in _shown_axes(view)),
            ("shared", f"with others, who take {report.shared_in_words}" if view.shared else None),
            ("in flight", in_flight(view, " of at most ") + source),
            ("deadlines", view.late),
            ("models", held_in_words(view.lane, view.models, view.now_ms) if view.models else None),
            ("queued", f"{report.queued:,}"),
            ("granted", f"{view.granted:,}{returned}"),
            ("ended", f"{view.succeeded:,} succeeded, {view.failed:,} failed, {view.limited:,} with 429"),
            ("errors", _errors_in_words(view)),
            ("circuit", view.circuit),
            ("ramp", f"{percent(view.ramp)}% of its rate, after an outage" if view.ramp < 1 else None),
            ("limited by", report.hold_in_words or "nothing"),
        ]
    )


def _errors_in_words(view: LaneView) -> str | None:
    if view.last_error is None:
        return None
    age = span(max(0, view.now_ms - (view.last_error_ms or view.now_ms)))
    return f"{percent(view.failed_share, places=1)}% of the calls; the last {age} ago: {view.last_error}"


def _row(report: LaneReport) -> list[object]:
    view = report.view
    errors = f"{percent(view.failed_share, places=1)}%" if view.failed else "0"
    numbers = (f"{report.queued:,}", short(view.granted), short(view.limited), errors)
    rate, source = report.allowed
    allowed = source if rate is None else f"{per_minute(rate)} {source}"
    return [view.lane, allowed, in_flight(view), *numbers, coloured(report, _STYLES)]


_STYLES = {"parked": "red", "circuit": "red", "paused": "yellow"}


def coloured(report: LaneReport, styles: Mapping[str, str]) -> Text:
    """The constraint and its rest, in the style of its name."""
    hold = report.hold
    if hold is None:
        return Text("")
    left = "" if hold.until_ms is None else f" {span(hold.until_ms - report.now_ms)}"
    return Text(f"{hold.reason}{left}", styles.get(hold.reason, ""))


def in_flight(view: LaneView, between: str = "/") -> str:
    """Calls in flight and the most, if that is known: ``"12/40"``."""
    return f"{view.in_flight:,}" + (f"{between}{view.places.most:,}" if view.places.most is not None else "")


def _shown_axes(view: LaneView) -> list[tuple[str, AxisView]]:
    """The axes with known limits, requests first."""
    return [
        (name, axis)
        for name, axis in view.axes.items()
        if name == "requests" or axis != AxisView(renews_ms=axis.renews_ms)
    ]


def _axis_document(axis: AxisView) -> dict[str, Any]:
    document = axis._asdict()
    for name in ("reported", "probed", "from", "renews"):
        document[f"{name}_at"] = iso(document.pop(f"{name}_ms"))
    return document


_WORDS = {
    "requests_per_minute": "{:,g} requests/min",
    "tokens_per_minute": "{:,g} tokens/min",
    "input_tokens_per_minute": "{:,g} input tokens/min",
    "output_tokens_per_minute": "{:,g} output tokens/min",
    "requests_per_day": "{:,g} requests/day",
    "exact": "exactly",
    "burst_seconds": "burst {:g} s",
    "charge": "{} tokens charged",
    "output_factor": "output tokens count {:g} times",
    "cache_reads": "cache reads {}",
    "max_concurrency": "at most {:,} in flight",
    "first_concurrency": "{:,} in flight to begin with",
    "models_at_once": "{:,} models at once",
    "model_seconds": "{:g} s each",
    "min_gap_ms": "{:,} ms apart",
    "longest_wait_seconds": "held beyond waits of {:g} s",
}
"""Limits in the order in which `limits_in_words` says them; it says others by their names."""


def limits_in_words(limits: LaneLimits) -> str:
    """The limits that an operator has configured, in one line."""
    values, words = limits.model_dump(), dict(_WORDS)
    shown = limits.model_dump(exclude_defaults=True).keys() | (
        limits.model_fields_set & {"longest_wait_seconds"}
    )
    shown = {name for name in shown if values[name] or name not in words}
    if any(values[name] for name in STATED.values()):
        shown.add("burst_seconds")
    else:
        shown -= {"burst_seconds", "exact"}
    if limits.models_at_once is None:
        shown.discard("model_seconds")
    else:
        shown.add("model_seconds")
    if limits.models_at_once == 1:
        words["models_at_once"] = "1 model at once"
    said = ["requests unlimited"] if limits.requests_per_minute == 0 else []
    said += [text.format(values[name]) for name, text in words.items() if name in shown]
    said += [f"{name} {value}" for name, value in values.items() if name in shown - words.keys()]
    return ", ".join(said) or "no limits"


def axis_in_words(name: str, axis: AxisView, now_ms: int) -> str:
    """The rate in force and its source, then each source's rate, what is left, and the limit's shape."""
    said = []
    if axis.configured and axis.source != "configured":
        said.append(f"{per_minute(axis.configured)} configured")
    if axis.reported is not None:
        when = f", {ago(axis.reported_ms, now_ms)}" if axis.reported_ms is not None else ""
        said.append(f"headers report {per_minute(axis.reported)}{when}")
    if axis.probed is not None:
        doubt = f" ± {axis.uncertainty:,.0f}" if axis.uncertainty and axis.uncertainty < axis.probed else ""
        when = f", {ago(axis.probed_ms, now_ms)}" if axis.probed_ms is not None else ""
        said.append(f"429s show {per_minute(axis.probed)}{doubt}{when}")
    if axis.level is not None and axis.allowed is not None:
        said.append(f"{per_minute(axis.level)} left")
    if axis.shape == "window" and axis.renews_ms is not None:
        said.append(f"a window that renews {until(axis.renews_ms, now_ms)}")
    elif axis.shape == "bucket":
        said.append("a bucket")
    return "; ".join([rate_in_words(name, axis), *said])
