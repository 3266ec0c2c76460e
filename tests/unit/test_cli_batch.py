"""``fairlane batch`` checks a file, makes a run of it, and writes what the Batch API would have written."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from fairlane.client.deployment import SystemWaiter
from fairlane.model.job import JobState
from fairlane.model.run import RunSpec
from tests.support.command_line import CommandLine


@pytest.fixture
def requests(tmp_path: Path) -> str:
    path = tmp_path / "in.jsonl"
    lines = [
        {
            "custom_id": f"r{n}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "fast", "messages": [{"role": "user", "content": f"q{n}"}], "max_tokens": 9},
        }
        for n in range(3)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Outside:
    """Scheduler and workers, which act while a command waits."""

    def __init__(self, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage, self.interrupts = cli.stage, False
        self.results: dict[str, Any] = {"finish_reason": "stop"}
        monkeypatch.setattr(SystemWaiter, "wait", lambda _, seconds: self.act())

    def act(self) -> None:
        if self.interrupts:
            raise KeyboardInterrupt
        self.stage.admit()
        run = self.stage.client.runs()[0]
        if not run.state.finished:
            self.stage.answer(run.run, run.items, last_first=True, **self.results)

    def spec(self) -> RunSpec:
        self.stage.admit()
        return self.stage.spec(self.stage.client.runs()[0].run)


@pytest.fixture
def outside(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Outside:
    return Outside(cli, monkeypatch)


def test_an_output_beside_which_no_file_can_be_needs_a_place_for_errors(
    cli: CommandLine, outside: Outside, requests: str, tmp_path: Path
) -> None:
    pipe, errors = tmp_path / "pipe", tmp_path / "errors.jsonl"
    os.mkfifo(pipe)
    options = ("batch", requests, "-o", str(pipe), "--model", "sim:fast")
    assert "give --errors FILE" in " ".join(cli.refused(*options, code=2).replace("│", "").split())
    assert not cli.stage.client.runs()
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert cli(*options, "--errors", str(errors)).exit_code == 0
    assert len(os.read(reading, 99_999).splitlines()) == 3
    os.close(reading)
    assert pipe.is_fifo()
    assert errors.read_text() == ""


def test_a_file_is_answered_in_its_own_order(
    cli: CommandLine, outside: Outside, requests: str, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    result = cli("batch", requests, "-o", str(out), "--model", "sim:fast")
    assert result.exit_code == 0, result.output
    run = cli.stage.client.runs()[0].run
    assert result.stdout == ""
    assert f"run {run}: 3 requests" in result.stderr
    answers = written(out)
    assert [line["custom_id"] for line in answers] == ["r0", "r1", "r2"]
    body = answers[1]["response"]["body"]
    assert (body["model"], body["choices"][0]["message"]["content"]) == ("fast", "answer 1")
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "out.jsonl"}


def test_every_option_reaches_the_run(
    cli: CommandLine, outside: Outside, requests: str, tmp_path: Path
) -> None:
    outside.interrupts = True
    options = ("--param", "seed=1", "--priority", "5", "--timeout", "30", "--max-attempts", "7")
    cli("batch", requests, "-o", str(tmp_path / "out"), "-m", "sim:fast", *options, "--name", "mine")
    spec = outside.spec()
    assert (spec.request_field, spec.models, spec.prompts) == ("body", ("sim:fast",), ())
    assert (spec.params, spec.priority, spec.timeout) == ({"seed": 1}, 5, 30.0)
    assert (spec.retry.max_attempts, spec.name, spec.items) == (7, "mine", 3)


def test_what_no_protocol_sends_is_refused_unless_the_check_is_left_out(
    cli: CommandLine, outside: Outside, requests: str, tmp_path: Path
) -> None:
    path = Path(requests)
    path.write_text(path.read_text().replace('"max_tokens": 9', '"logprobs": true'))
    batch = ("batch", requests, "-o", str(tmp_path / "out"), "-m", "sim:fast")
    assert "--no-check" in cli.refused(*batch, code=2)
    outside.interrupts = True
    cli(*batch, "--no-check")
    assert outside.spec().items == 3


def test_a_connection_asks_each_lines_own_model(
    cli: CommandLine, outside: Outside, requests: str, tmp_path: Path
) -> None:
    outside.interrupts = True
    cli("batch", requests, "-o", str(tmp_path / "out"), "--connection", "sim")
    spec = outside.spec()
    assert spec.models == ("sim:{{ body['model'] }}",)
    assert spec.name == "in.jsonl"


def test_the_way_to_go_on_can_be_typed_as_it_stands(
    cli: CommandLine, outside: Outside, requests: str, tmp_path: Path
) -> None:
    outside.interrupts = True
    files = ["-o", str(tmp_path / "my out.jsonl"), "--errors", str(tmp_path / "$bad")]
    result = cli("batch", requests, *files, "--model", "sim:fast")
    words = shlex.split(result.stderr.partition("` writes")[0].rpartition("`")[2])
    assert words[:3] == ["fairlane", "batch", "--run"]
    assert words[4:] == files


def test_an_interrupt_leaves_the_run_and_says_how_to_go_on(
    cli: CommandLine, outside: Outside, requests: str, tmp_path: Path
) -> None:
    outside.interrupts = True
    out = tmp_path / "out.jsonl"
    result = cli("batch", requests, "-o", str(out), "--model", "sim:fast")
    run = cli.stage.client.runs()[0].run
    assert result.exit_code == 130
    assert f"`fairlane batch --run {run} -o {out}` writes its files later" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    outside.interrupts = False
    assert cli("batch", "--run", run, "-o", str(out)).exit_code == 0
    assert len(written(out)) == 3


def test_requests_without_an_answer_are_reported_in_a_file_beside(
    cli: CommandLine, outside: Outside, requests: str, tmp_path: Path
) -> None:
    outside.results = {"state": JobState.FAILED, "output": None, "error": "400: no"}
    out = tmp_path / "out.jsonl"
    result = cli("batch", requests, "-o", str(out), "--model", "sim:fast")
    assert result.exit_code == 1, result.output
    errors = tmp_path / "out.errors.jsonl"
    assert f"3 requests without an answer are in {errors}" in result.stderr
    assert (out.read_text(), len(written(errors))) == ("", 3)
    assert written(errors)[0]["error"] == {"code": "request_failed", "message": "400: no"}


def test_failures_that_are_allowed_are_no_failure_of_the_command(
    cli: CommandLine, outside: Outside, requests: str, tmp_path: Path
) -> None:
    outside.results = {"state": JobState.FAILED, "output": None, "error": "400: no"}
    out = str(tmp_path / "out.jsonl")
    assert cli("batch", requests, "-o", out, "--model", "sim:fast", "--fail-on-error=100%").exit_code == 0


def test_a_cancelled_batch_has_both_files_and_fails(
    cli: CommandLine, outside: Outside, requests: str, tmp_path: Path
) -> None:
    outside.interrupts = True
    out, bad = tmp_path / "out.jsonl", tmp_path / "bad.jsonl"
    cli("batch", requests, "-o", str(out), "--model", "sim:fast")
    run = cli.stage.client.runs()[0].run
    outside.spec()
    cli.stage.answer(run, 1)
    cli.stage.client.run(run).cancel()
    cli.stage.admit()
    assert cli("batch", "--run", run, "-o", str(out), "--errors", str(bad)).exit_code == 1
    assert [line["custom_id"] for line in written(out)] == ["r0"]
    assert [line["error"]["code"] for line in written(bad)] == ["batch_cancelled"] * 2


def test_a_refused_batch_has_no_files(
    cli: CommandLine, outside: Outside, requests: str, tmp_path: Path
) -> None:
    outside.interrupts = True
    cli("batch", requests, "-o", str(tmp_path / "out"), "--model", "sim:fast")
    run = cli.stage.client.runs()[0].run
    cli.stage.refuse(run, "too many jobs")
    assert f"run {run} was refused: too many jobs" in cli.refused(
        "batch", "--run", run, "-o", str(tmp_path / "out")
    )
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_another_run_is_no_batch(cli: CommandLine, tmp_path: Path) -> None:
    run = cli.completed(rows=1)
    assert "is no batch" in cli.refused("batch", "--run", run, "-o", str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "code", "complaint"),
    [
        (["IN", "-o", "OUT"], 2, "--model"),
        (["IN", "-o", "OUT", "--model", "sim:fast", "--connection", "sim"], 2, "--connection"),
        (["IN", "-o", "OUT", "--connection", "sim:fast"], 2, "no connection"),
        (["IN", "-o", "OUT", "--model", "fast"], 2, "names no connection and model"),
        (["IN", "--model", "sim:fast"], 2, "--output"),
        (["-o", "OUT", "--model", "sim:fast"], 2, "--run"),
        (["IN", "-o", "OUT", "--run", "x"], 2, "--run"),
        (["--run", "x", "-o", "OUT", "--model", "sim:fast"], 2, "--model"),
        (["IN", "-o", "IN", "--model", "sim:fast"], 2, "different"),
        (["IN", "-o", "NO/OUT", "--model", "sim:fast"], 1, "No such file"),
        (["BAD", "-o", "OUT", "--model", "sim:fast"], 2, "line 2: method"),
    ],
)
def test_what_is_wrong_is_reported_and_nothing_is_sent(
    cli: CommandLine, requests: str, tmp_path: Path, options: list[str], code: int, complaint: str
) -> None:
    bad = tmp_path / "bad-in.jsonl"
    good = Path(requests).read_text().splitlines()
    bad.write_text("\n".join([good[0], good[1].replace("POST", "GET")]))
    out = str(tmp_path / "out.jsonl")
    places = {"IN": requests, "OUT": out, "BAD": str(bad), "NO/OUT": str(tmp_path / "no" / "out")}
    shown = cli.refused("batch", *(places.get(each, each) for each in options), code=code)
    assert complaint in shown
    assert cli.stage.client.runs() == []
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "bad-in.jsonl"}


def test_what_is_left_out_is_as_the_environment_says(
    cli: CommandLine, outside: Outside, requests: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_CALL_TIMEOUT", "7")
    monkeypatch.setenv("RETRY_MAX_ATTEMPTS", "5")
    cli("batch", requests, "-o", str(tmp_path / "out.jsonl"), "--model", "sim:fast")
    spec = outside.spec()
    assert (spec.timeout, spec.retry.max_attempts, spec.retry.jitter) == (7.0, 5, "added")


@pytest.mark.parametrize(
    "option",
    [
        "--param=max_tokens=9",
        "--name=mine",
        "--priority=5",
        "--timeout=9",
        "--max-attempts=2",
        "--on-refusal=hold",
        "--no-check",
    ],
)
def test_options_of_requests_are_refused_beside_a_run(cli: CommandLine, tmp_path: Path, option: str) -> None:
    said = cli.refused("batch", "--run", "latest", "-o", str(tmp_path / "out.jsonl"), option, code=2)
    assert option.partition("=")[0] in said
