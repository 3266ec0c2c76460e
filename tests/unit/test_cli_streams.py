"""Commands whose standard streams are closed, full or of another encoding: what was done is known."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairlane.config.environment import child_environment
from tests.support.command_line import CommandLine

FAIRLANE = f"{sys.executable} -P -m fairlane.cli"
SUBMIT = f"{FAIRLANE} submit --prompt '{{{{ question }}}}' --model sim:fast --no-check"
LATIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": None}


class Shell:
    """Runs lines of a shell against the deployment of a command line."""

    def __init__(self, cli: CommandLine, folder: Path) -> None:
        self.cli, self._folder = cli, folder
        (folder / "rows.jsonl").write_text('{"question": "1 + 1"}\n')

    def __call__(self, line: str, **changes: str | None) -> subprocess.CompletedProcess[bytes]:
        environment = child_environment({**self.cli.environment, **changes})
        return subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=self._folder,
            env=environment,
            capture_output=True,
            timeout=60,
            check=False,
        )

    def submitted(self) -> list[str]:
        """The ids of all runs."""
        return [run["run"] for run in self.cli.json("runs")]


@pytest.fixture
def shell(cli: CommandLine, tmp_path: Path) -> Shell:
    return Shell(cli, tmp_path)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-", "2>/dev/full"])
def test_a_run_is_submitted_whatever_standard_streams_are_closed(shell: Shell, closed: str) -> None:
    done = shell(f"{SUBMIT} rows.jsonl {closed}")

    assert (done.returncode, len(shell.submitted())) == (0, 1), done.stderr


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_run_whose_id_cannot_be_written_is_named_on_standard_error(shell: Shell, form: str) -> None:
    done = shell(f"{SUBMIT} rows.jsonl {form} >/dev/full")

    (run,) = shell.submitted()
    assert done.returncode == 1
    assert f"run {run} was submitted; what this command prints could not be written" in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_no_standard_input_is_no_dataset(shell: Shell) -> None:
    done = shell(f"{SUBMIT.replace('--no-check', '')} - <&-")

    assert (done.returncode, shell.submitted()) == (2, [])
    assert b"dataset" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_list_that_cannot_be_written_is_a_failure_in_words(shell: Shell, form: str) -> None:
    shell.cli.submitted()
    full, closed = shell(f"{FAIRLANE} runs {form} >/dev/full"), shell(f"{FAIRLANE} runs {form} >&-")

    assert full.returncode == 1
    assert full.stderr.decode().splitlines() == ["error: No space left on device"]
    assert (closed.returncode, closed.stderr) == (0, b"")


def test_a_pipe_gets_utf_8_in_any_locale(shell: Shell) -> None:
    run = shell.cli.completed(1, name="prüfung – 試")

    table = shell(f"{FAIRLANE} summary {run}", **LATIN)
    document = shell(f"{FAIRLANE} status --json {run}", **LATIN)

    assert (table.returncode, document.returncode) == (0, 0), table.stderr + document.stderr
    assert json.loads(document.stdout.decode())["name"] == "prüfung – 試"


@pytest.mark.parametrize("command", ["", "submit", "lanes"])
def test_help_that_cannot_be_written_is_a_failure_in_words(shell: Shell, command: str) -> None:
    full = shell(f"{FAIRLANE} {command} --help >/dev/full")
    assert full.returncode == 1
    assert full.stderr.decode().splitlines() == ["error: No space left on device"]
