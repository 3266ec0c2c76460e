"""``fairlane results`` writes the format that is asked for, and ``fairlane summary`` sums a run up."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane.evaluators.builders import exact_match, llm_judge
from fairlane.model.job import JobState
from fairlane.model.run import RunState
from fairlane.model.tokens import Usage
from tests.support.command_line import CommandLine

JUDGE = llm_judge("sim:judge", "{{ output }}", {"yes": 1, "no": 0}, name="judge")
PRICES = '[prices."sim:*"]\ninput = 1000000\noutput = 0\n'


def scored(cli: CommandLine) -> str:
    """The id of a run of three items, of which one failed and two have a score."""
    run = cli.submitted(3, evaluators=[exact_match("question", name="exact")])
    cli.stage.answer(run, 1, scores={"exact": 1.0})
    cli.stage.answer(run, 1, scores={"exact": 0.0})
    cli.stage.answer(run, 1, state=JobState.FAILED, output=None, error="400: too long", usage=Usage())
    return run


def test_the_suffix_says_how_results_are_written(cli: CommandLine, tmp_path: Path) -> None:
    run = cli.completed()
    for name in ("out.csv", "out.jsonl", "out.parquet"):
        shown = cli("results", run, "-o", str(tmp_path / name))
        assert f"5 records of run {run} are in {tmp_path / name}" in shown.stderr
    with (tmp_path / "out.csv").open() as file:
        assert [row["row.question"] for row in csv.DictReader(file)] == [f"q{n}" for n in range(5)]
    assert (tmp_path / "out.parquet").read_bytes()[:4] == b"PAR1"
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 5


def test_a_format_may_be_given(cli: CommandLine, tmp_path: Path) -> None:
    run = cli.completed(2)
    assert cli.out("results", run, "--format", "csv").splitlines()[0].startswith("item,row.question")
    cli.out("results", run, "-o", str(tmp_path / "out.txt"), "--format", "jsonl")
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 2


def test_results_go_into_a_pipe(cli: CommandLine, tmp_path: Path) -> None:
    run, pipe = cli.completed(2), tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    cli.out("results", run, "-o", str(pipe), "--format", "csv")
    assert os.read(reading, 9999).startswith(b"item,row.question")
    os.close(reading)
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("-o", "out.xlsx"), "--format"),
        (("-o", "out"), "--format"),
        (("--format", "excel"), "jsonl, csv, parquet"),
        (("--format", "parquet"), "written to a file"),
        (("--raw",), "--raw is for tables"),
        (("--raw", "--format", "jsonl"), "--raw is for tables"),
        (("--raw", "--format", "inspect"), "leave out --raw"),
    ],
)
def test_a_format_that_cannot_be_is_a_misuse(cli: CommandLine, options: tuple[str, ...], why: str) -> None:
    run = cli.completed(1)
    assert why in " ".join(cli.refused("results", run, *options, code=2).replace("│", "").split())


def test_a_table_may_follow_the_order_in_which_items_ended(cli: CommandLine) -> None:
    run = cli.submitted(rows=3)
    cli.stage.answer(run, 3, last_first=True)
    lines = cli.out("results", run, "--follow", "--format", "csv").splitlines()
    assert [line.partition(",")[0] for line in lines] == ["item", "2", "1", "0"]


def test_a_summary_has_scores_failures_tokens_and_cost(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text(PRICES)
    run = scored(cli)
    shown = cli.out("summary", run, "--config", str(tmp_path / "fairlane.toml"))
    assert "3: 1 failed, 2 succeeded" in shown
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert "exact sim:fast 2 1 0.5 0.5 0 1" in rows
    assert "cost $20.00" in rows
    assert "task sim:fast 2 20 0 10 $20.00" in rows
    assert "1 task 2 400: too long" in rows


def test_a_summary_as_json_has_every_field(cli: CommandLine) -> None:
    run = scored(cli)
    shown = cli.json("summary", run)
    assert (shown["run"], shown["state"], shown["items"]) == (run, "completed", 3)
    assert shown["scores"]["exact"] == {
        "count": 2,
        "missing": 1,
        "mean": 0.5,
        "standard_error": 0.5,
        "minimum": 0.0,
        "maximum": 1.0,
        "rows": 2,
    }
    assert (shown["cost_usd"], shown["unpriced"]) == (None, ["sim:fast"])
    assert [failure["error"] for failure in shown["failures"]] == ["400: too long"]


def test_scores_of_several_models_are_reported_for_each(cli: CommandLine) -> None:
    run = cli.submitted(1, evaluators=[JUDGE], model=None, models=["sim:fast", "sim:slow"])
    cli.stage.answer(run, 2)
    cli.stage.judge(run, 1, score=1.0)
    cli.stage.judge(run, 1, score=0.0)
    rows = [" ".join(line.split()) for line in cli.out("summary", run).splitlines()]
    assert {"judge all 2 of 1 row 0 0.5 – 0 1", "sim:fast 1 0 1 – 1 1", "sim:slow 1 0 0 – 0 0"} <= set(rows)


def test_a_summary_of_a_refused_run_says_why(cli: CommandLine) -> None:
    run = cli.stage.client.submit([{"q": 1}], prompt="{{ q }}", model="sim:fast").id
    cli.stage.refuse(run, "no such connection")
    assert "was refused: no such connection" in cli.refused("summary", run)


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """What happens whenever a command waits."""
    monkeypatch.setattr("fairlane.client.deployment.SystemWaiter.wait", lambda *_: happens())


def test_a_summary_waits_for_the_runs_end(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = cli.submitted()
    meanwhile(monkeypatch, lambda: cli.stage.answer(run, 5))
    result = cli("summary", run, "--json")
    assert json.loads(result.stdout)["state"] == RunState.COMPLETED
    assert "waiting for its end" in result.stderr


def test_a_summary_so_far_waits_for_nothing(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = cli.submitted()

    def waits() -> None:
        raise AssertionError

    meanwhile(monkeypatch, waits)
    assert cli.json("summary", run, "--so-far")["by_state"] == {}
    cli.stage.answer(run, 1, scores={"exact": 1.0})
    shown = cli.json("summary", run, "--so-far")
    assert (shown["state"], shown["by_state"], shown["scores"]["exact"]["count"]) == (
        "running",
        {"succeeded": 1},
        1,
    )


def test_a_run_exports_sums_up_and_becomes_a_frame(cli: CommandLine, tmp_path: Path) -> None:
    run = cli.stage.client.run(scored(cli))
    assert run.export(tmp_path / "out.parquet") == 3
    assert run.export(tmp_path / "out", "csv") == 3
    assert run.to_pandas()["scores.exact"].mean() == run.summary().scores["exact"].mean == 0.5


@pytest.mark.parametrize("form", ["csv", "parquet", "mlflow"])
def test_json_and_another_format_exclude_each_other(cli: CommandLine, form: str) -> None:
    assert "leave out --json" in cli.refused("results", "latest", "--json", "--format", form, code=2)
