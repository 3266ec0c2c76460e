"""``fairlane up`` beside a deployment that is up already, with ports that are taken, and without keys."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from typer.testing import CliRunner

from fairlane.cli.main import app
from fairlane.config.settings import Settings
from fairlane.core.errors import LocalStackError
from fairlane.local.joining import require_unused
from fairlane.local.plan import StackPlan
from fairlane.local.up_command import missing
from fairlane.store.write.workers import WorkerInfo, Workers
from tests.support.stage import Stage


def place(redis: Redis) -> tuple[Settings, str]:
    url = f"unix://{redis.connection_pool.connection_kwargs['path']}?db=0"
    return Settings.model_validate({"redis": {"deployment": "test"}}), url


def test_a_deployment_that_is_up_is_not_joined_unasked(real_redis: Redis) -> None:
    settings, url = place(real_redis)
    require_unused(settings, url)
    stage = Stage(real_redis)
    for name in ("w1", "w2"):
        info = WorkerInfo(name, 10, (), "1", 1, "host", 0)
        Workers(stage.keys).beat(name, info, (), 1000, changed=False).run(real_redis)
    with pytest.raises(LocalStackError, match="2 workers are alive") as caught:
        require_unused(settings, url)
    assert "--join adds processes to it" in str(caught.value)


def test_a_server_that_does_not_answer_is_not_its_matter(tmp_path: Path) -> None:
    require_unused(Settings(), f"unix://{tmp_path}/none")
    require_unused(Settings(), "no-url")


def up(*options: str, **variables: str) -> Any:
    return CliRunner().invoke(app, ["up", *options], env={"FAIRLANE_REDIS__URL": "", **variables})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--flower-port", "5555"], "--flower-port needs --flower"),
        (["--simulator-port", "8100"], "--simulator-port needs --simulate"),
        (["--redis-port", "1", "--redis", "redis://elsewhere/0"], "--redis-port is for a Redis of its own"),
    ],
)
def test_a_port_that_nothing_would_listen_on_is_reported(options: list[str], words: str) -> None:
    result = up(*options)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())


def test_a_configured_port_that_is_taken_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        result = up("--redis-port", str(server.getsockname()[1]))
    assert result.exit_code == 2
    assert "is taken" in result.stderr


def test_connections_without_their_keys_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    connection = {"protocol": "openai", "base_url": "http://127.0.0.1:1/v1"}
    settings = Settings.model_validate(
        {"connections": {"a": {**connection, "api_key_env": "NO_SUCH_KEY"}, "b": connection}}
    )
    (line,) = missing(StackPlan(data_dir=Path()), settings)
    assert line.split() == [
        "!",
        "a",
        "lacks",
        "the",
        "variable",
        "NO_SUCH_KEY:",
        "its",
        "calls",
        "cannot",
        "succeed",
    ]
    assert missing(StackPlan(data_dir=Path(), simulate=True, simulated={"a": "openai"}), settings) == []


def test_modules_that_workers_will_not_find_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evals_here.py").touch()
    worker = {"modules": ["evals_here", "evals_nowhere.style", "json.decoder"]}
    (line,) = missing(StackPlan(data_dir=Path()), Settings.model_validate({"worker": worker}))
    assert line.startswith("  ! evals_nowhere.style, of worker.modules, is not found: install it")
