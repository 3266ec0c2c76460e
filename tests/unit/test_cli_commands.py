"""Commands are found through entry points, listed without their modules, and loaded when used."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from typer.testing import CliRunner

from fairlane.cli.commands import Command, find_commands
from fairlane.cli.main import app
from tests.support.documents import ROOT

MOST_MODULES = 250
"""Modules that ``import fairlane`` may load, the interpreter's own included."""

OTHER_COMMAND = '''
"""A command of another distribution."""

import typer
from fairlane.cli.commands import RUNS, Command

COMMANDS = (Command("greet", RUNS, "Print a greeting.", "greeting"),)
app = typer.Typer()


@app.command()
def greet() -> None:
    """Print a greeting."""
    typer.echo("hello")
'''


@pytest.fixture
def other_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed distribution whose entry point adds the command ``greet``."""
    information = tmp_path / "greeting-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[fairlane.commands]\ngreeting = greeting:COMMANDS\n")
    (tmp_path / "greeting.py").write_text(OTHER_COMMAND)
    monkeypatch.syspath_prepend(str(tmp_path))
    find_commands.cache_clear()
    yield
    find_commands.cache_clear()
    sys.modules.pop("greeting", None)


def each_of(command: Any) -> Iterator[Any]:
    """A command, and those of its group."""
    yield command
    for inner in getattr(command, "commands", {}).values():
        yield from each_of(inner)


def modules_after(program: str) -> set[str]:
    """Names of all modules that a new interpreter has loaded after ``program``."""
    report = "; import json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    ended = subprocess.run(
        [sys.executable, "-c", program + report], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(ended.stderr.splitlines()[-1]))


def test_the_help_loads_neither_settings_nor_redis_nor_celery() -> None:
    loaded = modules_after("from fairlane.cli.main import main; main(['--help'])")
    assert not loaded & {"fairlane.config.settings", "redis", "celery", "pydantic", "jinja2"}
    assert "fairlane.cli.commands" in loaded


def test_the_package_loads_none_of_its_modules_before_a_name_is_used() -> None:
    loaded = modules_after("import fairlane")
    assert len(loaded) <= MOST_MODULES
    assert {name for name in loaded if name.startswith("fairlane.")} <= {
        "fairlane.core",
        "fairlane.core.version",
    }


def test_the_page_of_all_commands_is_current() -> None:
    written = runpy.run_path(str(ROOT / "deploy" / "site" / "command_line.py"))["page"]()
    current = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == written
    assert current, "write it anew with `make docs-cli`"


@pytest.mark.parametrize("command", find_commands().values(), ids=lambda command: command.name)
def test_every_word_of_a_help_is_printed(command: Command) -> None:
    """Rich drops a word in brackets, such as the name of a table of the settings, as a style."""
    texts = [option.help for each in each_of(command.load()) for option in each.params]
    assert [text for text in texts if text and Text.from_markup(text).plain != text.replace("\\[", "[")] == []


@pytest.mark.parametrize("command", find_commands().values(), ids=lambda command: command.name)
def test_the_listed_summary_is_the_first_line_of_the_commands_help(command: Command) -> None:
    assert command.load().help.partition("\n\n")[0].replace("\n", " ") == command.summary


@pytest.mark.usefixtures("other_distribution")
def test_an_entry_point_of_another_distribution_adds_a_command() -> None:
    assert "Print a greeting." in CliRunner().invoke(app, ["--help"]).stdout
    assert CliRunner().invoke(app, ["greet"]).stdout == "hello\n"
