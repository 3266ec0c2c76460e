"""What probes hear of a deployment: ready while Redis is there, and in good health while it is not."""

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
    """What every process answers."""
    shown = {}
    for name in made.stack.processes:
        if name.startswith(("scheduler", "worker")):
            file = made.stack.plan.ready_file(name)
            url = json.loads(file.read_text(encoding="utf-8"))["metrics"]
            shown[name] = _status(f"{url}{path}")
    return shown


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310 - our own, on loopback
            return int(reply.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


def test_without_redis_nobody_is_ready_and_nobody_is_sick(deployment: Cluster) -> None:
    server = deployment.stack.redis
    assert server is not None
    roles = ("scheduler-1", "scheduler-2", "worker-1")
    wait_until(lambda: asked(deployment, "/readyz") == dict.fromkeys(roles, OK))

    server.kill()

    wait_until(lambda: asked(deployment, "/readyz") == dict.fromkeys(roles, UNAVAILABLE))
    assert asked(deployment, "/healthz") == dict.fromkeys(roles, OK)
    server.start()
    wait_until(lambda: asked(deployment, "/readyz") == dict.fromkeys(roles, OK), timeout=60)
