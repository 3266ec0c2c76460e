"""Draining real workers: what they have is finished, nothing is lost or paid twice, and others go on."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fairlane.core.events import Event
from fairlane.store.write.workers import Beat, WorkerRequest, Workers
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.exits import exit_status
from tests.support.wait import wait_until

FAIRLANE = (sys.executable, "-P", "-m", "fairlane.cli")
WORKERS, SLOTS = 2, 10
LONG_MS = 60_000
"""A call that outlasts any command, and is broken off."""


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    grace = {"shutdown_grace_seconds": 0.0}
    with cluster(tmp_path_factory.mktemp("drain"), workers=WORKERS, slots=SLOTS, worker=grace) as made:
        yield made


@pytest.fixture
def deployment(two_workers: Cluster) -> Iterator[Cluster]:
    """Two workers of ten slots that give a stop no grace: what is not lost is so because of the drain.

    One of the twenty slots is reserved for other teams.
    """
    two_workers.begin()
    yield two_workers
    work_again(two_workers)
    for name, process in two_workers.stack.processes.items():
        if not process.is_running:
            two_workers.stack.restart(name)
    two_workers.wait_ready(WORKERS)


def work_again(deployment: Cluster) -> None:
    for beat in deployment.beats():
        Workers(deployment.keys).ask(deployment.redis, beat.worker, WorkerRequest.WORK)


def drained(deployment: Cluster, name: str) -> None:
    """Return once that worker has finished what it had."""
    assert Workers(deployment.keys).ask(deployment.redis, named(deployment, name).worker, WorkerRequest.IDLE)
    wait_until(lambda: named(deployment, name).info.drained, timeout=45)


def starting(deployment: Cluster, *arguments: str) -> subprocess.Popen[str]:
    environment = dict(deployment.stack.environment)
    pipe = subprocess.PIPE
    return subprocess.Popen([*FAIRLANE, *arguments], env=environment, stdout=pipe, stderr=pipe, text=True)


def command(deployment: Cluster, *arguments: str) -> str:
    """What a command says, once it has succeeded."""
    with starting(deployment, *arguments) as process:
        _, news = process.communicate(timeout=60)
    assert process.returncode == 0, news
    return news


def named(deployment: Cluster, name: str) -> Beat:
    (beat,) = [beat for beat in deployment.beats() if beat.info.name.startswith(name)]
    return beat


def test_a_drained_worker_finishes_what_it_has_and_takes_nothing_new(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=1500)
    run = deployment.client.submit(numbered(100), "question {{ n }}", model=f"sim:{model}")
    wait_until(lambda: named(deployment, "worker-1").info.busy >= SLOTS - 1)

    drained(deployment, "worker-1")

    info = named(deployment, "worker-1").info
    assert (info.busy, info.draining, info.drained) == (0, True, True)
    before = run.status().jobs_done
    wait_until(lambda: run.status().jobs_done > before + SLOTS, timeout=45)
    assert set(deployment.held()) == {named(deployment, "worker-2").info.name}

    work_again(deployment)

    wait_until(lambda: named(deployment, "worker-1").info.busy >= SLOTS - 1)
    records = all_succeeded(run)
    assert {record.attempts for record in records} == {1}
    served = deployment.served(model)
    assert (served.requests, served.abandoned) == (100, 0)
    assert not deployment.logged(Event.LEASE_RECOVERED)


def test_no_message_is_lost_when_workers_are_drained_under_load(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=20)
    deployment.lanes.limit(f"sim:{model}", {"requests_per_minute": 0})
    run = deployment.client.submit(numbered(800), "question {{ n }}", model=f"sim:{model}")
    for turn in range(4):
        wait_until(lambda: run.status().jobs_done > 150 * turn)  # noqa: B023
        drained(deployment, f"worker-{1 + turn % 2}")
        work_again(deployment)

    records = all_succeeded(run)

    assert {record.attempts for record in records} == {1}
    assert deployment.served(model).requests == 800
    assert not deployment.logged(Event.LEASE_RECOVERED), "a message was lost, and its lease had to lapse"


def test_a_drained_worker_that_is_to_stop_ends_once_it_is_idle(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=1500)
    run = deployment.client.submit(numbered(40), "question {{ n }}", model=f"sim:{model}")
    wait_until(lambda: named(deployment, "worker-1").info.busy >= SLOTS - 1)

    news = command(deployment, "drain", named(deployment, "worker-1").worker, "--stop", "--wait")

    assert "is gone" in news or "is drained" in news
    process = deployment.process("worker-1")
    assert process.join(15.0), process.log_tail()
    assert process.returncode == 0
    all_succeeded(run)
    served = deployment.served(model)
    assert (served.requests, served.abandoned) == (40, 0), "its calls had no grace, and needed none"


def test_a_drain_continues_when_its_command_is_interrupted(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=LONG_MS)
    run = deployment.client.submit(numbered(20), "question {{ n }}", model=f"sim:{model}")
    wait_until(lambda: all(beat.info.busy for beat in deployment.beats()))
    with starting(deployment, "drain", "--all", "--wait") as process:
        wait_until(lambda: all(beat.info.draining for beat in deployment.beats()))
        process.send_signal(signal.SIGINT)
        _, news = process.communicate(timeout=30)

    assert exit_status(process.returncode) == 128 + signal.SIGINT
    assert "the workers continue to drain" in news
    assert "Traceback" not in news
    assert all(beat.info.draining for beat in deployment.beats())
    run.cancel()


def test_waiting_for_a_drain_may_have_a_timeout(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=LONG_MS)
    run = deployment.client.submit(numbered(20), "question {{ n }}", model=f"sim:{model}")
    wait_until(lambda: all(beat.info.busy for beat in deployment.beats()))
    with starting(deployment, "drain", "--all", "--wait", "--timeout", "0.5") as process:
        _, news = process.communicate(timeout=30)

    assert process.returncode == 1
    assert "not all workers were idle after 0.5 s" in news
    run.cancel()
