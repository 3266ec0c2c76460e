"""Workers as processes: Celery's own command starts one, and a warm stop loses and charges no attempt."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from fairlane.core.events import Event
from fairlane.embedded.guard import Guard
from fairlane.embedded.processes import Process
from fairlane.store.write.workers import Beat
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.wait import wait_until

CELERY = (sys.executable, "-P", "-m", "celery", "-A", "fairlane_workers.app", "worker")
WORKERS, SLOTS = 2, 10
ALL_SLOTS = {"reserved_slots_percent": 0}
STOPPED_S = 15.0
GRACE_S = 2.0


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    grace = {"shutdown_grace_seconds": GRACE_S, "slots": SLOTS}
    place = tmp_path_factory.mktemp("two")
    with cluster(place, workers=WORKERS, slots=SLOTS, worker=grace, scheduler=ALL_SLOTS) as made:
        yield made


@pytest.fixture
def deployment(two_workers: Cluster) -> Iterator[Cluster]:
    """Two workers of ten slots; those that a test has stopped run again after it."""
    two_workers.begin()
    yield two_workers
    for name, process in two_workers.stack.processes.items():
        if not process.is_running:
            two_workers.stack.restart(name)
    two_workers.wait_ready(WORKERS)


@contextmanager
def another_worker(deployment: Cluster, name: str, command: Sequence[str], **env: str) -> Iterator[Process]:
    """A worker beside the deployment's own, once it serves a lane."""
    log = deployment.directory / "data" / "logs" / f"{name}.log"
    guard, others = Guard(), len(deployment.beats())
    process = Process(name, command, log=log, guard=guard, env={**deployment.stack.environment, **env})
    process.start()
    try:
        wait_until(lambda: not process.is_running or len(_serving(deployment)) > others)
        assert process.is_running, process.log_tail()
        yield process
    finally:
        guard.close()


def _serving(deployment: Cluster) -> list[Beat]:
    return [beat for beat in deployment.beats() if beat.info.lanes]


def stop(process: Process) -> None:
    """SIGTERM, and its end within bounds and without an error."""
    process.kill(signal.SIGTERM)
    assert process.join(STOPPED_S), process.log_tail()
    assert process.returncode == 0, process.log_tail()


def test_celery_s_own_command_starts_a_worker_that_executes_a_run(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=1000)
    deployment.lanes.limit(f"sim:{model}", {})
    for name in ("worker-1", "worker-2"):
        stop(deployment.process(name))
    with another_worker(deployment, "celery", CELERY) as process:
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


def test_a_warm_stop_requeues_calls_that_do_not_finish_in_time(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=60_000)
    run = deployment.client.submit(numbered(2 * SLOTS), "question {{ n }}", model=f"sim:{model}")
    wait_until(lambda: deployment.served(model).in_flight == 2 * SLOTS)
    assert deployment.held() == {"worker-1": SLOTS, "worker-2": SLOTS}
    deployment.provider.change_model(model, latency_ms=50)
    stop(deployment.process("worker-1"))
    assert deployment.served(model).abandoned == SLOTS
    stop(deployment.process("worker-2"))
    # Nobody waited for leases to lapse: the worker requeued the jobs, free of charge.
    assert not deployment.logged(Event.LEASE_RECOVERED)
    assert not deployment.logged(Event.WORKER_LOST)
    status = run.status()
    assert (status.in_flight, status.jobs_done, status.retries) == (0, 0, 0)
    deployment.stack.restart("worker-1")
    records = all_succeeded(run)
    assert {record.attempts for record in records} == {1}
    assert deployment.served(model).requests == 4 * SLOTS


def test_a_worker_that_is_bound_to_lanes_serves_no_other(deployment: Cluster) -> None:
    own, other = deployment.new_model(latency_ms=50), deployment.new_model(latency_ms=50)
    for model in (own, other):
        deployment.lanes.limit(f"sim:{model}", {})
    for name in ("worker-1", "worker-2"):
        stop(deployment.process(name))
    command = deployment.stack.plan.worker_command("bound")
    with another_worker(deployment, "bound", command, FAIRLANE_WORKER__LANES=f"sim:{own}") as bound:
        served = deployment.client.submit(numbered(20), "own {{ n }}", model=f"sim:{own}")
        waiting = deployment.client.submit(numbered(20), "other {{ n }}", model=f"sim:{other}")
        all_succeeded(served)
        assert [beat.info.lanes for beat in deployment.beats()] == [(f"sim:{own}",)]
        assert deployment.served(other).requests == 0
        deployment.stack.restart("worker-1")
        all_succeeded(waiting)
        stop(bound)
