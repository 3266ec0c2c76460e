"""What probes hear of a deployment: ready while Redis takes writes, and in good health while it does not."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, cluster
from tests.support.wait import wait_until

CONFIG = "[metrics]\nscheduler_port = 0\nworker_port = 0\n"
OK, UNAVAILABLE = 200, 503


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Cluster]:
    """Two schedulers, one of which stands by, and a worker."""
    with cluster(tmp_path, config=CONFIG, workers=1, schedulers=2) as made:
        yield made


def asked(made: Cluster, path: str) -> dict[str, int]:
    """The status that every process answers with."""
    return {name: status for name, (status, _) in replies(made, path).items()}


def replies(made: Cluster, path: str) -> dict[str, tuple[int, str]]:
    """The status and the text of every process' answer."""
    shown = {}
    for name in made.stack.processes:
        if name.startswith(("scheduler", "worker")):
            file = made.stack.plan.ready_file(name)
            url = json.loads(file.read_text(encoding="utf-8"))["metrics"]
            shown[name] = _reply(f"{url}{path}")
    return shown


def said(made: Cluster, path: str) -> dict[str, str]:
    """What every process says."""
    return {name: text for name, (_, text) in replies(made, path).items()}


def _reply(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310 - our own, on loopback
            return int(reply.status), reply.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_without_redis_every_role_is_healthy_but_not_ready(deployment: Cluster) -> None:
    server = deployment.stack.redis
    assert server is not None
    roles = ("scheduler-1", "scheduler-2", "worker-1")
    wait_until(lambda: asked(deployment, "/readyz") == dict.fromkeys(roles, OK))

    server.kill()

    wait_until(lambda: asked(deployment, "/readyz") == dict.fromkeys(roles, UNAVAILABLE))
    assert asked(deployment, "/healthz") == dict.fromkeys(roles, OK)
    server.start()
    wait_until(lambda: asked(deployment, "/readyz") == dict.fromkeys(roles, OK), timeout=60)


def test_every_role_reports_an_idle_full_redis(deployment: Cluster) -> None:
    roles = ("scheduler-1", "scheduler-2", "worker-1")
    wait_until(lambda: asked(deployment, "/readyz") == dict.fromkeys(roles, OK))

    deployment.redis.config_set("maxmemory", "1")

    wait_until(
        lambda: all("Redis is full" in text for text in said(deployment, "/readyz").values()), timeout=60
    )
    assert asked(deployment, "/readyz") == dict.fromkeys(roles, UNAVAILABLE)
    assert asked(deployment, "/healthz") == dict.fromkeys(roles, OK)
    deployment.redis.config_set("maxmemory", "0")
    wait_until(lambda: asked(deployment, "/readyz") == dict.fromkeys(roles, OK), timeout=60)
