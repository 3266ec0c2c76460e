"""What the harness of faults prints of a fault that it could not play."""

from __future__ import annotations

import io

from rich.console import Console

from tests.faults.history import History
from tests.faults.report import show
from tests.faults.schedule import Schedule


def test_an_error_that_quotes_a_log_is_shown_with_the_end_of_the_log() -> None:
    console = Console(file=io.StringIO())
    unplayed = "redis: exited with code 1: " + "a line of its log\n" * 200 + "bad file format"
    show(console, History(Schedule(1, ()), unplayed=(unplayed,)), [])
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "redis: exited with code 1" in shown
    assert "bad file format" in shown
