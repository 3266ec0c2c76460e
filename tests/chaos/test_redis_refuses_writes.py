"""A Redis that answers and takes no writes: workers whose connections drop wait, and work afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from fairlane import Client, RunState
from fairlane.core.errors import StoreRefuses
from fairlane.core.events import Event
from tests.chaos.conftest import WORKERS
from tests.support.cluster import Cluster, all_succeeded, numbered
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

SETTINGS = {
    "full": ("maxmemory", "1", "0"),
    "without replicas": ("min-replicas-to-write", "1", "0"),
}
"""What makes a primary refuse writes: a setting, its value, and the value that ends it."""


@contextmanager
def refusing(deployment: Cluster, how: str) -> Iterator[None]:
    """Redis refuses every write inside the block."""
    if how == "read-only":
        with _role(deployment, "127.0.0.1", "1"):
            yield
        return
    if how == "without disk":
        with _failing_snapshots(deployment):
            yield
        return
    name, bad, good = SETTINGS[how]
    deployment.redis.config_set(name, bad)
    try:
        yield
    finally:
        deployment.redis.config_set(name, good)


@contextmanager
def _role(deployment: Cluster, host: str, port: str) -> Iterator[None]:
    deployment.redis.execute_command("REPLICAOF", host, port)
    try:
        yield
    finally:
        deployment.redis.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def _failing_snapshots(deployment: Cluster) -> Iterator[None]:
    """No snapshot can be written, since a folder has its name: so writes stop."""
    folder, name = (deployment.redis.config_get(key)[key] for key in ("dir", "dbfilename"))
    obstacle = Path(folder) / name
    obstacle.unlink(missing_ok=True)
    obstacle.mkdir()
    try:
        deployment.redis.config_set("save", "3600 1")
        _snapshot(deployment, "err")
        yield
    finally:
        obstacle.rmdir()
        deployment.redis.config_set("save", "")
        _snapshot(deployment, "ok")


def _snapshot(deployment: Cluster, ends: str) -> None:
    with suppress(ResponseError):  # one is being written
        deployment.redis.bgsave()
    wait_until(lambda: deployment.redis.info("persistence")["rdb_last_bgsave_status"] == ends)


def drop_connections(deployment: Cluster) -> None:
    """Redis ends every client's connection but ours."""
    deployment.redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    deployment.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")


def reconnected(deployment: Cluster, process: str) -> Callable[[], bool]:
    """Whether a worker has been refused by its broker, more than once.

    A Redis that cannot write to its disk refuses each new connection.
    """

    def look() -> bool:
        assert deployment.process(process).is_running, deployment.process(process).log_tail()
        refusals = len(deployment.logged(Event.BROKER_REFUSES, process=process))
        return refusals + deployment.process(process).log_tail().count("MISCONF") > 1

    return look


@pytest.mark.parametrize("how", ["full", "without replicas", "read-only", "without disk"])
def test_a_worker_whose_connection_drops_while_writes_are_refused_waits(
    deployment: Cluster, how: str
) -> None:
    with refusing(deployment, how):
        drop_connections(deployment)
        for number in range(1, WORKERS + 1):
            wait_until(reconnected(deployment, f"worker-{number}"))
        assert not deployment.stack.poll()
    deployment.wait_ready(WORKERS)
    run = deployment.client.submit(numbered(5), model=f"sim:{deployment.new_model()}", prompt="{{ n }}")
    assert len(all_succeeded(run)) == 5


def test_reads_work_while_redis_cannot_write_to_its_disk(deployment: Cluster) -> None:
    run = deployment.client.submit(numbered(3), "{{ n }}", model=f"sim:{deployment.new_model()}")
    all_succeeded(run)
    settings = deployment.settings.model_copy(update={"team": run.team})
    with refusing(deployment, "without disk"), Client(settings=settings) as client:
        assert client.run(run.id).status().state is RunState.COMPLETED
        assert len(list(client.run(run.id).results())) == 3
        with pytest.raises(StoreRefuses, match="cannot write to its disk"):
            client.submit(numbered(1), "{{ n }}", model="sim:m0")
    deployment.wait_ready(WORKERS)


def test_a_team_cancels_and_pauses_while_redis_is_full(deployment: Cluster) -> None:
    slow = f"sim:{deployment.new_model(latency_ms=30_000.0)}"
    cancelled, paused = (
        deployment.client.submit(numbered(50), "{{ n }}", model=slow, max_concurrent=1) for _ in range(2)
    )
    wait_until(lambda: cancelled.status().in_flight and paused.status().in_flight)
    with refusing(deployment, "full"):
        deployment.wait_logged(Event.STORE_UNREACHABLE, process=deployment.leader().name)
        with pytest.raises(StoreRefuses, match="Redis is full"):
            deployment.client.submit(numbered(1), "{{ n }}", model=slow)
        paused.pause()
        cancelled.cancel()
        wait_until(lambda: cancelled.status().state is RunState.CANCELLED)
        wait_until(lambda: paused.status().paused)
    paused.cancel()
    wait_until(lambda: paused.status().state is RunState.CANCELLED)
    deployment.wait_ready(WORKERS)
