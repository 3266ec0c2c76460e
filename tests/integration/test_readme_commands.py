"""The README's quick start as written, and what the guides do after it, against one stack."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.documents import README, ROOT, blocks
from tests.support.running_stack import run, running_stack

QUICK_START = "Quick start"
GUIDED = (
    (ROOT / "docs" / "getting-started.md", "A first run"),
    (ROOT / "docs" / "operations.md", "Limits, pause and resume"),
    (ROOT / "docs" / "operations.md", "Troubleshooting"),
)


@pytest.mark.timeout(300)
def test_the_quick_start_and_the_guides_run_as_written(tmp_path: Path) -> None:
    up, commands = _shell_blocks()
    (program,) = blocks(README, "python", QUICK_START)
    with running_stack(shlex.split(up), tmp_path) as environment:
        _run_shell(commands, tmp_path, environment)
        records = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
        assert [(record["item"], record["state"]) for record in records] == [
            (0, "succeeded"),
            (1, "succeeded"),
        ]

        told = run([sys.executable, "-c", program.text], tmp_path, environment)
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


def _run_shell(text: str, directory: Path, environment: dict[str, str]) -> None:
    """Run a shell block; each of its commands must succeed."""
    run(["bash", "-euo", "pipefail", "-c", text], directory, environment)
