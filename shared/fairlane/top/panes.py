"""The panes of ``fairlane top``: for each its columns, what a cell says, and by what its lines are sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from rich.text import Text

from fairlane.cli.lanes.lane_words import short_count
from fairlane.cli.lanes.workers import busy_in_words
from fairlane.cli.output import ago
from fairlane.cli.runs.run_views import share, state_in_a_word
from fairlane.core.clock import span
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
    """``cell`` is what is shown of a line, ``key`` what lines are sorted by. Columns of numbers begin with
    the largest. ``spare``: left out where a terminal is narrow, the highest first.
    """

    title: str
    cell: Callable[[Line, int], str | Text]
    key: Callable[[Line], Sortable]
    number: bool = False
    spare: int = 0


@dataclass(frozen=True, slots=True)
class Pane(Generic[Line]):
    """``name_of`` identifies lines while they move; ``lines`` are a snapshot's."""

    name: str
    columns: tuple[Column[Line], ...]
    lines: Callable[[Snapshot], Sequence[Line]]
    name_of: Callable[[Line], str]
    sort: int
    empty: str


ERROR_CHARS = 40
"""Of a lane's last error, in its row; `fairlane lanes show` has all of it."""


def _lane_column(
    title: str,
    cell: Callable[[LaneLine, int], str | Text],
    key: Callable[[LaneLine], Sortable],
    *,
    number: bool = True,
    spare: int = 0,
) -> Column[LaneLine]:
    return Column(title, cell, key, number, spare)


def _rate(line: LaneLine) -> str:
    allowed = line.report.allowed
    return "–" if allowed.per_minute is None else per_minute(allowed.per_minute)


def _in_flight(line: LaneLine) -> str:
    view = line.report.view
    return f"{view.in_flight:,}" + (f"/{view.places.most:,}" if view.places.most is not None else "")


def _percent(part: float | None) -> str:
    return "–" if part is None else f"{100 * part:.1f}"


def _hold(line: LaneLine, _: int) -> Text:
    hold, now_ms = line.report.hold, line.report.now_ms
    if hold is None:
        return Text("")
    left = "" if hold.until_ms is None else f" {span(hold.until_ms - now_ms)}"
    style = {
        "parked": _BAD,
        "circuit": _BAD,
        "refused": _BAD,
        "blocked": _HELD,
        "held": _BAD,
        "paused": _HELD,
    }
    return Text(f"{hold.reason}{left}", style.get(hold.reason, ""))


LANES: Pane[LaneLine] = Pane(
    "Lanes",
    (
        _lane_column("lane", lambda x, _: x.report.view.lane, lambda x: x.report.view.lane, number=False),
        _lane_column("limit/min", lambda x, _: _rate(x), lambda x: x.report.allowed.per_minute or 0),
        _lane_column(
            "source",
            lambda x, _: _SOURCES.get(x.report.allowed.source, x.report.allowed.source),
            lambda x: x.report.allowed.source,
            number=False,
            spare=2,
        ),
        _lane_column(
            "used/min",
            lambda x, _: "–" if x.used_per_minute is None else f"{x.used_per_minute:,}",
            lambda x: x.used_per_minute or 0,
        ),
        _lane_column("in flight", lambda x, _: _in_flight(x), lambda x: x.report.view.in_flight),
        _lane_column("queued", lambda x, _: short_count(x.report.queued), lambda x: x.report.queued),
        _lane_column("429 %", lambda x, _: _percent(x.refused), lambda x: x.refused or 0),
        _lane_column(
            "error %",
            lambda x, _: _percent(x.report.view.failed_share),
            lambda x: x.report.view.failed_share,
            spare=4,
        ),
        _lane_column(
            "last error",
            lambda x, _: (x.report.view.last_error or "")[:ERROR_CHARS],
            lambda x: x.report.view.last_error_ms or 0,
            number=False,
            spare=5,
        ),
        _lane_column(
            "latency",
            lambda x, _: "–" if x.report.view.latency_ms is None else span(x.report.view.latency_ms),
            lambda x: x.report.view.latency_ms or 0,
            spare=3,
        ),
        _lane_column(
            "granted",
            lambda x, _: short_count(x.report.view.granted),
            lambda x: x.report.view.granted,
            spare=4,
        ),
        _lane_column(
            "limited by", _hold, lambda x: x.report.hold.reason if x.report.hold else "", number=False
        ),
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


RUNS: Pane[RunLine] = Pane(
    "Runs",
    (
        Column("run", lambda x, _: x.status.run, lambda x: x.status.run),
        Column("team", lambda x, _: x.status.team, lambda x: x.status.team),
        Column(
            "name",
            lambda x, _: "" if x.status.name == x.status.run else x.status.name,
            lambda x: x.status.name,
            spare=2,
        ),
        Column("state", _state, lambda x: state_in_a_word(x.status)),
        Column("done", lambda x, _: share(x.status), lambda x: x.status.progress, number=True),
        Column("jobs", lambda x, _: short_count(x.status.jobs), lambda x: x.status.jobs, number=True),
        Column(
            "in flight", lambda x, _: f"{x.status.in_flight:,}", lambda x: x.status.in_flight, number=True
        ),
        Column(
            "/s",
            lambda x, _: "–" if x.per_second is None else f"{x.per_second:.1f}",
            lambda x: x.per_second or 0,
            number=True,
        ),
        Column(
            "left",
            lambda x, _: "–" if x.left_s is None else span(x.left_s * 1000),
            lambda x: x.left_s or 0,
            number=True,
        ),
        Column(
            "429s",
            lambda x, _: short_count(x.status.rate_limits),
            lambda x: x.status.rate_limits,
            number=True,
            spare=4,
        ),
        Column(
            "failed", lambda x, _: f"{x.status.failed:,}", lambda x: x.status.failed, number=True, spare=1
        ),
        Column(
            "submitted",
            lambda x, now_ms: ago(x.status.submitted_ms, now_ms),
            lambda x: x.status.submitted_ms,
            number=True,
            spare=3,
        ),
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
    return Text(f"{budget.share:.0%} of {budget.unit} a {budget.per}{where}", style)


TEAMS: Pane[TeamLine] = Pane(
    "Teams",
    (
        Column("team", lambda x, _: x.team, lambda x: x.team),
        Column("weight", lambda x, _: f"{x.weight:g}", lambda x: x.weight, number=True),
        Column("runs", lambda x, _: f"{x.runs:,}", lambda x: x.runs, number=True),
        Column("in flight", lambda x, _: f"{x.in_flight:,}", lambda x: x.in_flight, number=True),
        Column("queued", lambda x, _: f"{x.queued:,}", lambda x: x.queued, number=True),
        Column("budget used", _budget, lambda x: x.budget.share if x.budget else -1.0),
    ),
    lambda snapshot: snapshot.teams,
    lambda line: line.team,
    sort=3,
    empty="no team is known",
)


def _alive(line: WorkerLine, _: int) -> Text:
    return Text(line.state, {"alive": "green", "silent": _BAD}.get(line.state, _HELD))


WORKERS: Pane[WorkerLine] = Pane(
    "Workers",
    (
        Column("worker", lambda x, _: x.beat.info.name, lambda x: x.beat.info.name),
        Column("host", lambda x, _: x.beat.info.host, lambda x: x.beat.info.host, spare=1),
        Column("state", _alive, lambda x: x.state),
        Column("busy", lambda x, _: busy_in_words(x.beat.info), lambda x: x.beat.info.busy, number=True),
        Column("slots", lambda x, _: f"{x.beat.info.slots:,}", lambda x: x.beat.info.slots, number=True),
        Column(
            "lanes", lambda x, _: f"{len(x.beat.info.lanes):,}", lambda x: len(x.beat.info.lanes), number=True
        ),
        Column("version", lambda x, _: x.beat.info.version, lambda x: x.beat.info.version),
        Column(
            "last beat",
            lambda x, now_ms: ago(x.beat.beat_ms, now_ms),
            lambda x: x.beat.beat_ms,
            number=True,
        ),
    ),
    lambda snapshot: snapshot.workers,
    lambda line: line.beat.worker,
    sort=0,
    empty="no worker is there: `fairlane worker` starts one",
)

PANES: tuple[Pane[Any], ...] = (LANES, RUNS, TEAMS, WORKERS)


def sorted_lines(pane: Pane[Line], snapshot: Snapshot, column: int, *, reverse: bool) -> list[Line]:
    """The lines in order: numbers from the largest, words from A, or the other way round."""
    wanted = pane.columns[column]
    lines = sorted(pane.lines(snapshot), key=pane.name_of)
    return sorted(lines, key=wanted.key, reverse=wanted.number is not reverse)
