"""Redis dies in mid-run and comes back: nobody else is restarted, every job ends once, nothing bursts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairlane.events import Event
from fairlane.local.embedded import EmbeddedRedis
from fairlane.testing import SimulatedModel
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

JOBS, PER_SECOND = 240, 40
STRICT = SimulatedModel(requests_per_minute=60 * PER_SECOND, burst_seconds=1.0, latency_ms=200)
CONFIG = f'[lanes."sim:strict"]\nrequests_per_minute = {60 * PER_SECOND}\nburst_seconds = 0.5\n'


def server_of(deployment: Cluster) -> EmbeddedRedis:
    server = deployment.stack.redis
    assert server is not None
    return server


def append_only_file(server: EmbeddedRedis) -> Path:
    (file,) = server.data_dir.rglob("*.incr.aof")
    return file


def test_a_run_survives_a_killed_redis_without_anybody_being_restarted(tmp_path: Path) -> None:
    with cluster(tmp_path, {"strict": STRICT}, config=CONFIG) as deployment:
        server = server_of(deployment)
        run = deployment.client.submit(numbered(JOBS), "question {{ n }}", model="sim:strict")
        wait_until(lambda: run.status().jobs_done >= 60)
        server.kill()
        server.start()
        all_succeeded(run)
        assert not deployment.stack.poll()
        assert deployment.served("strict").rejected == 0
        # A call that was reported to a Redis that died before it answered is reported again, not made again.
        assert deployment.served("strict").requests == JOBS


def test_a_run_survives_a_redis_that_forgot_its_last_second(tmp_path: Path) -> None:
    with cluster(tmp_path, {"strict": STRICT}, config=CONFIG) as deployment:
        server = server_of(deployment)
        run = deployment.client.submit(numbered(JOBS), "question {{ n }}", model="sim:strict")
        wait_until(lambda: run.status().jobs_done >= 60)
        known = append_only_file(server).stat().st_size
        wait_until(lambda: run.status().jobs_done >= 60 + PER_SECOND)
        server.kill()
        os.truncate(append_only_file(server), known)
        server.start()
        assert run.status().jobs_done < 60 + PER_SECOND
        all_succeeded(run)
        assert not deployment.stack.poll()
        served = deployment.served("strict")
        assert served.rejected == 0
        assert JOBS < served.requests <= JOBS + 3 * PER_SECOND


def test_nothing_bursts_when_redis_and_the_leader_die_together(tmp_path: Path) -> None:
    with cluster(tmp_path, {"strict": STRICT}, config=CONFIG, schedulers=2) as deployment:
        server = server_of(deployment)
        run = deployment.client.submit(numbered(JOBS), "question {{ n }}", model="sim:strict")
        wait_until(lambda: run.status().jobs_done >= 60)
        known = append_only_file(server).stat().st_size
        wait_until(lambda: run.status().jobs_done >= 60 + PER_SECOND // 2)
        leader = deployment.leader()
        leader.kill()
        server.kill()
        os.truncate(append_only_file(server), known)
        server.start()
        all_succeeded(run)
        assert deployment.leader().name != leader.name
        assert [death.name for death in deployment.stack.poll()] == [leader.name]
        assert deployment.served("strict").rejected == 0


def test_schedulers_and_workers_say_that_redis_is_away_and_back(tmp_path: Path) -> None:
    with cluster(tmp_path, {"strict": STRICT}, config=CONFIG) as deployment:
        server = server_of(deployment)
        server.kill()
        wait_until(lambda: deployment.logged(Event.STORE_UNREACHABLE, process="scheduler-1"))
        wait_until(lambda: deployment.logged(Event.STORE_UNREACHABLE, process="worker-1"))
        server.start()
        wait_until(lambda: deployment.logged(Event.STORE_BACK, process="scheduler-1"))
        wait_until(lambda: deployment.logged(Event.STORE_BACK, process="worker-1"))
        run = deployment.client.submit(numbered(10), "question {{ n }}", model="sim:strict")
        all_succeeded(run)
