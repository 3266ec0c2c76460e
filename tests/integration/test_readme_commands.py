"""The README's quick start as written: the stack, the commands, the program."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlane.configuration import process_environment
from tests.support.documents import README, blocks
from tests.support.wait import wait_until

QUICK_START = "Quick start"
COME_UP_S, STEP_S, GO_DOWN_S = 40.0, 30.0, 20.0


@pytest.mark.timeout(110)
def test_the_quick_start_of_the_readme_runs_as_written(tmp_path: Path) -> None:
    up, commands = _shell_blocks()
    (program,) = blocks(README, "python", QUICK_START)
    with _running(up, tmp_path) as environment:
        _run(["bash", "-euo", "pipefail", "-c", commands], tmp_path, environment)
        records = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
        assert [(record["item"], record["state"]) for record in records] == [
            (0, "succeeded"),
            (1, "succeeded"),
        ]

        told = _run([sys.executable, "-c", program.text], tmp_path, environment)
        lines = told.splitlines()
        assert len(lines) == 100
        assert all("succeeded" in line and "llm_judge" in line for line in lines)


def _shell_blocks() -> tuple[str, str]:
    """The command that starts the stack, and those of the other terminal."""
    texts = [block.text for block in blocks(README, "bash", QUICK_START)]
    (up,) = [text for text in texts if text.startswith("fairlane up")]
    return up, texts[texts.index(up) + 1]


@contextmanager
def _running(up: str, directory: Path) -> Iterator[dict[str, str]]:
    """The stack is up inside the block; what is yielded leads other processes to it."""
    environment = {
        name: value for name, value in process_environment().items() if not name.startswith("FAIRLANE_")
    }
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    ready = directory / "ready.json"
    with (directory / "up.log").open("wb") as log:
        stack = subprocess.Popen(
            [*shlex.split(up), "--ready-file", str(ready)],
            cwd=directory,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_until(lambda: ready.exists() or stack.poll() is not None, timeout=COME_UP_S)
            assert stack.poll() is None, (directory / "up.log").read_text()
            yield {**environment, "FAIRLANE_REDIS__URL": json.loads(ready.read_text())["redis_url"]}
        finally:
            stack.send_signal(signal.SIGINT)
            try:
                stack.wait(GO_DOWN_S)
            except subprocess.TimeoutExpired:
                stack.kill()
                stack.wait()
    assert stack.returncode == 0


def _run(command: list[str], directory: Path, environment: dict[str, str]) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=STEP_S, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
