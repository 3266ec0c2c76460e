"""A local stack comes up whole or not at all, and nothing of it stays."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from fairlane.core.errors import ConfigurationError, LocalStackError, StoreRefuses
from fairlane.embedded.ports import LOOPBACK
from fairlane.embedded.reaper import is_running
from fairlane.embedded.server import EmbeddedRedis, ping
from fairlane.local.plan import StackPlan
from fairlane.local.stack import Stack
from tests.support.wait import wait_until

READY = 'env | grep FAIRLANE_ ; touch "$0"; exec sleep 60'


class StandInPlan(StackPlan):
    """A plan whose schedulers and workers are shell scripts that print their arguments."""

    def scheduler_command(self, name: str) -> list[str]:
        return ["/bin/sh", "-c", READY, str(self.ready_file(name))]

    def worker_command(self, name: str) -> list[str]:
        return ["/bin/sh", "-c", READY, str(self.ready_file(name))]


class BrokenPlan(StandInPlan):
    """Its second worker does not come up."""

    def worker_command(self, name: str) -> list[str]:
        broken = ["/bin/sh", "-c", "echo the reason; exit 3"]
        return broken if name == "worker-2" else super().worker_command(name)


class OvertakenPlan(StandInPlan):
    """Others take its simulated provider's first ports after they were chosen."""

    others: ClassVar[list[socket.socket]] = []

    def simulator_command(self, name: str, port: int) -> list[str]:
        if len(self.others) < 3:
            self.others.append(socket.create_server((LOOPBACK, port)))
        return super().simulator_command(name, port)


class BrokenSimulatorPlan(StandInPlan):
    """Its simulated provider ends at once, for another reason than its port."""

    def simulator_command(self, name: str, port: int) -> list[str]:
        return ["/bin/sh", "-c", "echo the reason; exit 3"]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(StandInPlan(data_dir=tmp_path, env={"FAIRLANE_LOG__LEVEL": "debug"})) as stack:
        yield stack


@pytest.fixture
def given(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "given") as server:
        yield server


def test_everything_runs_under_its_name_and_redis_answers(stack: Stack) -> None:
    assert list(stack.pids) == ["redis", "scheduler-1", "worker-1", "worker-2"]
    assert all(process.is_running for process in stack.processes.values())
    assert ping(stack.redis_url) is None
    assert stack.poll() == []


def test_every_role_is_reported_where_redis_is(stack: Stack) -> None:
    for name in ("scheduler-1", "worker-1", "worker-2"):
        shown = stack.processes[name].log_tail(100).splitlines()
        assert {f"FAIRLANE_REDIS__URL={stack.redis_url}", "FAIRLANE_LOG__LEVEL=debug"} <= set(shown)


def test_nothing_is_left_after_the_block(tmp_path: Path) -> None:
    news: list[str] = []
    with Stack(StandInPlan(data_dir=tmp_path), report=news.append) as stack:
        pids = stack.pids.values()
    assert not any(is_running(pid) for pid in pids)
    assert news[-3:] == ["stopping worker (2)", "stopping scheduler", "stopping redis"]
    stack.stop()


def test_a_child_that_does_not_come_up_takes_the_others_down_with_it(tmp_path: Path) -> None:
    stack = Stack(BrokenPlan(data_dir=tmp_path))
    with pytest.raises(LocalStackError, match=r"(?s)worker-2: exited with code 3.*the reason"):
        stack.start()
    assert len(stack.pids) == 4
    assert not any(is_running(pid) for pid in stack.pids.values())


def test_an_interrupted_start_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(news: str) -> None:
        if news.startswith("scheduler-1"):
            raise KeyboardInterrupt

    stack = Stack(StandInPlan(data_dir=tmp_path), report=interrupt)
    with pytest.raises(KeyboardInterrupt):
        stack.start()
    assert not any(is_running(pid) for pid in stack.pids.values())


def test_a_death_is_reported_once(stack: Stack) -> None:
    worker = stack.processes["worker-2"]
    worker.kill(signal.SIGKILL)
    [death] = wait_until(stack.poll)
    assert str(death) == f"worker-2 was killed by SIGKILL (see {worker.log})"
    assert stack.poll() == []


def test_the_dead_can_be_restarted(stack: Stack) -> None:
    worker = stack.processes["worker-2"]
    worker.kill()
    wait_until(stack.poll)
    stack.restart("worker-2")
    worker.wait_ready(5)
    assert stack.poll() == []


def test_redis_comes_back_where_it_was(stack: Stack) -> None:
    address = stack.redis_url
    assert stack.redis is not None
    stack.redis.kill()
    [death] = stack.poll()
    stack.restart(death.name)
    assert stack.redis_url == address
    assert ping(address) is None
    assert stack.poll() == []


def test_only_its_own_children_can_be_restarted(stack: Stack) -> None:
    with pytest.raises(LocalStackError, match="worker-9: is not part of this stack: redis"):
        stack.restart("worker-9")


def test_a_given_redis_is_used_and_left_running(given: EmbeddedRedis, tmp_path: Path) -> None:
    with Stack(StandInPlan(data_dir=tmp_path, redis_url=given.url)) as stack:
        assert "redis" not in stack.pids
        assert stack.redis_url == given.url
    assert ping(given.url) is None


def test_a_given_redis_that_does_not_answer_is_an_error_at_once(tmp_path: Path) -> None:
    stack = Stack(StandInPlan(data_dir=tmp_path, redis_url="redis://:hunter2@127.0.0.1:1/0"))
    with pytest.raises(LocalStackError, match="nothing answers at redis") as caught:
        stack.start()
    assert "hunter2" not in str(caught.value)


def test_a_given_redis_that_refuses_the_password_is_not_one_that_does_not_answer(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "given") as given:
        stack = Stack(
            StandInPlan(data_dir=tmp_path, redis_url=given.url.replace("://", "://nobody:hunter2@"))
        )
        with pytest.raises(StoreRefuses, match=r"refuses the user or the password.*redis\.url") as caught:
            stack.start()
    assert "hunter2" not in str(caught.value)
    assert ".." not in str(caught.value)


def test_a_given_url_of_something_else_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"redis\.url"):
        Stack(StandInPlan(data_dir=tmp_path, redis_url="http://127.0.0.1:1/0")).start()


def test_before_it_is_started_it_has_no_address(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="has not been started"):
        _ = Stack(StandInPlan(data_dir=tmp_path)).redis_url


@pytest.mark.slow
def test_the_simulated_provider_answers_and_roles_know_where(tmp_path: Path) -> None:
    config = tmp_path / "simulated.toml"
    config.write_text("[models.quick]\nlatency_ms = 0\n")
    plan = StandInPlan(data_dir=tmp_path, simulate=True, simulate_config=config, workers=1)
    with Stack(plan) as stack:
        assert stack.simulator_url is not None
        with urllib.request.urlopen(stack.simulator_url.replace("/v1", "/stats")) as answer:  # noqa: S310
            assert list(json.load(answer)["models"]) == ["quick"]
        shown = stack.processes["worker-1"].log_tail(100)
        assert f"FAIRLANE_CONNECTIONS__SIM__BASE_URL={stack.simulator_url}" in shown


@pytest.mark.slow
def test_what_the_simulated_provider_cannot_read_is_reported(tmp_path: Path) -> None:
    config = tmp_path / "simulated.toml"
    config.write_text("[models.quick]\nlatency = 0\n")
    with pytest.raises(LocalStackError, match=r"(?s)simulator: exited with code 2.*latency_ms"):
        Stack(StandInPlan(data_dir=tmp_path, simulate=True, simulate_config=config)).start()


def test_a_stack_in_the_same_directory_is_refused(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.embedded.locks.PATIENCE_S", 0.0)
    with pytest.raises(LocalStackError, match="in use by another local stack"):
        Stack(StandInPlan(data_dir=stack.plan.data_dir)).start()
    assert stack.poll() == []


@pytest.mark.slow
def test_a_port_that_another_stack_takes_first_is_not_insisted_on(tmp_path: Path) -> None:
    try:
        with Stack(OvertakenPlan(data_dir=tmp_path, simulate=True, workers=0)) as stack:
            assert list(stack.pids) == ["redis", "simulator", "scheduler-1"]
            taken = [str(each.getsockname()[1]) for each in OvertakenPlan.others]
            assert len(set(taken)) == 3
            assert stack.simulator_url is not None
            assert not any(f":{port}/" in stack.simulator_url for port in taken)
            assert stack.poll() == []
    finally:
        for each in OvertakenPlan.others:
            each.close()


def test_a_simulated_provider_that_cannot_start_is_started_once(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="the reason"):
        Stack(BrokenSimulatorPlan(data_dir=tmp_path, simulate=True)).start()
