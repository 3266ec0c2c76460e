"""Workers as processes: Celery's own command starts one, and a warm stop loses and charges no attempt."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fairlane.events import Event
from fairlane.local.guard import Guard
from fairlane.local.processes import Process
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.wait import wait_until

CELERY = (sys.executable, "-P", "-m", "celery", "-A", "fairlane_workers.app", "worker")
WORKERS, SLOTS = 2, 10
STOPPED_S = 15.0
GRACE_S = 2.0


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    grace = {"shutdown_grace_seconds": GRACE_S, "slots": SLOTS}
    with cluster(tmp_path_factory.mktemp("two"), workers=WORKERS, slots=SLOTS, worker=grace) as made:
        yield made


@pytest.fixture
def deployment(two_workers: Cluster) -> Iterator[Cluster]:
    """Two workers of ten slots; those that a test has stopped run again after it."""
    two_workers.begin()
    yield two_workers
    for name, process in two_workers.stack.processes.items():
        if not process.is_running:
            two_workers.stack.restart(name)
    two_workers.settle(WORKERS)


@contextmanager
def celery_worker(deployment: Cluster) -> Iterator[Process]:
    """``celery -A fairlane_workers.app worker`` beside the deployment's own workers, ready for work."""
    log = deployment.directory / "data" / "logs" / "celery.log"
    guard = Guard()
    process = Process("celery", CELERY, log=log, guard=guard, env=deployment.stack.environment)
    others = len(deployment.beats())
    process.start()
    try:
        wait_until(lambda: not process.is_running or len(deployment.beats()) > others, timeout=30.0)
        deployment.settle(others + 1)
        yield process
    finally:
        guard.close()


def stop(process: Process) -> None:
    """SIGTERM, and its end within bounds and without an error."""
    process.kill(signal.SIGTERM)
    assert process.join(STOPPED_S), process.log_tail()
    assert process.returncode == 0, process.log_tail()


def test_celery_s_own_command_starts_a_worker_that_executes_a_run(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=100)
    for name in ("worker-1", "worker-2"):
        stop(deployment.process(name))
    with celery_worker(deployment) as process:
        run = deployment.client.submit(numbered(30), "question {{ n }}", model=f"sim:{model}")
        all_succeeded(run)
        assert deployment.served(model).peak_in_flight == SLOTS
        stop(process)
        assert not deployment.beats()


def test_a_warm_stop_finishes_the_calls_in_flight(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=500)
    run = deployment.client.submit(numbered(80), "question {{ n }}", model=f"sim:{model}")
    wait_until(lambda: run.status().jobs_done and "worker-1" in deployment.held())
    stop(deployment.process("worker-1"))
    records = all_succeeded(run)
    assert {record.attempts for record in records} == {1}
    served, status = deployment.served(model), run.status()
    assert (served.requests, served.abandoned) == (80, 0)
    assert (status.retries, status.late_reports) == (0, 0)
    assert not deployment.logged(Event.LEASE_RECOVERED)


def test_a_warm_stop_hands_back_what_does_not_finish_in_time(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=60_000)
    run = deployment.client.submit(numbered(2 * SLOTS), "question {{ n }}", model=f"sim:{model}")
    wait_until(lambda: deployment.served(model).in_flight == 2 * SLOTS)
    assert deployment.held() == {"worker-1": SLOTS, "worker-2": SLOTS}
    deployment.provider.change_model(model, latency_ms=50)
    stop(deployment.process("worker-1"))
    assert deployment.served(model).abandoned == SLOTS
    stop(deployment.process("worker-2"))
    # Nobody waited for leases to lapse: the jobs were given back, free of charge.
    assert not deployment.logged(Event.LEASE_RECOVERED)
    assert not deployment.logged(Event.WORKER_LOST)
    status = run.status()
    assert (status.in_flight, status.jobs_done, status.retries) == (0, 0, 0)
    deployment.stack.restart("worker-1")
    records = all_succeeded(run)
    assert {record.attempts for record in records} == {1}
    assert deployment.served(model).requests == 4 * SLOTS
