"""A paused run stays paused whoever dies: the leader, and Redis."""

from __future__ import annotations

import pytest

from fairlane.core.events import Event
from tests.support.cluster import Cluster, all_succeeded, numbered
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos


def test_a_pause_outlives_redis_and_the_leader(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=20)
    lane = f"sim:{model}"
    run = deployment.client.submit(numbered(200), "question {{ n }}", model=lane, max_concurrent=2)
    wait_until(lambda: run.status().jobs_done >= 5)
    run.pause()
    wait_until(lambda: run.status().paused is not None and run.status().in_flight == 0)
    called = deployment.served(model).requests
    server = deployment.stack.redis
    assert server is not None
    server.kill()
    deployment.wait_logged(Event.STORE_UNREACHABLE, process="scheduler-1")
    server.start()
    leader = deployment.leader()
    leader.kill()
    wait_until(lambda: deployment.leader().name != leader.name)
    all_succeeded(deployment.client.submit(numbered(10), "other {{ n }}", model=lane))
    assert deployment.served(model).requests == called + 10
    assert run.status().paused is not None
    run.resume()
    all_succeeded(run)
    assert deployment.served(model).requests == 200 + 10
