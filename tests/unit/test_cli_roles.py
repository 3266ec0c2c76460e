"""Commands that become another process, or serve in this one."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlane.cli.main import app
from fairlane.core.errors import StoreRefuses
from tests.support.wait import wait_until


class Became(Exception):
    """Raised in place of turning into another program."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        super().__init__(arguments)
        self.arguments, self.environment = arguments, environment


@pytest.fixture(autouse=True)
def _no_file_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)


@pytest.fixture
def no_exec(monkeypatch: pytest.MonkeyPatch) -> None:
    def execve(path: str, arguments: list[str], environment: dict[str, str]) -> None:
        assert (path, arguments[:3]) == (sys.executable, [sys.executable, "-P", "-m"])
        raise Became(arguments[3:], environment)

    monkeypatch.setattr("os.execve", execve)


def became(*arguments: str) -> Became:
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, Became), result.output
    return result.exception


@pytest.mark.usefixtures("no_exec")
def test_a_worker_gets_its_options_and_its_settings(tmp_path: Path) -> None:
    config = tmp_path / "fairlane.toml"
    config.write_text("")
    worker = became(
        *("--config", str(config), "worker", "--slots", "5", "--lanes", "a:b,c"),
        *("--name", "w1", "--ready-file", "w1.ready", "--redis", "redis://a/0"),
    )
    assert worker.arguments == [
        *("fairlane_workers", "--slots", "5", "--lanes", "a:b,c", "--name", "w1", "--ready-file", "w1.ready")
    ]
    assert worker.environment["FAIRLANE_CONFIG"] == str(config)
    assert worker.environment["FAIRLANE_REDIS__URL"] == "redis://a/0"


@pytest.mark.usefixtures("no_exec")
def test_a_worker_without_options_leaves_everything_to_the_settings() -> None:
    assert became("worker").arguments == ["fairlane_workers"]


@pytest.mark.usefixtures("no_exec")
def test_a_scheduler_gets_its_name() -> None:
    scheduler = became("scheduler", "--name", "s1", "--ready-file", "s1.ready")
    assert scheduler.arguments == ["fairlane_scheduler", "--name", "s1", "--ready-file", "s1.ready"]


@pytest.mark.usefixtures("no_exec")
@pytest.mark.parametrize("role", ["worker", "scheduler", "flower"])
def test_wrong_settings_are_reported_before_anything_is_started(role: str, tmp_path: Path) -> None:
    config = tmp_path / "fairlane.toml"
    config.write_text("[redis]\nurll = 'x'\n")
    result = CliRunner().invoke(app, [role, "--config", str(config)])
    assert result.exit_code == 2
    assert "did you mean 'url'" in result.stderr


@pytest.mark.usefixtures("no_exec")
def test_flower_listens_on_this_machine_alone_and_takes_options_of_its_own() -> None:
    flower = became("flower", "--", "--url_prefix=f")
    assert flower.arguments[0] == "fairlane.flower"
    assert {"--address=127.0.0.1", "--port=5555", "--url_prefix=f"} <= set(flower.arguments)
    assert "--enable_events=False" not in flower.arguments
    assert "--enable_events=False" in became("flower", "--no-events").arguments


@pytest.mark.usefixtures("no_exec")
def test_flower_remembers_so_many_tasks_and_shows_no_text_unless_it_is_reported_to() -> None:
    assert {"--max_tasks=10000", "--purge_offline_workers=86400"} <= set(became("flower").arguments)
    assert "--show-text" not in became("flower").arguments
    assert "--show-text" in became("flower", "--show-text").arguments


@pytest.mark.usefixtures("no_exec")
@pytest.mark.parametrize(("extra", "cautioned"), [([], True), (["--", "--basic_auth=me:pw"], False)])
def test_flower_for_everybody_without_a_login_is_cautioned(extra: list[str], cautioned: bool) -> None:
    result = CliRunner().invoke(app, ["flower", "--address", "0.0.0.0", *extra])
    assert ("caution" in result.stderr) is cautioned


@pytest.mark.usefixtures("no_exec")
@pytest.mark.parametrize("name", ["basic_auth", "basic-auth", "cookie_secret", "oauth2_secret", "broker_api"])
def test_flowers_secrets_are_no_arguments_of_its_process(name: str) -> None:
    flower = became("flower", "--", f"--{name}=me:pw", "--url_prefix=f")
    assert "pw" not in " ".join(flower.arguments)
    assert "--url_prefix=f" in flower.arguments
    assert flower.environment[f"FLOWER_{name.upper().replace('-', '_')}"] == "me:pw"


@pytest.mark.usefixtures("no_exec")
def test_a_login_in_the_environment_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWER_BASIC_AUTH", "me:pw")
    assert "caution" not in CliRunner().invoke(app, ["flower", "--address", "0.0.0.0"]).stderr


@pytest.mark.usefixtures("no_exec")
def test_without_the_extra_flower_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    result = CliRunner().invoke(app, ["flower"])
    assert result.exit_code == 1
    assert "pip install 'fairlane[flower]'" in result.stderr


def test_the_simulator_serves_until_it_is_stopped(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    config = tmp_path / "simulated.toml"
    config.write_text("seed = 1\n[models.quick]\nlatency_ms = 0\n")
    options = ["--config", str(config), "--port", "0", "--ready-file", str(ready), "--seed", "7"]
    with subprocess.Popen(
        [sys.executable, "-m", "fairlane.cli", "simulate", *options], stderr=subprocess.PIPE
    ) as process:
        wait_until(ready.exists)
        url = json.loads(ready.read_text())["url"]
        with urllib.request.urlopen(f"{url}/stats") as answer:  # noqa: S310
            assert list(json.load(answer)["models"]) == ["quick"]
        process.terminate()
        assert process.wait() == 0
        assert process.stderr is not None
        assert process.stderr.read().decode() == "simulating quick on 127.0.0.1, port any\n"


def test_a_simulation_that_does_not_exist_is_code_2(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["simulate", "--config", str(tmp_path / "none.toml")])
    assert result.exit_code == 2


@pytest.mark.parametrize("role", ["worker", "scheduler"])
def test_a_server_that_cannot_serve_is_a_wrong_setting(
    no_exec: None, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    refused = StoreRefuses("redis://host/99", "this server does not have the database", "Name another")

    def refuse(*_: object) -> None:
        raise refused

    monkeypatch.setattr("fairlane.cli.process.require_usable", refuse)
    result = CliRunner().invoke(app, [role])
    assert (result.exit_code, str(refused) in result.stderr) == (2, True)
