"""The README's quick start as written, and what the guides do after it, against one stack."""

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
from tests.support.documents import README, ROOT, blocks
from tests.support.wait import wait_until

QUICK_START = "Quick start"
GUIDED = (
    (ROOT / "docs" / "getting-started.md", "A first run"),
    (ROOT / "docs" / "operations.md", "Limits, pause and resume"),
    (ROOT / "docs" / "operations.md", "Troubleshooting"),
)
COME_UP_S, STEP_S, GO_DOWN_S = 25.0, 15.0, 10.0


@pytest.mark.timeout(60)
def test_the_quick_start_and_the_guides_run_as_written(tmp_path: Path) -> None:
    up, commands = _shell_blocks()
    (program,) = blocks(README, "python", QUICK_START)
    with _running(up, tmp_path) as environment:
        _run_shell(commands, tmp_path, environment)
        records = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
        assert [(record["item"], record["state"]) for record in records] == [
            (0, "succeeded"),
            (1, "succeeded"),
        ]

        told = _run([sys.executable, "-c", program.text], tmp_path, environment)
        lines = told.splitlines()
        assert len(lines) == 100
        assert all("succeeded" in line and "llm_judge" in line for line in lines)

        for guide, section in GUIDED:
            for block in blocks(guide, "bash", section):
                _run_shell(block.text, tmp_path, environment)


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


def _run_shell(text: str, directory: Path, environment: dict[str, str]) -> None:
    """Run a shell block; each of its commands must succeed."""
    _run(["bash", "-euo", "pipefail", "-c", text], directory, environment)


def _run(command: list[str], directory: Path, environment: dict[str, str]) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=STEP_S, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
