"""README's program and the guides' commands run as written, against one stack."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.documents import README, ROOT, blocks
from tests.support.running_stack import run, running_stack

PYTHON = "In Python"
SUBMIT = ROOT / "docs" / "submit.md"
GUIDED = (
    (ROOT / "docs" / "getting-started.md", "A first run"),
    (ROOT / "docs" / "lanes.md", "Limits, pause and resume"),
    (ROOT / "docs" / "troubleshooting.md", "First"),
)


@pytest.mark.timeout(300)
@pytest.mark.slow(seconds=60)
def test_the_readme_and_the_guides_run_as_written(tmp_path: Path) -> None:
    (program,) = blocks(README, "python", PYTHON)
    (printed,) = blocks(README, "text", PYTHON)
    (example, *_) = blocks(SUBMIT, "python")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with running_stack(shlex.split(_start()), tmp_path) as environment:
        assert run([sys.executable, "-c", program.text], tmp_path, environment) == printed.text
        assert run([sys.executable, "-c", example.text], tmp_path, environment).startswith("completed\n0 ")

        for guide, section in GUIDED:
            for block in blocks(guide, "bash", section):
                _run_shell(block.text, tmp_path, environment)
        records = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
        assert len(records) == 200
        assert {record["state"] for record in records} == {"succeeded"}


def _start() -> str:
    """The command that starts the stack, which README and the first guide share."""
    texts = [block.text for block in blocks(README, "bash", PYTHON)]
    (up,) = [line for text in texts for line in text.splitlines() if line.startswith("fairlane up")]
    (same,) = [block.text.strip() for block in blocks(GUIDED[0][0], "bash", "Start everything")]
    assert up == same
    return up


def _run_shell(text: str, directory: Path, environment: dict[str, str]) -> None:
    """Run a shell block; each of its commands must succeed."""
    run(["bash", "-euo", "pipefail", "-c", text], directory, environment)
