"""Fields are described by the docstrings below them; where the source is missing, by nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from fairlane.cli.invocation import Invocation, with_settings
from fairlane.core.section import docstrings_of


@dataclass(frozen=True)
class Bundle:
    """Options of a command."""

    depth: Annotated[int, typer.Option(min=1)] = 3
    """How deep it
    goes."""

    plain: Annotated[str | None, typer.Option(metavar="TEXT")] = None


def without_source() -> type:
    made: dict[str, type] = {}
    exec("class Made:\n    depth: int = 3\n    'How deep.'", {"__name__": "nowhere"}, made)  # noqa: S102
    return made["Made"]


def test_a_docstring_is_one_line_and_a_field_without_one_has_none() -> None:
    assert docstrings_of(Bundle) == {"depth": "How deep it goes."}


def test_a_class_without_source_has_no_docstrings() -> None:
    assert docstrings_of(without_source()) == {}


def test_a_command_has_an_option_for_each_field_and_gets_them_together() -> None:
    app, got = typer.Typer(), list[Bundle]()

    @app.command()
    @with_settings
    def dive(invocation: Invocation, bundle: Bundle) -> None:
        got.append(bundle)

    runner = CliRunner()
    assert "How deep it goes." in runner.invoke(app, ["--help"]).output
    assert runner.invoke(app, ["--depth", "5", "--team", "search"]).exit_code == 0
    assert got == [Bundle(depth=5)]
