"""``fairlane top``: what it reads, what keys do, and that it leaves the terminal as it was."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis
from rich.cells import cell_len
from rich.console import Console
from rich.screen import Screen

from fairlane.client.deployment import Deployment
from fairlane.config.settings import Settings
from fairlane.core.errors import NoTerminal
from fairlane.model.run import RunRef, RunState
from fairlane.store.write.budgets import Budgets
from fairlane.store.write.workers import WorkerInfo
from fairlane.top import screen
from fairlane.top.controls import Action, Controls
from fairlane.top.frame import KEYS
from fairlane.top.panes import LANES, PANES, RUNS, sorted_lines
from fairlane.top.reading import LINGER_MS, MOST_RUNS, Reader, Snapshot
from fairlane.top.screen import Top
from fairlane.top.terminal import NAMED, Terminal, keys_in
from tests.support.command_line import CommandLine
from tests.support.documents import ROOT, coded, table
from tests.support.fences import member_of
from tests.support.pseudo_terminal import PseudoTerminal, in_terminal

ESCAPE, UP, DOWN, LEFT, RIGHT = "\x1b", "\x1b[A", "\x1b[B", "\x1b[D", "\x1b[C"


def opened(cli: CommandLine, redis: Redis | None = None) -> Deployment:
    settings = Settings.model_validate({"redis": {"deployment": "test"}, "team": "search"})
    return Deployment(settings, redis or cli.stage.redis)


@pytest.fixture
def snapshot(cli: CommandLine) -> Snapshot:
    """Two lanes, a run of each of two teams."""
    d = cli.stage.deployment
    info = WorkerInfo("w1", 20, ("sim:fast",), "1", 1, "box", 0, busy=3)
    d.workers.beat("w1", info, [], 1000, changed=True).run(d.redis)
    Budgets(d.redis, d.keys).set("search", "day", {"tokens": 1000})
    cli.submitted(4, name="small")
    d.feed(d.submit("ads", "big", rows=50), 50)
    return Reader(opened(cli)).read()


def drawn(controls: Controls, snapshot: Snapshot, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    console.print(Screen(controls.shown(snapshot)), end="")
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_everything_is_read(snapshot: Snapshot) -> None:
    assert [line.report.view.lane for line in snapshot.lanes] == ["sim:fast", "sim:judge"]
    assert snapshot.lanes[0].report.queued == 54
    assert {line.status.name: line.status.jobs for line in snapshot.runs} == {"small": 4, "big": 50}
    assert [(line.team, line.runs, line.queued) for line in snapshot.teams] == [
        ("ads", 1, 50),
        ("search", 1, 4),
    ]
    assert [line.beat.info.name for line in snapshot.workers] == ["w1"]
    assert (snapshot.active, snapshot.hidden) == (2, ())


def test_a_team_sees_its_own_runs_alone(cli: CommandLine, snapshot: Snapshot, real_redis: Redis) -> None:
    with member_of(real_redis, "search") as member:
        found = Reader(opened(cli, member)).read()
    assert [line.status.name for line in found.runs] == ["small"]
    assert (found.workers, found.leader) == ((), None)
    assert [(line.team, line.budget and line.budget.used) for line in found.teams] == [("search", 0)]
    assert found.hidden == ("runs of other teams", "workers")
    assert "seen as a team" in drawn(Controls(), found)[0]


def test_a_run_that_ends_while_it_is_watched_stays_for_a_minute(cli: CommandLine) -> None:
    reader, run = Reader(opened(cli)), cli.submitted()
    assert len(reader.read().runs) == 1
    state, now_ms = cli.stage.keys.state(RunRef("search", run)), reader.read().now_ms
    cli.stage.deployment.cancel(RunRef("search", run))
    cli.stage.redis.hset(state, "finished_ms", now_ms - LINGER_MS + 20_000)
    (line,) = reader.read().runs
    assert line.status.state is RunState.CANCELLED
    cli.stage.redis.hset(state, "finished_ms", now_ms - LINGER_MS - 1)
    assert reader.read().runs == ()
    assert Reader(opened(cli)).read().runs == ()


def test_no_more_runs_are_read_than_can_be_and_all_are_counted(cli: CommandLine) -> None:
    cli.submitted()
    cli.stage.redis.sadd(cli.stage.keys.active, *(f"search/0{n}" for n in range(MOST_RUNS + 5)))
    found = Reader(opened(cli)).read()
    assert found.active == MOST_RUNS + 6
    assert len(found.runs) == 1


def test_every_pane_fits_into_80_columns_and_24_rows(snapshot: Snapshot) -> None:
    for pane in PANES:
        controls = Controls()
        controls.press(str(PANES.index(pane) + 1), snapshot)
        lines = drawn(controls, snapshot)
        assert len(lines) == 24
        assert max(map(len, lines)) <= 80
        assert pane.columns[0].title in lines[3]
        assert "…" not in "".join(lines[3:22]), lines


@pytest.mark.parametrize(("width", "height"), [(30, 8), (200, 60), (29, 3), (1, 1), (80, 7)])
def test_any_size_is_filled_and_never_exceeded(snapshot: Snapshot, width: int, height: int) -> None:
    lines = drawn(Controls(), snapshot, width, height)
    assert len(lines) == height
    assert all(len(line) <= width for line in lines)


@pytest.mark.parametrize("width", [30, 40, 80, 200])
@pytest.mark.parametrize(
    "name", ["x" * 70, "名" * 40, "two\nlines\tand a tab"], ids=["long", "wide", "lines"]
)
def test_a_long_text_takes_no_other_columns_place_and_one_line(
    snapshot: Snapshot, width: int, name: str
) -> None:
    fast, judge = snapshot.lanes
    view = replace(fast.report.view, lane=name, last_error=name)
    fast = fast._replace(report=replace(fast.report, view=view, queued=12_345))
    named = replace(snapshot, lanes=(fast, judge))
    controls = Controls(message=name)
    lines = drawn(controls, named, width)
    assert (len(lines), max(map(cell_len, lines))) == (24, width)
    assert lines[3].split()[:2] == ["lane", "limit/min"]
    assert "sim:judge" in lines[4], lines
    assert "…" not in lines[3] + lines[4]
    assert ("12,345" in lines[5]) == (width >= 80)


def test_the_chosen_line_stays_chosen_while_lines_move(snapshot: Snapshot) -> None:
    controls = Controls()
    for key in ("2", "down"):
        controls.press(key, snapshot)
    shown = controls.shown(snapshot)
    name = RUNS.name_of(shown.lines[shown.chosen])
    controls.press("r", snapshot)
    shown = controls.shown(snapshot)
    assert RUNS.name_of(shown.lines[shown.chosen]) == name
    for key in ("end", "down", "page down", "home", "up", "page up"):
        controls.press(key, snapshot)
        assert 0 <= controls.shown(snapshot).chosen < 2


@pytest.mark.parametrize("pane", PANES, ids=lambda pane: pane.name)
def test_every_column_sorts_both_ways(snapshot: Snapshot, pane: Any) -> None:
    for column in range(len(pane.columns)):
        up, down = (sorted_lines(pane, snapshot, column, reverse=way) for way in (False, True))
        key = pane.columns[column].key
        assert [key(line) for line in up] == [key(line) for line in reversed(down)]


def test_nothing_is_paused_without_a_yes(snapshot: Snapshot) -> None:
    controls = Controls()
    assert controls.press("p", snapshot) is None
    assert "pause lane sim:fast?" in drawn(controls, snapshot)[-2]
    assert controls.press("x", snapshot) is None
    assert controls.press("y", snapshot) is None
    assert controls.press("p", snapshot) is None
    assert controls.press("y", snapshot) == Action("pause", "lane", "sim:fast")


def test_what_cannot_be_paused_or_explained_says_so(snapshot: Snapshot) -> None:
    controls = Controls()
    for pane in ("3", "4"):
        controls.press(pane, snapshot)
        for key in ("p", "e"):
            assert controls.press(key, snapshot) is None
            assert "choose a lane or a run" in controls.message


def test_a_lane_and_a_run_are_paused_and_let_go_on(cli: CommandLine, snapshot: Snapshot) -> None:
    top = Top(opened(cli), 2.0, Console(file=io.StringIO()))
    for verb, paused in (("pause", True), ("resume", False)):
        top._change(Action(verb, "lane", "sim:fast"))  # type: ignore[arg-type]
        assert cli.stage.deployment.lanes.view("sim:fast").paused is paused
        top._change(Action(verb, "run", "ads/big"))  # type: ignore[arg-type]
        cli.stage.admit()
        line = next(line for line in Reader(opened(cli)).read().runs if line.status.run == "big")
        assert (line.status.paused is not None) is paused


def test_an_explanation_says_what_why_says(cli: CommandLine, snapshot: Snapshot) -> None:
    top = Top(opened(cli), 2.0, Console(file=io.StringIO()))
    cli.stage.deployment.lanes.pause("sim:fast")
    top._explain(Action("explain", "run", "ads/big"))
    announced = dict(top._controls.details)
    assert announced["run"] == "big"
    assert "paused by an operator" in announced["why"]
    assert "paused by an operator" in " ".join(drawn(top._controls, snapshot))


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1bOB", ["up", "down"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[99~x", ["x"]),
        ("é€".encode(), ["é", "€"]),
        (b"\xff\x00q", ["q"]),
        (b"\x1b[", []),
        (b"\t \r", ["tab", "space", "enter"]),
    ],
)
def test_keys_are_read_as_terminals_send_them(data: bytes, keys: list[str]) -> None:
    assert list(keys_in(data)) == keys


def test_every_named_key_is_found_by_itself() -> None:
    assert [list(keys_in(data)) for data in NAMED] == [[name] for name in NAMED.values()]


def test_once_prints_all_panes_and_json_has_all_in_it(cli: CommandLine, snapshot: Snapshot) -> None:
    text = cli.out("top", "--once")
    for word in ("sim:fast", "small", "ads", "w1"):
        assert word in text
    assert "\x1b" not in text
    found = cli.json("top")
    assert {run["name"] for run in found["runs"]} == {"small", "big"}
    assert [lane["lane"] for lane in found["lanes"]] == ["sim:fast", "sim:judge"]
    assert [worker["name"] for worker in found["workers"]] == ["w1"]
    assert found["leader"]["name"] == "scheduler-1"


def test_an_empty_deployment_says_so(real_redis: Redis) -> None:
    real_redis.flushdb()
    settings = Settings.model_validate({"redis": {"deployment": "void"}})
    found = Reader(Deployment(settings, real_redis)).read()
    assert found.runs == ()


def test_without_a_terminal_it_says_what_to_do(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--once or --json" in cli.refused("top")
    monkeypatch.setenv("TERM", "dumb")  # it cannot place its cursor
    monkeypatch.setattr(Terminal, "opened", lambda *_: pytest.fail("it drew"))
    with pytest.raises(NoTerminal):
        Top(opened(cli), 2.0, Console(file=io.StringIO(), force_terminal=True)).run()


@pytest.fixture
def terminal(cli: CommandLine, snapshot: Snapshot) -> Iterator[PseudoTerminal]:
    with in_terminal("top", "--interval", "0.2", env=cli.environment) as made:
        made.wait_for("sim:judge")
        yield made


@pytest.mark.slow
def test_it_is_used_by_keys_in_a_terminal(cli: CommandLine, terminal: PseudoTerminal) -> None:
    terminal.type("2")
    terminal.wait_for("big")
    terminal.wait_for("small")
    terminal.resize(12, 120)
    terminal.wait_for("submitted")
    terminal.type("h")
    terminal.wait_for("another pane")
    terminal.type(ESCAPE)
    terminal.wait_for("submitted")
    terminal.type("1p")
    terminal.wait_for("pause lane sim:fast?")
    terminal.type("y")
    terminal.wait_for("pause lane sim:fast: done")
    assert cli.stage.deployment.lanes.view("sim:fast").paused
    terminal.type("e")
    terminal.wait_for("is paused by an operator")
    assert terminal.mode() != terminal.before
    terminal.type("q")
    assert terminal.wait_for_end() == 0
    restored(terminal)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)],
)
@pytest.mark.slow
def test_a_signal_leaves_the_terminal_as_it_was(terminal: PseudoTerminal, number: int, code: int) -> None:
    terminal.process.send_signal(number)
    assert terminal.wait_for_end() == code
    restored(terminal)


@pytest.mark.slow
def test_the_loss_of_redis_is_shown(cli: CommandLine, terminal: PseudoTerminal) -> None:
    terminal.type("x")
    cli.stage.redis.config_set("maxclients", 1)
    for client in cli.stage.redis.client_list():
        if client["id"] != str(cli.stage.redis.client_id()):
            cli.stage.redis.client_kill_filter(_id=client["id"])
    try:
        terminal.wait_for("Redis has not answered for")
    finally:
        cli.stage.redis.config_set("maxclients", 1000)
    terminal.type("x")
    terminal.wait_for("sim:judge")
    terminal.type("q")
    assert terminal.wait_for_end() == 0


def restored(terminal: PseudoTerminal) -> None:
    assert terminal.mode() == terminal.before
    end = terminal.drawn[-200:]
    assert b"\x1b[?1049l" in end, "the screen from before is back"
    assert b"\x1b[?25h" in end, "the cursor is to be seen"


@pytest.mark.parametrize(
    ("stated", "drawn"), [((0, 0), (80, 24)), ((0, 50), (80, 50)), ((100, 0), (100, 24)), ((31, 9), (31, 9))]
)
def test_a_terminal_without_a_size_gets_the_usual_one(
    stated: tuple[int, int], drawn: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terminals of containers and of some supervisors state 0 × 0: nothing was drawn."""
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size(stated))
    assert tuple(screen.window(1)) == drawn


def test_every_key_is_described() -> None:
    listed = [row["key"] for row in table(ROOT / "docs" / "terminal.md", "key", "does")]
    assert [", ".join(coded(key)) for key in listed] == [", ".join(keys.split(", ")) for keys in KEYS]


def test_lanes_are_the_first_pane() -> None:
    assert PANES[0] is LANES


@pytest.mark.parametrize("once", ["--once", "--json"])
def test_an_interval_of_what_is_printed_once_is_refused(real_redis: Redis, once: str) -> None:
    assert f"leave out {once}" in CommandLine(real_redis).refused("top", once, "-i", "5", code=2)
