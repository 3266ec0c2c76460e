"""Redis behind Sentinels and as a cluster: a run goes on when another server takes over."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import RedisError
from typer.testing import CliRunner

from fairlane.cli.main import app
from fairlane.core.events import Event
from fairlane.embedded.server import EmbeddedRedis
from fairlane.store.connection.connect import open_redis
from fairlane.store.connection.primary_pool import async_primary_pool
from tests.support.cluster import Cluster, cluster
from tests.support.redis_fleet import Fleet, clustered, watched_by_sentinels
from tests.support.strict_lane import start_strict_run
from tests.support.wait import wait_until

JOBS = 240


def test_a_run_goes_on_when_sentinels_name_another_primary(tmp_path: Path) -> None:
    with deployed(tmp_path, watched_by_sentinels) as (fleet, deployment):
        strict = start_strict_run(deployment, JOBS)
        strict.wait_for(JOBS // 4)

        before = fleet.kill_primary()

        assert fleet.primary() != before
        strict.check()
        deployment.wait_logged(Event.STORE_BACK, source="runner")
        assert not deployment.stack.poll(), "a process has died"
        assert f"the primary is 127.0.0.1:{fleet.primary()}" in doctor(deployment)["redis"]


DEMOTED_S = 10.0
"""Sentinels wait for eight seconds before they demote a primary that they have replaced."""


def test_a_primary_that_was_replaced_while_it_lived_is_left_before_it_is_demoted(tmp_path: Path) -> None:
    with watched_by_sentinels(tmp_path, failover_ms=2000, guarded=True, replicas=2) as fleet:

        async def write(name: str) -> None:
            await other.set(name, "here")

        with open_redis(fleet.url, deployment="main") as client, asyncio.Runner() as loop:
            other: Any = AsyncRedis.from_pool(async_primary_pool(fleet.url, "main"))
            client.set("first", "here")
            loop.run(write("second"))
            before = fleet.stop_primary()
            fleet.servers[before].kill(signal.SIGCONT)
            went_on = time.monotonic()
            with fleet.client(*fleet.named()) as after:
                wait_until(lambda: _there(after, "third", lambda: client.set("third", "here")))
                wait_until(lambda: _there(after, "fourth", lambda: loop.run(write("fourth"))))
            assert time.monotonic() - went_on < DEMOTED_S / 2
            loop.run(other.aclose())


def _there(server: Redis, name: str, write: Callable[[], object]) -> bool:
    """Write, and see whether it is on this server."""
    with suppress(RedisError):
        write()
    return bool(server.exists(name))


def test_a_run_goes_on_when_its_slot_moves_and_when_its_node_dies(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "broker") as broker:
        config = f'[celery]\nbroker_url = "{broker.broker_url}"\n'
        with deployed(tmp_path, clustered, config) as (fleet, deployment):
            strict = start_strict_run(deployment, JOBS)
            strict.wait_for(JOBS // 4)

            before = fleet.primary()
            fleet.move_slot()
            assert fleet.primary() != before
            strict.wait_for(JOBS // 2)
            fleet.move_slot(to=before)
            assert fleet.kill_primary() == before

            assert fleet.primary() != before
            strict.check()
            assert not deployment.stack.poll(), "a process has died"
            shown = doctor(deployment)
            assert f"the primary is 127.0.0.1:{fleet.primary()}" in shown["redis"]
            assert shown["broker"] == "it answers"


def test_a_cluster_without_a_broker_is_reported_before_anything_starts(tmp_path: Path) -> None:
    environment = {"FAIRLANE_REDIS__URL": "redis+cluster://127.0.0.1:1", "COLUMNS": "200"}
    for role in ("scheduler", "worker"):
        refused = CliRunner().invoke(app, [role], env=environment)
        assert refused.exit_code == 2
        assert "celery.broker_url" in refused.stderr
        assert "on a cluster" in refused.stderr


def test_a_plain_url_of_a_cluster_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with clustered(tmp_path) as fleet:
        environment = {"FAIRLANE_REDIS__URL": f"redis://127.0.0.1:{fleet.primary()}", "COLUMNS": "200"}
        for role in ("scheduler", "worker"):
            refused = CliRunner().invoke(app, [role], env=environment)
            assert refused.exit_code == 2
            assert "Write redis+cluster://HOST:PORT" in refused.stderr
        found = json.loads(CliRunner().invoke(app, ["doctor", "--json"], env=environment).stdout)
        assert "fail" in {finding["grade"] for finding in found if finding["check"] == "redis cluster"}


@contextmanager
def deployed(
    directory: Path, kind: Callable[[Path], AbstractContextManager[Fleet]], config: str = ""
) -> Iterator[tuple[Fleet, Cluster]]:
    """Those servers, and everything of ours on them."""
    with ExitStack() as stack:
        (directory / "servers").mkdir()
        fleet = stack.enter_context(kind(directory / "servers"))
        deployment = stack.enter_context(cluster(directory, config=config, redis_url=fleet.url, workers=1))
        deployment.begin()
        yield fleet, deployment


def doctor(deployment: Cluster) -> dict[str, str]:
    """What each check came to; none fails."""
    ended = CliRunner().invoke(app, ["doctor", "--json"], env=deployment.stack.environment)
    findings = json.loads(ended.stdout)
    assert not [finding for finding in findings if finding["grade"] == "fail"]
    return {finding["check"]: finding["detail"] for finding in findings}
