from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO
from typing import Any

import fakeredis
import pytest
from rich.console import Console

from fairlane.client.deployment import LONGEST_WAIT_S, SHORTEST_WAIT_S, Pace
from fairlane.client.following.progress import LINE_EVERY_S, PlainProgress, Rate, open_progress
from fairlane.client.following.standstill import Standstill
from fairlane.core.clock import ManualClock
from fairlane.core.errors import RunTimeout, StoreUnavailable
from fairlane.model.run import RunRef, RunState
from fairlane.model.run_status import LaneProgress, Pause
from fairlane.why.waiting import UNKNOWN, LaneWait, Waiting
from tests.support.stage import Stage


def submit(stage: Stage, rows: int = 4) -> Any:
    run = stage.client.submit(
        [{"question": n} for n in range(rows)], "{{ question }}", model="sim:fast", name="gsm8k"
    )
    stage.admit()
    return run


def server_of(stage: Stage) -> fakeredis.FakeServer:
    return stage.redis.connection_pool.connection_kwargs["server"]


def connect(stage: Stage, *, connected: bool) -> None:
    server_of(stage).connected = connected


def test_waiting_ends_with_the_run(stage: Stage) -> None:
    run = submit(stage)
    stage.then(lambda: stage.answer(run.id, 3), lambda: stage.answer(run.id, 1))
    status = run.wait()
    assert (status.state, status.jobs_done, status.progress) == (RunState.COMPLETED, 4, 1.0)
    assert len(stage.waits) == 2


def test_waiting_gives_up_after_its_timeout_and_the_run_goes_on(stage: Stage) -> None:
    run = submit(stage)
    with pytest.raises(RunTimeout):
        run.wait(timeout=3.0)
    assert sum(stage.waits) == pytest.approx(3.0, abs=0.002)
    assert run.status().state is RunState.RUNNING


def test_a_timeout_of_nothing_looks_once(stage: Stage) -> None:
    run = submit(stage)
    with pytest.raises(RunTimeout):
        run.wait(timeout=0)
    assert stage.waits == []
    stage.answer(run.id, 4)
    assert run.wait(timeout=0).state is RunState.COMPLETED


def test_looks_become_rarer(stage: Stage) -> None:
    run = submit(stage)
    with pytest.raises(RunTimeout):
        run.wait(timeout=10.0)
    assert stage.waits[0] == SHORTEST_WAIT_S
    assert stage.waits[-2] == LONGEST_WAIT_S
    assert stage.waits[:-1] == sorted(stage.waits[:-1])


def test_looks_are_frequent_when_all_that_is_left_is_in_flight(stage: Stage) -> None:
    run = submit(stage)
    with pytest.raises(RunTimeout):
        run.wait(timeout=5.0)
    stage.answer(run.id, 3)
    stage.deployment.start(RunRef("search", run.id), 1)
    stage.waits.clear()
    with pytest.raises(RunTimeout):
        run.wait(timeout=1.0)
    assert max(stage.waits) == SHORTEST_WAIT_S


def test_a_pace_starts_again_when_something_happens() -> None:
    pace = Pace()
    first = [pace.next_s() for _ in range(10)]
    pace.restart()
    assert first[-1] == LONGEST_WAIT_S
    assert pace.next_s() == SHORTEST_WAIT_S


def test_a_cancelled_run_ends_cancelled(stage: Stage) -> None:
    run = submit(stage)
    stage.answer(run.id, 1)
    run.cancel()
    assert run.status().state is RunState.RUNNING
    stage.then(stage.admit)
    status = run.wait()
    assert (status.state, status.progress) == (RunState.CANCELLED, 1.0)


def test_a_restart_of_redis_is_waited_out(stage: Stage) -> None:
    run = submit(stage)
    stage.then(
        lambda: connect(stage, connected=False),
        *[lambda: None] * 20,
        lambda: connect(stage, connected=True),
        lambda: stage.answer(run.id, 4),
    )
    assert run.wait().state is RunState.COMPLETED


def test_a_redis_that_stays_away_is_given_up(stage: Stage) -> None:
    run = submit(stage)
    stage.then(lambda: connect(stage, connected=False))
    with pytest.raises(StoreUnavailable, match="no answer for 3600 s"):
        run.wait()
    assert 3600 <= sum(stage.waits) <= 3602


def test_a_redis_that_is_away_for_half_an_hour_fails_no_wait_for_a_run_that_was_seen(stage: Stage) -> None:
    run = submit(stage)
    stage.then(
        lambda: connect(stage, connected=False),
        *[lambda: None] * 3600,
        lambda: connect(stage, connected=True),
        lambda: stage.answer(run.id, 4),
    )
    assert run.wait().state is RunState.COMPLETED
    assert sum(stage.waits) > 1500


def test_a_redis_that_never_answered_is_given_up_after_a_minute(stage: Stage) -> None:
    run = submit(stage)
    connect(stage, connected=False)
    with pytest.raises(StoreUnavailable, match="no answer for 6"):
        run.wait()
    assert 60 <= sum(stage.waits) <= 62


def test_an_interrupted_wait_says_that_the_run_continues_and_how_to_wait_again(stage: Stage) -> None:
    run = submit(stage)
    for read in (run.wait, lambda: list(run.stream())):
        connect(stage, connected=True)
        stage.then(lambda: connect(stage, connected=False))
        with pytest.raises(StoreUnavailable) as raised:
            read()
        assert f"Run {run.id} goes on without this client; `fairlane watch {run.id}`" in str(raised.value)
        assert "fairlane up" not in str(raised.value)


def test_a_client_that_never_reached_redis_is_advised_to_start_one(stage: Stage) -> None:
    run = submit(stage)
    connect(stage, connected=False)
    with pytest.raises(StoreUnavailable, match="`fairlane up`"):
        run.wait()


def test_a_timeout_holds_while_redis_is_away(stage: Stage) -> None:
    run = submit(stage)
    stage.then(lambda: connect(stage, connected=False))
    with pytest.raises(RunTimeout):
        run.wait(timeout=5.0)


def test_a_stream_goes_on_after_a_restart_of_redis(stage: Stage) -> None:
    run = submit(stage)
    stage.answer(run.id, 2)
    stage.then(
        lambda: connect(stage, connected=False),
        lambda: None,
        lambda: connect(stage, connected=True),
        lambda: stage.answer(run.id, 2),
    )
    assert [record.item for record in run.stream()] == [0, 1, 2, 3]


def test_plain_progress_is_a_line_now_and_then(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    run = submit(stage)
    stage.then(
        *[lambda: None] * 30,
        lambda: stage.answer(run.id, 2),
        *[lambda: None] * 15,
        lambda: stage.answer(run.id, 2),
    )
    run.wait(progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert 4 <= len(lines) <= 8
    assert lines[0].startswith("gsm8k: 0 % 0/4")
    assert lines[-1].startswith("gsm8k: 100 % 4/4")
    assert "sim:fast 4/4" in lines[-1]


def test_plain_progress_reports_that_redis_is_away(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    run = submit(stage)
    stage.then(
        lambda: connect(stage, connected=False),
        *[lambda: None] * 30,
        lambda: connect(stage, connected=True),
        lambda: stage.answer(run.id, 4),
    )
    run.wait(progress=True)
    assert "Redis has not answered for" in capsys.readouterr().err


def live(stage: Stage, run: Any, *scenes: Any) -> str:
    """What a terminal shows of a run, last frame last."""
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system=None)
    with open_progress(stage.clock, console) as view:
        view.show(run.status())
        for scene in scenes:
            stage.clock.advance(1.0)
            scene()
            view.show(run.status())
        view.silent(2.0)
    return out.getvalue()


def test_live_progress_has_a_line_for_the_whole_and_one_a_lane(stage: Stage) -> None:
    run = submit(stage)
    shown = live(stage, run, lambda: stage.answer(run.id, 2))
    assert "gsm8k" in shown
    assert "50 %" in shown
    assert "2/4  2.0/s, 0:01 left" in shown
    assert "  sim:fast" in shown
    assert "Redis has not answered for 2 s" in shown


def test_a_terminal_of_80_columns_has_a_bar_and_all_of_the_time_that_is_left(stage: Stage) -> None:
    run = stage.client.submit([{"q": n} for n in range(20)], "x", model="sim:fast", name="a name " * 9)
    stage.admit()
    out = StringIO()
    with open_progress(
        stage.clock, Console(file=out, force_terminal=True, width=80, color_system=None)
    ) as view:
        for _ in range(3):
            view.show(replace(run.status(), retries=12))
            stage.clock.advance(1.0)
            stage.answer(run.id, 6)
    assert re.search(r"a name.*… ━{4,}.* 60 % +12/20 +6\.0/s, 0:01 left, 12 retries", out.getvalue())


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_cuts_no_number(stage: Stage, width: int) -> None:
    run = stage.client.submit([{"q": n} for n in range(2638)], "x", model="sim:fast", name="a name " * 9)
    stage.admit()
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=width, color_system=None)
    with open_progress(stage.clock, console) as view:
        paused = Pause(0, "ann@a-machine")
        view.show(replace(run.status(), retries=1009, rate_limits=12, paused=paused))
    last = out.getvalue().rpartition("\x1b[2K")[2]
    assert " 0 %" in last
    assert "0/2,638" in last
    assert "…" not in last.partition(" 0 %")[2].partition("\n  sim")[0]
    for word in ("12", "×", "429", "1,009", "retries", "paused"):
        assert word in last


@pytest.mark.parametrize("terminal", [True, False])
def test_a_paused_run_says_so_and_has_no_time_that_is_left(stage: Stage, terminal: bool) -> None:
    run, out = submit(stage), StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, color_system=None)
    with open_progress(stage.clock, console) as view:
        view.show(run.status())
        stage.answer(run.id, 2)
        stage.clock.advance(LINE_EVERY_S)
        out.truncate(0)
        view.show(replace(run.status(), paused=Pause(0, "ann@host")))
        shown = out.getvalue()
    assert "paused by ann@host" in shown
    assert "left" not in shown


def test_live_progress_ends_at_100_percent(stage: Stage) -> None:
    run = submit(stage)
    shown = live(stage, run, lambda: stage.answer(run.id, 3), lambda: stage.answer(run.id, 1))
    assert shown.count("100 %") >= 2


@pytest.mark.parametrize("markup", ["[red]", "[/]", "x" * 200])
def test_a_runs_name_is_shown_as_it_is(stage: Stage, markup: str) -> None:
    run = stage.client.submit([], "x", model="sim:fast", name=markup, check=False)
    stage.admit()
    shown = live(stage, run)
    assert markup[:39] in shown
    assert "100 %" in shown


def test_a_rate_is_that_of_the_last_seconds() -> None:
    clock, rate = ManualClock(), Rate()
    rate.count(clock.monotonic_ms(), 0)
    assert rate.per_second is None
    for done in range(1, 31):
        clock.advance(1.0)
        rate.count(clock.monotonic_ms(), min(done, 20) * 5)
    assert rate.per_second == 0.0
    clock.advance(1.0)
    rate.count(clock.monotonic_ms(), 120)
    assert rate.per_second == pytest.approx(2.0)


@pytest.mark.parametrize("every_s", [1, 7, 20, 90])
def test_the_rate_of_a_slow_run_is_steady(every_s: int) -> None:
    clock, rate = ManualClock(), Rate()
    for second in range(20 * every_s):
        rate.count(clock.monotonic_ms(), second // every_s)
        clock.advance(1.0)
        if second > 8 * every_s:
            assert rate.per_second == pytest.approx(1 / every_s, rel=0.21)


def test_a_run_that_stands_still_says_why(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    run = submit(stage)
    key = stage.keys.lane("sim:fast")
    stage.redis.hset(key, "parked", "Incorrect API key provided")
    stage.then(
        *[lambda: None] * 10,
        lambda: stage.redis.hdel(key, "parked"),
        lambda: stage.answer(run.id, 4),
    )
    run.wait(progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert sum("sim:fast is parked: Incorrect API key provided" in line for line in lines) == 1
    assert "100 %" in lines[-1]


def test_a_bar_shows_why_below_it_and_not_once_the_run_goes_on(stage: Stage) -> None:
    run, out = submit(stage), StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system=None)
    with open_progress(stage.clock, console) as view:
        view.show(run.status(), ["no worker serves sim:fast"])
        assert "no worker serves sim:fast" in out.getvalue()
        out.truncate(0)
        view.show(run.status())
        assert "no worker" not in out.getvalue()


def wait_of(*lanes: LaneWait, sentence: str = "the whole waits") -> Waiting:
    return Waiting("r", "run", "running", "parked", sentence, None, None, None, UNKNOWN, lanes, 0)


def lane_wait(lane: str, constraint: Any = "parked") -> LaneWait:
    return LaneWait(lane, constraint, f"{lane} is {constraint}", None, queued=1, in_flight=0)


def test_two_seconds_without_progress_are_a_standstill_and_answers_become_rarer(stage: Stage) -> None:
    run, clock, asked = submit(stage), ManualClock(), list[int]()

    def ask() -> Waiting:
        asked.append(clock.monotonic_ms())
        return wait_of()

    standstill, begun = Standstill(clock, ask), clock.monotonic_ms()
    for _ in range(50):
        words = standstill.words(run.status())
        clock.advance(1.0)
    assert words == ("the whole waits",)
    assert [at - begun for at in asked] == [2000, 4000, 8000, 16000, 26000, 36000, 46000]
    stage.answer(run.id, 1)
    assert standstill.words(run.status()) == ()


def test_a_lane_that_is_held_is_named_while_others_make_progress(stage: Stage) -> None:
    status, clock = submit(stage).status(), ManualClock()
    slow = LaneProgress("sim:slow", known=4, done=0)
    standstill = Standstill(
        clock, lambda: wait_of(lane_wait("sim:slow"), lane_wait("sim:fast"), lane_wait("sim:x", "running"))
    )
    for done in range(3):
        fast = LaneProgress("sim:fast", known=4, done=done)
        words = standstill.words(replace(status, jobs_done=done, lanes=(fast, slow)))
        clock.advance(1.0)
    assert words == ("sim:slow is parked",)


def test_an_answer_that_cannot_be_had_is_no_failure(stage: Stage) -> None:
    status, clock = submit(stage).status(), ManualClock()
    standstill = Standstill(clock, lambda: None)
    standstill.words(status)
    clock.advance(3.0)
    assert standstill.words(status) == ()


@pytest.mark.parametrize(("items", "done", "shown"), [(3, 1, "33 % 1/3"), (3, 3, "100 % 3/3"), (0, 0, "0/1")])
def test_a_run_without_jobs_shows_its_items(stage: Stage, items: int, done: int, shown: str) -> None:
    out = StringIO()
    status = replace(submit(stage).status(), items=items, items_done=done, jobs=0, jobs_done=0, lanes=())
    PlainProgress(stage.clock, Console(file=out, width=120)).show(status)
    assert shown in out.getvalue()
