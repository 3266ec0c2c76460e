"""Runs a rehearsal in its own process, and shows its progress."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fairlane.config.environment import child_environment
from fairlane.core.errors import LocalStackError
from fairlane.core.figures import took

MODULE = "fairlane.lab.rehearsal"
STOP_TIMEOUT_S = 10.0


def rehearse_apart(scenario: Mapping[str, Any], *, show: bool) -> dict[str, Any]:
    """The figures of a scenario, as `fairlane.lab.rehearsal.figures.measure.Measure` writes them.

    ``show`` draws a bar on standard error while it plays. Raises `LocalStackError` where it fails; whatever
    else ends the wait ends the process too.
    """
    with tempfile.TemporaryFile("w+") as asked, tempfile.TemporaryFile("w+") as complaints:
        json.dump(scenario, asked)
        asked.seek(0)
        with _process(asked, complaints) as process:
            measure = _follow(process.stdout or (), show)
            code = process.wait()
        if code != 0 or measure is None:
            complaints.seek(0)
            said = complaints.read().strip().splitlines()
            raise LocalStackError("rehearsal", said[-1] if said else f"ended with code {code}")
    return measure


@contextmanager
def _process(asked: IO[str], complaints: IO[str]) -> Iterator[subprocess.Popen[str]]:
    # -P as for a console script: files in the working directory must not shadow modules.
    with subprocess.Popen(
        [sys.executable, "-P", "-m", MODULE],
        stdin=asked,
        stdout=subprocess.PIPE,
        stderr=complaints,
        text=True,
        env=child_environment({}),
        start_new_session=True,  # Ctrl-C is for us; we end it
    ) as process:
        try:
            yield process
        finally:
            process.terminate()  # nothing happens if it has ended
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _follow(lines: Iterable[str], show: bool) -> dict[str, Any] | None:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True, quiet=not show)
    with Progress(
        *columns, console=console, transient=True, disable=not (show and console.is_terminal)
    ) as bar:
        task = bar.add_task("", total=None)
        for line in lines:
            message = json.loads(line)
            if "measure" in message:
                measure: dict[str, Any] = message["measure"]
                return measure
            passed = took(message["seconds"] * 1000)
            jobs, done = message["jobs"], message["done"]
            bar.update(task, total=jobs, completed=done, description=f"{passed} rehearsed")
    return None
