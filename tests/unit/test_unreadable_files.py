"""Files that the settings name and this process may not read: said in words, with no traceback."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fairlane.cli.main import app
from fairlane.cli.operate.checks import check_keys
from fairlane.cli.operate.connection_views import lacks_of
from fairlane.config.connections.key_place import KeyPlace, key_place
from fairlane.config.loader import load_secrets, load_settings
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError
from fairlane.core.paths import FORBIDDEN, unreadable

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["the file", "its folder"])
def forbidden(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A file that this user may not read; root may read all, so the system's answers are played."""
    file = tmp_path / "key"
    file.write_text("sk-secret")
    if request.param == "the file":
        allowed = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != file and allowed(path, mode))
    else:
        _deny_stat(file, monkeypatch)
    yield file
    monkeypatch.undo()


def _deny_stat(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., os.stat_result] = Path.stat

    def stat(path: Path, **given: bool) -> os.stat_result:
        if path == file:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **given)

    monkeypatch.setattr(Path, "stat", stat)


def place_of(file: Path) -> KeyPlace:
    place = key_place(None, file, ())
    assert place is not None
    return place


def test_a_key_that_may_not_be_read_is_missing_and_says_so(forbidden: Path) -> None:
    place = place_of(forbidden)
    assert place.is_missing({})
    assert place.absence == FORBIDDEN
    assert place.remedy.endswith("where workers run, and let their user read it")


def test_the_doctor_and_the_list_of_connections_go_on(forbidden: Path) -> None:
    given = {"protocol": "openai", "base_url": "http://h/v1", "api_key_file": str(forbidden)}
    settings = Settings.model_validate({"connections": {"sim": given | {"ca_file": str(forbidden)}}})
    secrets = load_secrets(settings, {})
    (found,) = check_keys(settings, secrets)
    assert found.detail == f"sim: {forbidden} {FORBIDDEN} here"
    assert lacks_of("sim", settings.connections["sim"], secrets) == [
        f"the file {forbidden}",
        f"the file {forbidden}, which {FORBIDDEN}",
    ]


def test_settings_that_may_not_be_read_are_refused_with_the_remedy(forbidden: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"{FORBIDDEN}.*Let this user read the file"):
        load_settings(forbidden, {})


def test_a_missing_empty_or_unreadable_key_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "key"
    assert (unreadable(file), place_of(file).absence) == ("is not there", "cannot be read")
    assert unreadable(tmp_path) == "is a folder"
    file.touch()
    assert (unreadable(file), place_of(file).absence) == (None, "is empty")
    file.write_text("k")
    assert not place_of(file).is_missing({})


@given(st.text(max_size=300))
def test_any_name_gets_an_answer(name: str) -> None:
    place = place_of(Path("/nowhere") / name.lstrip("/"))
    assert place.is_missing({})
    assert place.absence == "cannot be read"


NO_FILES = {"folder": Path.mkdir, "pipe": os.mkfifo, "dangling link": lambda path: path.symlink_to("nowhere")}


@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_no_default_takes_the_place_of_a_fairlane_toml_that_is_no_file(
    make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("fairlane.toml"))
    with pytest.raises(ConfigurationError, match=r"^fairlane\.toml: .*Name an existing TOML file"):
        load_settings(environ={})


@pytest.mark.parametrize(
    "words", [["--config={}", "config"], ["init", "-o", "{}"], ["batch", "{}", "-o", "o"]]
)
def test_a_home_that_nobody_has_is_a_missing_file(words: list[str]) -> None:
    found = CliRunner().invoke(app, [word.format("~nobody-at-all/f") for word in words])
    assert found.exit_code in (1, 2)
    assert not isinstance(found.exception, RuntimeError)


def test_every_path_of_a_user_is_read_in_one_way() -> None:
    code = [file for room in ("shared", "scheduler", "workers") for file in (ROOT / room).rglob("*.py")]
    assert [file.name for file in code if ".expanduser(" in file.read_text(encoding="utf-8")] == ["paths.py"]
