"""What teams and providers wrote is shown in full, and steers no terminal, wherever it is printed."""

from __future__ import annotations

import ast
import io
import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

import fairlane
from fairlane.cli import output
from fairlane.client.following.progress import PlainProgress
from fairlane.config.sections import LogSettings
from fairlane.core.clock import ManualClock
from fairlane.core.terminal_text import visible, visible_json, visible_line
from fairlane.model.run import RunState
from fairlane.model.run_status import RunStatus
from fairlane.telemetry.logs import configure_logging, get_logger

ATTACKS = [
    "\x1b]0;pwned\x07\x1b[31mRED",
    "\x1b]52;c;cHduZWQ=\x07",
    "\x9b31mC1",
    "\x1b[2J<img",
    "safe\rOK      ",
    "\u202egnp.exe",
    "\u2066hidden\u2069",
    "nul\x00\x7f\x08",
]
JOINERS = "\u200c\u200d"


def steers(text: str, allowed: str = "\t\n") -> list[str]:
    """Characters that control a terminal or the order of its signs."""
    controls = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return [
        c
        for c in text
        if unicodedata.category(c) in controls and c not in allowed + JOINERS and c < "\U00010000"
    ]


@given(st.text(st.characters(), max_size=60))
def test_nothing_that_steers_is_left_and_nothing_else_changes(text: str) -> None:
    assert steers(visible(text)) == []
    assert steers(visible_line(text), "") == []
    if not steers(text):
        assert visible(text) == text


@given(st.text(st.characters(), max_size=60))
def test_a_json_document_says_the_same(text: str) -> None:
    shown = visible_json(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(shown) == {"a": text}
    assert steers(shown) == []


@pytest.mark.parametrize("text", ["naïve", "日本語", "👩‍💻", "می‌خواهم", "a\u3000b\xa0c", "x\ty\nz"])
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert visible(text) == text


PRINTERS: list[Callable[[str], None]] = [
    output.say,
    output.complain,
    output.print_line,
    output.print_json,
    output.print_json_line,
    lambda text: output.print_table(["name"], [[text]]),
    lambda text: output.print_table(["name"], [[Text(text, "bold")]]),
    lambda text: output.print_fields([("name", text)]),
    lambda text: output.print_rows([[text, Text(text)]]),
]


@pytest.mark.parametrize("printer", PRINTERS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_every_way_to_print_shows_controls(
    printer: Callable[[str], None], attack: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printer(attack)
    reported = "".join(capsys.readouterr())
    assert reported
    assert steers(reported, "\n") == []


def status_of(name: str) -> RunStatus:
    """A run that has just begun."""
    counts = dict.fromkeys(
        ("items", "items_done", "jobs", "jobs_done", "in_flight", "retries", "rate_limits", "late_reports"), 0
    )
    times = dict.fromkeys(("submitted_ms", "started_ms", "finished_ms"), 0)
    return RunStatus(
        run="r1", team="t", name=name, state=RunState.RUNNING, by_state={}, lanes=(), **counts, **times
    )


@pytest.mark.parametrize("attack", ATTACKS)
def test_progress_shows_controls_of_a_runs_name(attack: str) -> None:
    out = io.StringIO()
    PlainProgress(ManualClock(), Console(file=out)).show(status_of(attack))
    assert steers(out.getvalue(), "\n") == []


@pytest.mark.parametrize("form", ["console", "json"])
@pytest.mark.parametrize("attack", [*ATTACKS, "a\n2026 forged line"])
def test_a_log_line_shows_controls_and_stays_one_line(attack: str, form: str) -> None:
    out = io.StringIO()
    configure_logging(LogSettings.model_validate({"format": form}), "p", out)
    get_logger("tests").info("event", error=attack, nested={"deep": [attack]})
    reported = out.getvalue()
    assert steers(reported, "\n") == []
    assert reported.count("\n") == 1


ROOT = Path(fairlane.__file__).parent
ROOMS = ("cli", "top", "local", "apps", "client", "flower")
PRINTS = {"print", "Console", "echo", "secho", "Progress", "Live"}
STREAMS = {"stdout", "stderr"}

GO_AROUND = Counter(
    {
        "cli/main.py echo": 1,  # the version
        "top/screen.py stdout.fileno": 1,  # its size
        "top/screen.py print": 1,  # a frame, whose texts come from `cell_of` and `visible_line`
        "top/command.py Console": 1,
        "apps/promptfoo/programs/harness.py print": 1,  # JSON to the process that started it
        "local/demo_command.py Console": 1,
        "local/demo/session.py print": 2,  # the demonstration's own run
        "local/demo/summary.py print": 4,
        "client/following/progress.py Console": 1,
        "client/following/progress.py Live": 1,  # `Bars` makes its sentences visible
        "client/following/progress.py Progress": 1,  # titles are made visible by `_draw`
        "client/following/progress.py print": 1,
    }
)
"""Prints beside `fairlane.cli.output`, counted: each holds no text of others, or makes it visible itself."""


def prints(path: Path) -> Iterator[str]:
    """Calls of a module that put text on a terminal."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in PRINTS:
                yield name
            case ast.Attribute(attr=what, value=ast.Attribute(value=ast.Name(id="sys"), attr=stream)) if (
                stream in STREAMS
            ):
                if what not in ("isatty", "flush"):
                    yield f"{stream}.{what}"
            case ast.Attribute(attr="write", value=ast.Attribute(attr="buffer")):
                yield "buffer.write"


def _is_stream(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="sys"), attr=name):
            return name in STREAMS
        case _:
            return False


def test_no_print_goes_around_the_place_where_text_becomes_terminal_text() -> None:
    found: Counter[str] = Counter()
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name != "cli/output.py":
                found.update(f"{name} {call}" for call in prints(path))
    assert found == GO_AROUND


def test_standard_output_is_handed_to_nobody() -> None:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if path.name == "output.py" and path.parent.name == "cli":
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    handed = [*node.args, *(keyword.value for keyword in node.keywords)]
                    for each in handed:
                        assert not (_is_stream(each)), path
