"""Workers as processes: Celery's own command starts one, and a warm stop loses and charges no attempt."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlane.events import Event
from fairlane.local.guard import Guard
from fairlane.local.processes import Process
from fairlane.testing import SimulatedModel
from tests.support.cluster import SETTLED_S, Cluster, all_succeeded, cluster, numbered
from tests.support.wait import wait_until

CELERY = (sys.executable, "-P", "-m", "celery", "-A", "fairlane_workers.app", "worker")
STOPPED_S = 15.0
GRACE_S = 1.0


@pytest.fixture
def celery_worker(tmp_path: Path) -> Iterator[Callable[[Cluster], Process]]:
    """Starts ``celery -A fairlane_workers.app worker`` in a deployment without workers, and waits for it."""
    guard = Guard()

    def start(deployment: Cluster) -> Process:
        process = Process(
            "celery",
            CELERY,
            log=tmp_path / "data" / "logs" / "celery.log",
            guard=guard,
            env=deployment.stack.environment,
        )
        process.start()
        wait_until(lambda: not process.is_running or deployment.beats(), timeout=SETTLED_S)
        assert process.is_running, process.log_tail()
        return process

    try:
        yield start
    finally:
        guard.close()


def test_celery_s_own_command_starts_a_worker_that_executes_a_run(
    tmp_path: Path, celery_worker: Callable[[Cluster], Process]
) -> None:
    models = {"m": SimulatedModel(latency_ms=100)}
    with cluster(tmp_path, models, workers=0, worker={"slots": 7}) as deployment:
        process = celery_worker(deployment)
        run = deployment.client.submit(numbered(30), "question {{ n }}", model="sim:m")
        all_succeeded(run)
        assert deployment.served("m").peak_in_flight == 7
        process.kill(signal.SIGTERM)
        assert process.join(STOPPED_S), process.log_tail()
        assert process.returncode == 0
        assert not deployment.beats()


def test_a_warm_stop_finishes_the_calls_in_flight(tmp_path: Path) -> None:
    models = {"m": SimulatedModel(latency_ms=500)}
    with cluster(tmp_path, models, slots=10) as deployment:
        run = deployment.client.submit(numbered(80), "question {{ n }}", model="sim:m")
        wait_until(lambda: run.status().jobs_done and "worker-1" in deployment.held())
        stopped = deployment.process("worker-1")
        stopped.kill(signal.SIGTERM)
        assert stopped.join(STOPPED_S), stopped.log_tail()
        assert stopped.returncode == 0
        records = all_succeeded(run)
        assert {record.attempts for record in records} == {1}
        served, status = deployment.served("m"), run.status()
        assert (served.requests, served.abandoned) == (80, 0)
        assert (status.retries, status.late_reports) == (0, 0)
        assert not deployment.logged(Event.LEASE_RECOVERED)


def test_a_warm_stop_hands_back_what_does_not_finish_in_time(tmp_path: Path) -> None:
    models = {"m": SimulatedModel(latency_ms=60_000)}
    with cluster(tmp_path, models, slots=10, worker={"shutdown_grace_seconds": GRACE_S}) as deployment:
        run = deployment.client.submit(numbered(20), "question {{ n }}", model="sim:m")
        wait_until(lambda: deployment.served("m").in_flight == 20)
        assert deployment.held() == {"worker-1": 10, "worker-2": 10}
        deployment.provider.change_model("m", latency_ms=50)
        stopped = deployment.process("worker-1")
        stopped.kill(signal.SIGTERM)
        assert stopped.join(STOPPED_S), stopped.log_tail()
        assert stopped.returncode == 0
        # Nobody waited for leases to lapse: the jobs were given back, free of charge.
        assert not deployment.logged(Event.LEASE_RECOVERED)
        assert not deployment.logged(Event.WORKER_LOST)
        assert deployment.served("m").abandoned == 10
        other = deployment.process("worker-2")
        other.kill(signal.SIGTERM)
        assert other.join(STOPPED_S), other.log_tail()
        wait_until(lambda: run.status().in_flight == 0)
        status = run.status()
        assert (status.jobs_done, status.retries) == (0, 0)
        deployment.stack.restart("worker-1")
        records = all_succeeded(run)
        assert {record.attempts for record in records} == {1}
        assert deployment.served("m").requests == 40
