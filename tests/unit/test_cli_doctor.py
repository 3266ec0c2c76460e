"""``fairlane doctor`` looks at the real thing, prints a line a check, and ends with 1 if one fails."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from redis import Redis

from fairlane import __version__
from fairlane.cli.operate import doctor
from fairlane.client import deployment as context
from fairlane.client.deployment import Deployment
from fairlane.config.settings import Settings
from fairlane.model.run import RunRef
from fairlane.store.connection.server_states import Refusal
from fairlane.store.write.leases import UNTAKEN_MS
from fairlane.store.write.workers import WorkerInfo
from tests.support.command_line import CommandLine


@pytest.fixture
def cli(real_redis: Redis) -> CommandLine:
    cli = CommandLine(real_redis)
    lanes = tuple(cli.stage.deployment.lanes.names())
    info = WorkerInfo(name="w1", slots=20, lanes=lanes, version=__version__, pid=1, host="box", started_ms=0)
    cli.stage.deployment.workers.beat("a", info, [], 1000, changed=True).run(real_redis)
    real_redis.set(cli.stage.keys.catalog, '{"connections": {"sim": {}}}')
    return cli


def test_it_finds_everything_in_a_deployment_that_works(cli: CommandLine) -> None:
    grades = {finding["check"]: finding["grade"] for finding in cli.json("doctor")}
    assert grades == {
        "settings": "ok",
        "redis": "ok",
        "redis version": "ok",
        "redis persistence": "warn",  # the tests' server keeps nothing on disk
        "redis memory": "ok",
        "redis expiry": "ok",
        "clock": "ok",
        "scheduler": "ok",
        "workers": "ok",
        "connections": "ok",
        "lanes": "ok",
    }


def test_a_warning_is_reported_with_its_remedy_and_ends_with_0(cli: CommandLine) -> None:
    result = cli("doctor")
    assert result.exit_code == 0
    assert "→ Set `appendonly yes`" in result.stdout
    assert result.stderr == "1 to look at, nothing fails\n"


def test_a_check_that_fails_ends_with_1(cli: CommandLine) -> None:
    cli.stage.redis.delete(cli.stage.keys.workers)
    result = cli("doctor")
    assert result.exit_code == 1
    assert "none is alive" in result.stdout
    assert "1 to fix" in result.stderr


def test_a_right_that_a_role_would_lack_is_a_finding(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "missing_right", lambda *_, **__: Refusal("denied", "Give it &*"))
    grades = {finding["check"]: finding["grade"] for finding in json.loads(cli("doctor", "--json").stdout)}
    assert grades["redis rights"] == "fail"
    url = "redis://fairlane.main.search:pw@host/0"
    team = SimpleNamespace(settings=Settings.model_validate({"redis": {"url": url}}), redis=cli.stage.redis)
    assert not list(doctor._misfits(cast(Deployment, team))), "a team's own user has few rights"


@pytest.mark.parametrize(("sent_ms", "grades"), [(0, []), (UNTAKEN_MS, ["fail"])])
def test_calls_that_no_worker_takes_are_a_finding(cli: CommandLine, sent_ms: int, grades: list[str]) -> None:
    d = cli.stage.deployment
    d.take(d.queued_lane(jobs=3), 2)
    served = WorkerInfo("w1", 20, tuple(d.lanes.names()), __version__, 1, "box", 0)
    d.workers.beat("a", served, [], 1000, changed=True).run(d.redis)
    seconds, microseconds = d.redis.time()
    now_ms = seconds * 1000 + microseconds // 1000
    for attempt, record in cast(dict[bytes, bytes], cli.stage.redis.hgetall(d.keys.leased)).items():
        sent = json.loads(record) | {"granted_ms": now_ms - sent_ms}
        cli.stage.redis.hset(d.keys.leased, attempt.decode(), json.dumps(sent))
    found = [each for each in json.loads(cli("doctor", "--json").stdout) if each["check"] == "messages"]
    assert [each["grade"] for each in found] == grades
    assert all("of 2 calls" in each["detail"] for each in found)
    assert all("a worker has just stopped" in each["remedy"] for each in found)


def test_redis_that_is_not_there_is_a_finding(cli: CommandLine) -> None:
    result = cli("doctor", "--redis", "redis://127.0.0.1:1/0")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].startswith("fail")
    assert "cannot reach Redis at redis://127.0.0.1:1/0" in result.stdout


@pytest.mark.parametrize(
    "command",
    [
        "doctor",
        "why r1",
        "status r1",
        "runs",
        "watch r1",
        "cancel r1",
        "lanes",
        "workers",
        "budgets",
    ],
)
def test_redis_that_hangs_is_named_soon(
    cli: CommandLine, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "FIRST_ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = cli(*command.split(), "--redis", f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
    assert result.exit_code == 1
    assert "it takes connections and answers nothing in time. The server hangs" in " ".join(
        result.output.split()
    )


def test_settings_that_are_wrong_are_a_finding(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text("[rediss]\n")
    result = cli("doctor", "--config", str(tmp_path / "fairlane.toml"))
    assert result.exit_code == 1
    assert "did you mean 'redis'" in result.stdout


def test_a_broker_that_does_not_answer_is_a_finding(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text('[celery]\nbroker_url = "redis://:secret@127.0.0.1:1/0"\n')
    result = cli("doctor", "--config", str(tmp_path / "fairlane.toml"))
    assert result.exit_code == 1
    assert "broker" in result.stdout
    assert "secret" not in result.output


@pytest.mark.parametrize("lost", ["jobs", "plan", "half of the plan"])
def test_a_run_of_which_a_part_is_gone_is_a_finding(cli: CommandLine, lost: str) -> None:
    ref, redis = RunRef("search", cli.submitted(rows=2)), cli.stage.redis
    key, plan = cli.stage.keys.state(ref), cli.stage.keys.plan(ref)
    cli.submitted(rows=2)
    assert '"runs"' not in cli("doctor", "--json").stdout
    if lost == "jobs":
        redis.hdel(key, "jobs")
    else:
        redis.set(plan, redis.getrange(plan, 0, 200)) if lost != "plan" else redis.delete(plan)
    found = [each for each in json.loads(cli("doctor", "--json").stdout) if each["check"] == "runs"]
    assert [each["grade"] for each in found] == ["fail"]
    assert f"redis-cli DEL '{key}'" in found[0]["remedy"]
