"""Which Redis and which simulated connections a local stack gets from settings and flags."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.cli.invocation import Invocation
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError
from fairlane.embedded.ports import free_ports
from fairlane.embedded.server import EmbeddedRedis
from fairlane.local.plan import StackPlan
from fairlane.local.planning import (
    REDIS_PORT,
    choose_redis,
    hide_data_dir,
    settings_for,
    simulated_connections,
    simulator_port,
    variables_for_others,
)
from fairlane.local.stack import Stack

SIM = '[connections.sim]\nprotocol = "anthropic"\nbase_url = "http://127.0.0.1:8123/v1"\n'


@pytest.fixture(autouse=True)
def _no_file_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)


@pytest.fixture
def given(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "given") as server:
        yield server


def file_with(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "fairlane.toml"
    path.write_text(text)
    return path


def settings_of(url: str) -> Settings:
    return Settings.model_validate({"redis": {"url": url}})


def test_the_flag_is_used_whatever_the_settings_say() -> None:
    assert choose_redis("redis://flag/0", settings_of("redis://settings/0")) == ("redis://flag/0", None)


def test_without_a_configured_url_a_server_starts_at_the_usual_port() -> None:
    assert choose_redis(None, Settings()) == (None, REDIS_PORT)


def test_a_configured_server_that_answers_is_used(given: EmbeddedRedis) -> None:
    assert choose_redis(None, settings_of(given.url)) == (given.url, None)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_configured_server_that_refuses_or_hangs_is_not_passed_over(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        url = f"redis://{host}:{hanging.getsockname()[1]}/0"
        assert choose_redis(None, settings_of(url)) == (url, None)


def test_a_configured_address_of_this_machine_without_a_server_is_served() -> None:
    port = next(free_ports())
    assert choose_redis(None, settings_of(f"redis://localhost:{port}/0")) == (None, port)


@pytest.mark.parametrize(
    "url",
    [
        "redis://redis.example.invalid:6379/0",
        "rediss://127.0.0.1:1/0",
        "redis://:password@127.0.0.1:1/0",
        "redis://127.0.0.1:1/3",
        "unix:///no/such.sock",
    ],
)
def test_a_configured_server_elsewhere_is_used_as_it_is(url: str) -> None:
    assert choose_redis(None, settings_of(url)) == (url, None)


def test_with_a_simulation_there_is_a_connection_to_it() -> None:
    settings = settings_for(Invocation(), simulate=True)
    assert settings.connections["sim"].protocol == "openai"
    assert settings_for(Invocation(), simulate=False).connections == {}


def test_lanes_of_the_simulated_connection_need_no_connection_in_the_file(tmp_path: Path) -> None:
    config = file_with(tmp_path, '[lanes."sim:fast"]\nrequests_per_minute = 60\n')
    assert "sim" in settings_for(Invocation(config), simulate=True).connections
    with pytest.raises(ConfigurationError, match="there is no connection 'sim'"):
        settings_for(Invocation(config), simulate=False)


def test_what_is_wrong_with_the_file_is_reported_in_a_simulation_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="slots"):
        settings_for(Invocation(file_with(tmp_path, "[worker]\nslot = 1\n")), simulate=True)


def test_the_files_own_simulated_connections_keep_their_protocol_and_port(tmp_path: Path) -> None:
    other = '[connections.sim-two]\nprotocol = "openai"\nbase_url = "https://elsewhere.example/v1"\n'
    real = '[connections.openai]\nprotocol = "openai"\nbase_url = "https://api.openai.com/v1"\n'
    settings = settings_for(Invocation(file_with(tmp_path, SIM + other + real)), simulate=True)
    assert simulated_connections(settings) == {"sim": "anthropic", "sim-two": "openai"}
    assert simulator_port(settings) == 8123


def test_a_connection_elsewhere_asks_for_no_port() -> None:
    assert simulator_port(Settings()) is None


def test_another_terminal_gets_the_variables_that_its_settings_lack(
    given: EmbeddedRedis, tmp_path: Path
) -> None:
    config = file_with(tmp_path, f'[redis]\nurl = "{given.url}"\n')
    invocation = Invocation(config)
    plan = StackPlan(data_dir=tmp_path / "data", config=config, redis_url=given.url, workers=0, schedulers=0)
    with Stack(plan) as stack:
        assert variables_for_others(stack, invocation) == {"FAIRLANE_CONFIG": str(config)}
        assert variables_for_others(stack, Invocation()) == {"FAIRLANE_REDIS__URL": given.url}


def test_a_file_that_keeps_git_away_is_left_as_it_is(tmp_path: Path) -> None:
    hide_data_dir(tmp_path / "data")
    mark = tmp_path / "data" / ".gitignore"
    assert mark.read_text() == "*\n"
    mark.write_text("logs\n")
    hide_data_dir(tmp_path / "data")
    assert mark.read_text() == "logs\n"
