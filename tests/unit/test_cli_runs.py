"""Commands on existing runs: which run is meant, and what is shown of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from fairlane.model.run import RunRef, RunState
from fairlane.store.write.audit import operator
from tests.support.command_line import CommandLine


def test_runs_are_listed_newest_first(cli: CommandLine) -> None:
    first, second = cli.completed(name="one"), cli.submitted(name="two")
    lines = cli.out("runs").splitlines()
    assert [line.split()[0] for line in lines] == ["run", second, first]
    assert "running" in lines[1]
    assert "completed" in lines[2]
    assert "just now" in lines[1]


def test_the_list_says_which_submission_is_lost_as_its_status_does(cli: CommandLine) -> None:
    run, keys = cli.submitted(), cli.stage.keys
    waits = cli.stage.client.submit([{"q": 1}], "{{ q }}", model="sim:fast").id
    cli.stage.redis.delete(keys.state(RunRef("search", run)), keys.plan(RunRef("search", run)))
    assert "Redis has lost its request" in cli.out("status", run)
    states = {words[0]: words[1] for words in map(str.split, cli.out("runs").splitlines()[1:])}
    assert states == {run: "lost", waits: "submitted"}
    reasons = {each["run"]: each["reason"] for each in cli.json("runs")}
    assert "Submit it again" in reasons[run]
    assert reasons[waits] is None


def test_the_list_has_a_limit(cli: CommandLine) -> None:
    cli.completed()
    second = cli.completed()
    assert [run["run"] for run in cli.json("runs", "-n", "1")] == [second]


def test_a_run_of_another_team_is_neither_listed_nor_found(cli: CommandLine, real_redis: Redis) -> None:
    run = cli.completed()
    other = CommandLine(real_redis, team="other")
    assert other.json("runs") == []
    assert f"no run '{run}'" in other.refused("status", run)


def test_without_runs_it_says_how_to_make_one(cli: CommandLine) -> None:
    assert "fairlane submit" in cli("runs").stderr
    assert "fairlane submit" in cli.refused("status")


def test_a_long_name_is_clipped_in_the_table_alone(cli: CommandLine) -> None:
    cli.completed(name="n" * 100)
    assert f"{'n' * 19}…" in cli.out("runs")
    assert cli.json("runs")[0]["name"] == "n" * 100


def test_a_status_reports_jobs_by_state_and_lane(cli: CommandLine) -> None:
    run = cli.submitted(rows=4, name="mine")
    cli.stage.answer(run, 3)
    shown = cli.out("status", run)
    assert "running, 75 % done" in shown
    assert "3 of 4: 3 succeeded" in shown
    assert shown.splitlines()[-1].split() == ["sim:fast", "3", "4", "75", "%"]


def test_a_status_as_json_has_every_field_and_iso_times(cli: CommandLine) -> None:
    run = cli.completed(rows=2)
    document = cli.json("status", run)
    assert (document["run"], document["team"], document["state"]) == (run, "search", "completed")
    assert (document["progress"], document["jobs"], document["by_state"]) == (1.0, 2, {"succeeded": 2})
    assert document["lanes"] == [{"lane": "sim:fast", "known": 2, "done": 2}]
    assert document["finished_at"].endswith("Z")


@pytest.mark.parametrize("wanted", ["latest", "-1", None])
def test_the_latest_run_needs_no_id(cli: CommandLine, wanted: str | None) -> None:
    cli.completed()
    second = cli.completed()
    assert cli.json("status", *([wanted] if wanted else []))["run"] == second


def test_the_beginning_of_an_id_is_enough(cli: CommandLine) -> None:
    run = cli.completed()
    assert cli.json("status", run[:6])["run"] == run


def test_a_run_that_waits_to_be_admitted_is_found_by_its_beginning(cli: CommandLine) -> None:
    run = cli.stage.client.submit([{"q": 1}], prompt="{{ q }}", model="sim:fast").id
    assert cli.json("status", run[:6])["state"] == "submitted"


def test_a_beginning_of_several_runs_is_refused_and_names_them(cli: CommandLine) -> None:
    first, second = cli.completed(), cli.completed()
    shown = cli.refused("status", "1")
    assert "2 runs" in shown
    assert first in shown
    assert second in shown


def test_a_run_is_found_by_its_name_and_of_several_the_newest(cli: CommandLine) -> None:
    cli.completed(name="nightly regression")
    second = cli.completed(name="nightly regression")
    cli.completed(name="another")
    assert cli.json("status", "nightly regression")["run"] == second
    assert "no run 'nightly'" in cli.refused("status", "nightly")


@pytest.mark.parametrize("command", ["status", "watch", "results", "cancel", "pause", "resume"])
@pytest.mark.parametrize("wanted", ["zzz", "", "no/id"])
def test_an_unknown_run_is_reported_and_ends_with_1(cli: CommandLine, command: str, wanted: str) -> None:
    cli.completed()
    assert f"no run '{wanted}'" in cli.refused(command, wanted)


def test_an_unknown_option_is_no_run(cli: CommandLine) -> None:
    assert "No such option" in cli.refused("status", "--jsn", code=2)


def test_watching_a_completed_run_ends_with_0(cli: CommandLine) -> None:
    run = cli.completed()
    result = cli("watch", run)
    assert result.exit_code == 0
    assert f"run {run} completed: 5 jobs" in result.stderr


def test_watching_as_json_prints_a_line_for_each_status(cli: CommandLine) -> None:
    run = cli.completed()
    lines = [json.loads(line) for line in cli.out("watch", run, "--json").splitlines()]
    assert [(line["run"], line["state"]) for line in lines] == [(run, "completed")]


def test_watching_a_refused_run_ends_with_1_and_says_why(cli: CommandLine) -> None:
    run = cli.stage.client.submit([{"q": 1}], prompt="{{ q }}", model="sim:fast").id
    cli.stage.refuse(run, "no such connection")
    assert f"run {run} was refused: no such connection" in cli.refused("watch", run)


def test_a_run_is_asked_to_be_cancelled(cli: CommandLine) -> None:
    run = cli.submitted()
    assert f"run {run}: asked to cancel it" in cli("cancel", run).stderr
    cli.stage.admit()
    assert cli.stage.client.run(run).status().state is RunState.CANCELLED
    assert "was cancelled: 5 jobs, 5 cancelled" in cli.refused("watch", run)


def test_a_run_that_is_over_is_not_cancelled(cli: CommandLine) -> None:
    run = cli.completed()
    result = cli("cancel", run, "--wait")
    assert result.exit_code == 0
    assert f"run {run} has finished already; it completed: 5 jobs" in result.stderr


def test_a_run_is_paused_and_goes_on(cli: CommandLine) -> None:
    run = cli.submitted()
    assert f"run {run}: asked to pause it" in cli("pause", run).stderr
    cli.stage.admit()
    assert f"by {operator()} since " in cli.out("status", run)
    found = cli.json("status", run)
    assert (found["state"], found["paused"], found["paused_by"]) == ("running", True, operator())
    assert "paused" in cli.out("runs")
    assert f"paused already, by {operator()}" in cli("pause", run).stderr
    assert f"run {run}: asked to resume it" in cli("resume", run).stderr
    cli.stage.admit()
    found = cli.json("status", run)
    assert (found["paused"], found["paused_at"], found["paused_by"]) == (False, None, None)


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_run_that_is_over_is_not_paused(cli: CommandLine, command: str) -> None:
    run = cli.completed()
    assert f"run {run} has finished already; it completed" in cli(command, run).stderr


def test_cancel_wants_a_run_named(cli: CommandLine) -> None:
    cli.submitted()
    assert "Missing argument" in cli.refused("cancel", code=2)


def test_results_are_json_lines_in_item_order(cli: CommandLine) -> None:
    run = cli.submitted()
    cli.stage.answer(run, 5, last_first=True)
    records = [json.loads(line) for line in cli.out("results", run).splitlines()]
    assert [record["item"] for record in records] == [0, 1, 2, 3, 4]
    assert records[2]["row"] == {"question": "q2"}
    unknown = {"cached_tokens": None, "written_tokens": None}
    assert records[2]["usage"] == {"input_tokens": 10, "output_tokens": 5} | unknown
    assert (records[2]["state"], records[2]["output"]) == ("succeeded", "answer 2")


def test_results_may_come_in_the_order_in_which_items_ended(cli: CommandLine) -> None:
    run = cli.submitted(rows=3)
    cli.stage.answer(run, 3, last_first=True)
    lines = cli.out("results", run, "--follow").splitlines()
    assert [json.loads(line)["item"] for line in lines] == [2, 1, 0]


def test_results_go_whole_into_a_file(cli: CommandLine, tmp_path: Path) -> None:
    run, path = cli.completed(), tmp_path / "out.jsonl"
    assert cli.out("results", run, "-o", str(path)) == ""
    assert len(path.read_text().splitlines()) == 5
    assert list(tmp_path.iterdir()) == [path]


def test_a_refused_run_has_no_results_and_leaves_no_file(cli: CommandLine, tmp_path: Path) -> None:
    run = cli.stage.client.submit([{"q": 1}], prompt="{{ q }}", model="sim:fast").id
    cli.stage.refuse(run, "no such connection")
    (tmp_path / "out.jsonl").write_text("of before")
    for options in ([], ["--follow"], ["-o", str(tmp_path / "out.jsonl")]):
        assert "was refused: no such connection" in cli.refused("results", run, *options)
    assert (tmp_path / "out.jsonl").read_text() == "of before"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("output", ["", "missing/out.jsonl"])
def test_a_place_that_cannot_be_written_is_reported_first(
    cli: CommandLine, tmp_path: Path, output: str
) -> None:
    run = cli.submitted()
    path = tmp_path / output
    assert str(path) in cli.refused("results", run, "-o", str(path))


def test_redis_that_is_not_there_is_one_line_and_code_1(cli: CommandLine) -> None:
    for command in (["runs"], ["status"], ["lanes"], ["workers"]):
        shown = cli.refused(*command, "--redis", "redis://127.0.0.1:1/0")
        assert shown.startswith("error: cannot reach Redis at redis://127.0.0.1:1/0")
        assert len(shown.splitlines()) == 1


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """What happens whenever a command waits."""
    monkeypatch.setattr("fairlane.client.deployment.SystemWaiter.wait", lambda *_: happens())


def test_an_interrupted_watch_says_that_the_run_continues(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    run = cli.submitted()
    meanwhile(monkeypatch, interrupt)
    shown = cli.refused("watch", run, code=130)
    assert f"run {run} continues" in shown
    assert cli.stage.client.run(run).status().state is RunState.RUNNING


def test_results_of_a_run_that_is_not_over_are_waited_for(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cli.submitted()
    meanwhile(monkeypatch, lambda: cli.stage.answer(run, 5))
    result = cli("results", run)
    assert len(result.stdout.splitlines()) == 5
    assert f"run {run} is running, 0 % done; waiting for its end" in result.stderr


def test_a_cancellation_may_be_waited_for(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = cli.submitted()
    meanwhile(monkeypatch, cli.stage.admit)
    assert f"run {run} was cancelled: 5 jobs, 5 cancelled" in cli("cancel", run, "--wait").stderr


def test_watching_as_json_prints_each_move(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = cli.submitted(rows=3)
    meanwhile(monkeypatch, lambda: cli.stage.answer(run, 1))
    lines = cli.out("watch", run, "--json").splitlines()
    assert [json.loads(line)["jobs_done"] for line in lines] == [0, 1, 2, 3]
