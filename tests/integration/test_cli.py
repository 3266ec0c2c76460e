"""Commands on a stack that is up, and the demonstration as a process, from nothing to nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fairlane.cli.main import app
from tests.support.exits import exit_status
from tests.support.processes import processes_below
from tests.support.wait import wait_until

SIMULATOR = """
[models.fast]
latency_ms = 20
output = "echo"
[models.slow]
latency_ms = 100
requests_per_minute = 600
[models.judge]
latency_ms = 10
output = "judge"
[models.closed]
status_always = 401
[models.caller]
output = "tool"
"""
CONFIG = """
[connections.sim]
protocol = "openai"
base_url = "http://127.0.0.1:8100/v1"
[lanes."sim:slow"]
requests_per_minute = 600
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="leftovers are looked for in /proc")


@dataclass(slots=True)
class Shell:
    """Another terminal beside the stack."""

    folder: Path
    environment: dict[str, str]

    def process(self, *arguments: str) -> str:
        """What a command prints on standard output as a process of its own; fails if the command does."""
        command = [sys.executable, "-m", "fairlane.cli", *arguments]
        ended = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, f"{arguments}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """The same of a command in this process; fails if it ends otherwise than with ``code``."""
        with contextlib.chdir(self.folder):
            ended = CliRunner().invoke(app, list(arguments), env=self.environment)
        assert ended.exit_code == code, f"{arguments}: {ended.output}"
        return ended.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("shell")
    (folder / "fairlane.toml").write_text(CONFIG)
    (folder / "simulator.toml").write_text(SIMULATOR)
    rows = [{"question": f"what is {n}", "answer": f"what is {n}"} for n in range(30)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "fairlane.cli", "up", "--simulate-config", "simulator.toml"]
    with (folder / "up.log").open("w") as log:
        up = subprocess.Popen([*command, "--ready-file", "ready.json"], cwd=folder, stdout=log, stderr=log)
        wait_until(lambda: (folder / "ready.json").exists() or up.poll() is not None)
    assert up.poll() is None, (folder / "up.log").read_text()
    try:
        found = json.loads((folder / "ready.json").read_text())
        announced = {
            "FAIRLANE_REDIS__URL": found["redis_url"],
            "FAIRLANE_CONNECTIONS__SIM__BASE_URL": found["base_url"],
        }
        yield Shell(folder, inherited() | announced)
    finally:
        up.send_signal(signal.SIGINT)
        up.wait()


def inherited() -> dict[str, str]:
    return dict(os.environ)  # noqa: TID251  handed on to processes


def test_a_run_from_its_submission_to_a_file_of_scored_results(shell: Shell) -> None:
    run = shell.process(
        *("submit", "rows.jsonl", "--prompt", "{{ question }}", "--model", "sim:fast", "--wait"),
        *("--evaluator", "exact_match:expected=answer", "--name", "echoes"),
        *("--judge-model", "sim:judge", "--judge-template", "Is {{ output }} like {{ answer }}?"),
    ).strip()
    status = shell.json("status", run)
    assert (status["state"], status["jobs_done"], status["name"]) == ("completed", 60, "echoes")
    shell("results", run, "-o", "out.jsonl")
    records = [json.loads(line) for line in (shell.folder / "out.jsonl").read_text().splitlines()]
    assert [record["item"] for record in records] == list(range(30))
    assert all(record["scores"]["exact_match"] == 1.0 for record in records)
    assert all(record["scores"]["llm_judge"] in (0.0, 1.0) for record in records)


def test_an_operator_pauses_changes_and_opens_a_lane_while_it_runs(shell: Shell) -> None:
    options = ("--prompt", "p {{ question }}", "--model", "sim:slow", "--repetitions", "2")
    run = shell("submit", "rows.jsonl", *options).strip()
    shell("lanes", "pause", "sim:slow")
    assert shell.json("status", run)["jobs_done"] < 60
    paused = shell.json("lanes", "show", "sim:slow")
    assert (paused["constraint"], paused["axes"]["requests"]["configured"]) == ("paused", 600)
    wait_until(lambda: shell.json("why", run)["constraint"] == "paused")  # its jobs may not be queued yet
    shell("lanes", "set", "sim:slow", "--max-concurrency", "7")
    assert shell.json("lanes", "show", "sim:slow")["limits"]["max_concurrency"] == 7
    shell("lanes", "resume", "sim:slow")
    shell("watch", run)
    assert shell.json("status", run)["by_state"] == {"succeeded": 60}


def test_a_run_that_is_cancelled_ends_and_keeps_what_is_done(shell: Shell) -> None:
    options = ("--prompt", "c {{ question }}", "--model", "sim:slow", "--repetitions", "5")
    run = shell("submit", "rows.jsonl", *options).strip()
    shell("cancel", run, "--wait")
    status = shell.json("status", run)
    assert (status["state"], status["jobs_done"]) == ("cancelled", 150)
    assert len(shell("results", run).splitlines()) == 150
    shell("watch", run, code=1)


def test_the_doctor_reports_no_problem_until_a_provider_denies_access(shell: Shell) -> None:
    assert [finding for finding in shell.json("doctor") if finding["grade"] != "ok"] == []
    idle = [("alive", 0)] * 2
    wait_until(lambda: [(worker["state"], worker["busy"]) for worker in shell.json("workers")] == idle)
    shell("submit", "rows.jsonl", "--prompt", "x", "--model", "sim:closed")
    wait_until(lambda: any(lane["lane"] == "sim:closed" and lane["parked"] for lane in shell.json("lanes")))
    assert "sim:closed is parked" in shell("doctor", code=1)
    shell("cancel", "latest", "--wait")


Demo = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        environment = inherited() | {"TMPDIR": str(tmp_path), "FAIRLANE_TEAM": "not-of-the-demonstration"}
        with (tmp_path / "out").open("w") as out:
            command = [sys.executable, "-m", "fairlane.cli", "demo", *options]
            process = subprocess.Popen(
                command, cwd=tmp_path, env=environment, text=True, stdout=out, stderr=out
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@linux
def test_the_demonstration_leaves_its_results_and_nothing_else(demo: Demo, tmp_path: Path) -> None:
    assert demo("--questions", "40", "--results", "kept").wait() == 0
    announced = (tmp_path / "out").read_text()
    (results,) = (tmp_path / "kept").iterdir()
    assert f"results: kept/{results.name}" in announced
    assert len(results.read_text().splitlines()) == 40
    assert all(lane in announced for lane in ("sim:fast", "sim:slow", "sim:judge"))
    assert "80 of 80: 80 succeeded" in announced
    assert "× ideal" in announced
    assert processes_below(tmp_path) == set()
    assert {entry.name for entry in tmp_path.iterdir()} == {"out", "kept"}


def holds(pattern: str) -> Callable[[Path], bool]:
    return lambda folder: any(folder.glob(f"fairlane-demo-*/{pattern}"))


def announced(words: str) -> Callable[[Path], bool]:
    return lambda folder: words in (folder / "out").read_text()


MOMENTS = {
    "its folder is made": (holds("."), signal.SIGINT),
    "redis is being started": (holds("logs/redis.log"), signal.SIGTERM),
    "the workers are being started": (holds("logs/worker-2.log"), signal.SIGINT),
    "the run is submitted": (announced("questions on two lanes"), signal.SIGINT),
    "the run is over": (announced(": 100 % "), signal.SIGTERM),
    "it is being taken down": (announced("stopping worker"), signal.SIGINT),
}


@linux
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_demonstration_that_is_stopped_at_any_moment_leaves_nothing(
    demo: Demo, tmp_path: Path, moment: str
) -> None:
    has_come, number = MOMENTS[moment]
    process = demo("--questions", "30", "--workers", "2" if "workers" in moment else "1")
    wait_until(lambda: has_come(tmp_path), timeout=60, interval=0.001)
    process.send_signal(number)
    assert exit_status(process.wait()) == 128 + number
    wait_until(lambda: processes_below(tmp_path) == set())
    assert "Traceback" not in (tmp_path / "out").read_text()
    assert not list(tmp_path.glob("fairlane-demo-*"))


@linux
def test_a_second_signal_stops_a_demonstration_at_once(demo: Demo, tmp_path: Path) -> None:
    process = demo("--questions", "1000", "--workers", "1")
    wait_until(lambda: announced("questions on two lanes")(tmp_path), timeout=60)
    process.send_signal(signal.SIGINT)
    wait_until(lambda: announced("stopping worker")(tmp_path))
    process.send_signal(signal.SIGINT)
    process.wait()
    wait_until(lambda: processes_below(tmp_path) == set())
    assert "Traceback" not in (tmp_path / "out").read_text()


@linux
def test_a_killed_demonstration_leaves_no_process(demo: Demo, tmp_path: Path) -> None:
    process = demo("--workers", "1")
    wait_until(lambda: announced("questions on two lanes")(tmp_path), timeout=60)
    process.kill()
    wait_until(lambda: processes_below(tmp_path) == set())
