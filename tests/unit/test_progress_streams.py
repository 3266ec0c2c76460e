"""A picture ends no wait: on streams that are closed, narrow or no real file, progress goes silent."""

from __future__ import annotations

import io
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from fairlane.client.following.progress import open_progress
from fairlane.core.clock import ManualClock
from fairlane.model.run import RunState
from tests.support.stage import Stage
from tests.unit.test_client_reading import submit


class Stream(io.TextIOBase):
    """A terminal, or none, whose methods raise."""

    def __init__(self, error: Exception, *, terminal: bool, on: str = "write") -> None:
        self._error, self._terminal, self._on = error, terminal, on

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        if self._on == "write":
            raise self._error
        return len(text)

    def flush(self) -> None:
        if self._on == "flush":
            raise self._error


ERRORS = [BrokenPipeError(), OSError("no space"), ValueError("closed"), AttributeError("flush")]


@pytest.mark.parametrize("on", ["write", "flush"])
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_stream_that_cannot_be_written_ends_no_wait(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: Exception, terminal: bool, on: str
) -> None:
    run = submit(stage, 1)
    stage.then(*[lambda: None] * 30, lambda: stage.answer(run.id, 1))
    monkeypatch.setattr(sys, "stderr", Stream(error, terminal=terminal, on=on))

    assert run.wait(progress=True).state is RunState.COMPLETED


def test_a_narrow_stream_ends_no_wait(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict", write_through=True)
    run = submit(stage, 1, name="Größe — ×")
    stage.answer(run.id, 1)
    monkeypatch.setattr(sys, "stderr", narrow)

    assert run.wait(progress=True).state is RunState.COMPLETED


def test_a_terminal_that_cannot_place_its_cursor_gets_lines(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of Emacs and of some CI services are: nothing was drawn there."""
    monkeypatch.setenv("TERM", "dumb")
    console = Console(file=io.StringIO(), force_terminal=True)
    run = submit(stage, 4)
    with open_progress(stage.clock, console) as view:
        view.show(run.status())
        assert "0/4" in console.file.getvalue()  # type: ignore[attr-defined]


def test_an_error_of_the_waiter_is_not_taken_for_one_of_the_picture() -> None:
    for terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=terminal)
        with pytest.raises(OSError, match="mine"), open_progress(ManualClock(), console):
            raise OSError("mine")


def test_once_it_failed_nothing_is_drawn_any_more(stage: Stage) -> None:
    calls: list[Any] = []
    screen = SimpleNamespace(is_jupyter=False, is_terminal=False)
    screen.print = lambda *_, **__: calls.append(1) or (_ for _ in ()).throw(OSError())
    run = submit(stage, 1)
    stage.answer(run.id, 1)
    with open_progress(ManualClock(), screen) as view:  # type: ignore[arg-type]
        for _ in range(3):
            view.show(run.status())

    assert len(calls) == 1


PIPE = """
import os, sys
from fairlane.client.following.progress import open_progress
from fairlane.core.clock import SystemClock

read, write = os.pipe()
os.close(read)
os.dup2(write, 2)
with open_progress(SystemClock()) as view:
    view.silent(3.0)
print("still here")
"""


def test_a_reader_of_standard_error_that_is_gone_does_not_end_the_program() -> None:
    done = subprocess.run([sys.executable, "-c", PIPE], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout) == (0, "still here\n")
