"""Redis dies or hangs in mid-run and comes back: nobody is restarted, every job ends once, nothing bursts."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from fairlane.core.events import Event
from fairlane.embedded.server import EmbeddedRedis
from tests.chaos.conftest import SLOTS, WORKERS
from tests.support.cluster import SCHEDULER, Cluster
from tests.support.strict_lane import PER_SECOND, start_strict_run
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

JOBS = 200


def server_of(deployment: Cluster) -> EmbeddedRedis:
    server = deployment.stack.redis
    assert server is not None
    return server


def written(server: EmbeddedRedis) -> tuple[Path, int]:
    """The append-only file and its length."""
    (file,) = server.data_dir.rglob("*.incr.aof")
    return file, file.stat().st_size


def test_a_run_survives_a_killed_redis_without_anybody_being_restarted(deployment: Cluster) -> None:
    server = server_of(deployment)
    strict = start_strict_run(deployment, JOBS)
    server.kill()
    for role in ("scheduler-1", "worker-1"):
        deployment.wait_logged(Event.STORE_UNREACHABLE, process=role)
    server.start()
    strict.check()
    for role in ("scheduler-1", "worker-1"):
        deployment.wait_logged(Event.STORE_BACK, process=role)
    assert {death.name for death in deployment.stack.poll()} <= {"redis"}
    # A call that was reported to a Redis that died before it answered is reported again, not made again. Only
    # the jobs of a worker that was taken for lost, since a busy machine delayed its heartbeat, start again.
    recovered = len(deployment.logged(Event.LEASE_RECOVERED, run=strict.run.id))
    assert JOBS <= strict.served().requests <= JOBS + recovered


def test_a_run_survives_a_redis_that_forgot_its_last_second(deployment: Cluster) -> None:
    server = server_of(deployment)
    strict = start_strict_run(deployment, JOBS)
    file, remembered = written(server)
    strict.wait_for(JOBS // 4 + PER_SECOND)
    server.kill()
    os.truncate(file, remembered)
    server.start()
    assert strict.run.status().jobs_done < JOBS // 4 + PER_SECOND
    strict.check()
    assert {death.name for death in deployment.stack.poll()} <= {"redis"}
    assert JOBS < strict.served().requests <= JOBS + 2 * PER_SECOND + SLOTS * WORKERS


def test_limits_hold_when_redis_and_the_leader_are_killed_together(deployment: Cluster) -> None:
    server = server_of(deployment)
    strict = start_strict_run(deployment, JOBS)
    file, remembered = written(server)
    strict.wait_for(JOBS // 4 + PER_SECOND // 2)
    leader = deployment.leader()
    leader.kill()
    server.kill()
    os.truncate(file, remembered)
    server.start()
    strict.check()
    assert deployment.leader().name != leader.name


def test_a_redis_that_hangs_longer_than_every_lease_only_delays_a_run(deployment: Cluster) -> None:
    strict = start_strict_run(deployment, JOBS)
    server = deployment.process("redis")
    server.kill(signal.SIGSTOP)
    silent_until = time.monotonic() + SCHEDULER["lease_seconds"] + 0.5
    wait_until(lambda: time.monotonic() >= silent_until)
    server.kill(signal.SIGCONT)
    records = strict.check()
    assert {record.attempts for record in records} == {1}
    assert strict.served().requests == JOBS
    assert not deployment.logged(Event.LEASE_RECOVERED)


def test_a_run_goes_on_after_a_power_cut(deployment: Cluster) -> None:
    strict = start_strict_run(deployment, JOBS)
    everybody = deployment.stack.processes
    for process in everybody.values():
        process.kill()
    wait_until(lambda: not any(process.is_running for process in everybody.values()))
    for name in everybody:
        deployment.stack.restart(name)
    strict.check()
    # Twice only what was in flight when the lights went out.
    assert JOBS <= strict.served().requests <= JOBS + SLOTS * WORKERS
