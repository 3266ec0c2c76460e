"""The panes of ``fairlane top``: their columns, cells and sort keys."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from rich.text import Text

from fairlane.cli.lanes.lane_views import coloured, in_flight
from fairlane.cli.lanes.workers import busy_in_words
from fairlane.cli.output import ago
from fairlane.cli.runs.run_views import share, state_in_a_word
from fairlane.client.following.progress import rate_in_words
from fairlane.core.clock import span
from fairlane.core.figures import latency, percent, short
from fairlane.top.reading import LaneLine, RunLine, Snapshot, TeamLine, WorkerLine
from fairlane.why.reasons import per_minute

Line = TypeVar("Line")
Sortable: TypeAlias = float | str

_BAD, _HELD, _DIM = "red", "yellow", "dim"
_SOURCES = {
    "configured": "set",
    "headers": "reported",
    "probed": "learned",
    "probing": "probing",
    "unlimited": "",
}


@dataclass(frozen=True, slots=True)
class Column(Generic[Line]):
    """A column: ``cell`` formats a line, ``key`` sorts lines. Columns of numbers begin with the largest.
    ``spare``: a narrow terminal drops the highest first.
    """

    title: str
    cell: Callable[[Line, int], str | Text]
    key: Callable[[Line], Sortable]
    number: bool = False
    spare: int = 0


@dataclass(frozen=True, slots=True)
class Pane(Generic[Line]):
    """A table. ``name_of`` identifies lines while they move; ``lines`` takes them from a snapshot."""

    name: str
    columns: tuple[Column[Line], ...]
    lines: Callable[[Snapshot], Sequence[Line]]
    name_of: Callable[[Line], str]
    sort: int
    empty: str


ERROR_CHARS = 40
"""Characters of a lane's last error in its row; `fairlane lanes show` has the whole."""


def _words(title: str, value: Callable[[Line], str], *, spare: int = 0) -> Column[Line]:
    """A column of texts, sorted alphabetically."""
    return Column(title, lambda line, _: value(line), value, spare=spare)


def _number(
    title: str,
    value: Callable[[Line], float | None],
    in_words: Callable[[Any], str] = "{:,}".format,
    *,
    spare: int = 0,
) -> Column[Line]:
    """A column of numbers, sorted by value. An unknown number shows as a dash and counts as 0."""

    def cell(line: Line, _: int) -> str:
        known = value(line)
        return "–" if known is None else in_words(known)

    return Column(title, cell, lambda line: value(line) or 0, number=True, spare=spare)


def _source(line: LaneLine, _: int) -> str:
    source = line.report.allowed.source
    return _SOURCES.get(source, source)


def _last_error(line: LaneLine, _: int) -> str:
    return (line.report.view.last_error or "")[:ERROR_CHARS]


def _in_flight(line: LaneLine, _: int) -> str:
    return in_flight(line.report.view)


def _percent(part: float) -> str:
    return percent(part, places=1)


_STYLES = dict.fromkeys(("parked", "circuit", "refused", "held"), _BAD) | {"blocked": _HELD, "paused": _HELD}


def _hold(line: LaneLine, _: int) -> Text:
    return coloured(line.report, _STYLES)


LANES: Pane[LaneLine] = Pane(
    "Lanes",
    (
        _words("lane", lambda x: x.report.view.lane),
        _number("limit/min", lambda x: x.report.allowed.per_minute, per_minute),
        Column("source", _source, lambda x: x.report.allowed.source, spare=2),
        _number("used/min", lambda x: x.used_per_minute),
        Column("in flight", _in_flight, lambda x: x.report.view.in_flight, number=True),
        _number("queued", lambda x: x.report.queued, short),
        _number("429 %", lambda x: x.refused, _percent),
        _number("error %", lambda x: x.report.view.failed_share, _percent, spare=4),
        Column("last error", _last_error, lambda x: x.report.view.last_error_ms or 0, spare=5),
        _number("latency", lambda x: x.report.view.latency_ms, latency, spare=3),
        _number("granted", lambda x: x.report.view.granted, short, spare=4),
        Column("limited by", _hold, lambda x: x.report.hold.reason if x.report.hold else ""),
    ),
    lambda snapshot: snapshot.lanes,
    lambda line: line.report.view.lane,
    sort=3,
    empty="there are no lanes yet: they come from [lanes] in fairlane.toml, or with the first run",
)


def _state(line: RunLine, _: int) -> Text:
    word = state_in_a_word(line.status)
    style = {"running": "", "paused": _HELD, "completed": "green", "submitted": _DIM}.get(word, _BAD)
    return Text(word, style)


def _submitted(line: RunLine, now_ms: int) -> str:
    return ago(line.status.submitted_ms, now_ms)


def _name(line: RunLine, _: int) -> str:
    return "" if line.status.name == line.status.run else line.status.name


RUNS: Pane[RunLine] = Pane(
    "Runs",
    (
        _words("run", lambda x: x.status.run),
        _words("team", lambda x: x.status.team),
        Column("name", _name, lambda x: x.status.name, spare=1),
        Column("state", _state, lambda x: state_in_a_word(x.status)),
        Column("done", lambda x, _: share(x.status), lambda x: x.status.progress, number=True),
        _number("jobs", lambda x: x.status.jobs, short),
        _number("in flight", lambda x: x.status.in_flight),
        _number("/s", lambda x: x.per_second, rate_in_words, spare=2),
        _number("left", lambda x: x.left_s, lambda seconds: span(seconds * 1000)),
        _number("429s", lambda x: x.status.rate_limits, short, spare=4),
        _number("failed", lambda x: x.status.failed, spare=1),
        Column("submitted", _submitted, lambda x: x.status.submitted_ms, number=True, spare=3),
    ),
    lambda snapshot: snapshot.runs,
    lambda line: f"{line.status.team}/{line.status.run}",
    sort=6,
    empty="no run is active",
)


def _budget(line: TeamLine, _: int) -> Text:
    budget = line.budget
    if budget is None:
        return Text("")
    style = {"used_up": _BAD, "nearly_used": _HELD}.get(budget.state, "")
    where = "" if budget.lane == "*" else f" on {budget.lane}"
    return Text(f"{percent(budget.share)}% of {budget.unit} a {budget.per}{where}", style)


TEAMS: Pane[TeamLine] = Pane(
    "Teams",
    (
        _words("team", lambda x: x.team),
        _number("weight", lambda x: x.weight, "{:g}".format),
        _number("runs", lambda x: x.runs),
        _number("in flight", lambda x: x.in_flight),
        _number("queued", lambda x: x.queued),
        Column("budget used", _budget, lambda x: x.budget.share if x.budget else -1.0),
    ),
    lambda snapshot: snapshot.teams,
    lambda line: line.team,
    sort=3,
    empty="no team is known",
)


def _alive(line: WorkerLine, _: int) -> Text:
    return Text(line.state, {"alive": "green", "silent": _BAD}.get(line.state, _HELD))


def _last_beat(line: WorkerLine, now_ms: int) -> str:
    return ago(line.beat.beat_ms, now_ms)


WORKERS: Pane[WorkerLine] = Pane(
    "Workers",
    (
        _words("worker", lambda x: x.beat.info.name),
        _words("host", lambda x: x.beat.info.host, spare=1),
        Column("state", _alive, lambda x: x.state),
        Column("busy", lambda x, _: busy_in_words(x.beat.info), lambda x: x.beat.info.busy, number=True),
        _number("slots", lambda x: x.beat.info.slots),
        _number("lanes", lambda x: len(x.beat.info.lanes)),
        _words("version", lambda x: x.beat.info.version),
        Column("last beat", _last_beat, lambda x: x.beat.beat_ms, number=True),
    ),
    lambda snapshot: snapshot.workers,
    lambda line: line.beat.worker,
    sort=0,
    empty="no worker is connected: `fairlane worker` starts one",
)

PANES: tuple[Pane[Any], ...] = (LANES, RUNS, TEAMS, WORKERS)


def sorted_lines(pane: Pane[Line], snapshot: Snapshot, column: int, *, reverse: bool) -> list[Line]:
    """The lines in order: numbers from the largest, texts from A, or reversed."""
    wanted = pane.columns[column]
    lines = sorted(pane.lines(snapshot), key=pane.name_of)
    return sorted(lines, key=wanted.key, reverse=wanted.number is not reverse)
