"""``--config``, ``--redis`` and ``--team`` work before a command's name and after it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from fairlane.cli.invocation import ConfigOption, Invocation, RedisOption, TeamOption, with_settings
from fairlane.cli.main import app as fairlane
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError

Seen = list[tuple[Invocation, int]]


@pytest.fixture
def seen() -> Seen:
    return []


@pytest.fixture
def app(seen: Seen) -> typer.Typer:
    app = typer.Typer()

    @app.callback()
    def root(
        ctx: typer.Context, config: ConfigOption = None, redis: RedisOption = None, team: TeamOption = None
    ) -> None:
        ctx.obj = Invocation(config, redis, team)

    @app.command()
    @with_settings
    def show(invocation: Invocation, number: Annotated[int, typer.Argument()] = 1) -> None:
        """Show what was said."""
        seen.append((invocation, number))

    return app


@pytest.mark.parametrize(
    "arguments",
    [
        ["--redis", "redis://a", "--team", "search", "show", "7"],
        ["show", "7", "--redis", "redis://a", "--team", "search"],
        ["--redis", "redis://before", "--team", "search", "show", "--redis", "redis://a", "7"],
    ],
)
def test_an_option_counts_wherever_it_stands_and_the_later_wins(
    app: typer.Typer, seen: Seen, arguments: list[str]
) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert seen == [(Invocation(None, "redis://a", "search"), 7)]


def test_the_help_of_a_command_lists_the_shared_options_after_its_own(app: typer.Typer) -> None:
    help_text = CliRunner().invoke(app, ["show", "--help"]).stdout
    assert "Show what was said." in help_text
    assert all(option in help_text for option in ("--config", "--redis", "--team"))


def test_options_override_the_file_and_the_rest_comes_from_it(tmp_path: Path) -> None:
    config = tmp_path / "fairlane.toml"
    config.write_text('team = "of-the-file"\n[redis]\nurl = "redis://of-the-file/0"\n')
    settings = Invocation(config=config, redis="redis://said/0").settings()
    assert (settings.redis.url, settings.team) == ("redis://said/0", "of-the-file")


def test_a_wrong_file_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "fairlane.toml"
    config.write_text("[rediss]\n")
    with pytest.raises(ConfigurationError, match="did you mean 'redis'"):
        Invocation(config=config).settings()


def test_another_process_comes_to_the_same_settings(tmp_path: Path) -> None:
    invocation = Invocation(tmp_path / "fairlane.toml", "redis://a/0", "search")
    assert invocation.environment() == {
        "FAIRLANE_CONFIG": str(tmp_path / "fairlane.toml"),
        "FAIRLANE_REDIS__URL": "redis://a/0",
        "FAIRLANE_TEAM": "search",
    }
    assert Invocation().environment() == {}


def test_an_unknown_variable_is_reported_once_and_the_command_goes_on() -> None:
    environment = {"FAIRLANE_REDIS__URLL": "x", "FAIRLANE_CONNECTIONS__A__PROVIDER": "openai"}
    result = CliRunner().invoke(fairlane, ["connections"], env=environment)
    assert result.exit_code == 0, result.output
    assert result.stderr.count("warning: FAIRLANE_REDIS__URLL is ignored") == 1
    assert "did you mean 'FAIRLANE_REDIS__URL'?" in result.stderr


@dataclass(frozen=True)
class Files:
    """Options."""

    written: Annotated[Path | None, typer.Option()] = None
    """A file."""


def test_a_tilde_in_any_path_of_a_command_is_the_users_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = list[object]()
    app = typer.Typer()

    @app.command()
    @with_settings
    def show(
        invocation: Invocation,
        one: Annotated[Path, typer.Option()],
        several: Annotated[list[Path], typer.Option()],
        *,
        files: Files,
    ) -> None:
        found.extend((invocation.environment()["FAIRLANE_CONFIG"], one, *several, files.written))

    options = ("--config=~/f.toml", "--one=~/a", "--several=~/b", "--several=~nobody-here/c", "--written=~/d")
    assert CliRunner().invoke(app, options).exit_code == 0
    home = [tmp_path / "a", tmp_path / "b", Path("~nobody-here/c"), tmp_path / "d"]
    assert found == [str(tmp_path / "f.toml"), *home]


def test_a_file_that_must_exist_is_looked_for_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "wrong.toml").write_text("nothing = 1")
    for path, shown in (("~/none.toml", "does not exist"), ("~/wrong.toml", "nothing")):
        result = CliRunner().invoke(fairlane, ["simulate", f"--config={path}"])
        assert result.exit_code == 2
        assert shown in result.stderr


def test_a_folder_of_datasets_may_be_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = Settings.model_validate(
        {"scheduler": {"datasets": ["~/data", "s3://bucket/~", "~nobody-here"]}}
    )
    assert settings.scheduler.datasets == (str(tmp_path / "data"), "s3://bucket/~", "~nobody-here")
