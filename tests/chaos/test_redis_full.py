"""A Redis that refuses to write, because it is full: whoever asked asks again, and no call is made twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fairlane.core.events import Event
from tests.chaos.conftest import WORKERS
from tests.support.cluster import Cluster
from tests.support.strict_lane import start_strict_run
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

JOBS = 150


@contextmanager
def full(deployment: Cluster) -> Iterator[None]:
    """Redis takes nothing more inside the block."""
    deployment.redis.config_set("maxmemory", 1)
    try:
        yield
    finally:
        deployment.redis.config_set("maxmemory", 0)


def test_a_run_goes_on_once_a_full_redis_has_room_again(deployment: Cluster) -> None:
    strict = start_strict_run(deployment, JOBS)
    with full(deployment):
        for role in ("worker-1", deployment.leader().name):
            deployment.wait_logged(Event.STORE_UNREACHABLE, process=role)
        wait_until(lambda: strict.served().in_flight == 0)
    strict.check()
    assert strict.served().requests == JOBS
    deployment.wait_ready(WORKERS)
    assert not deployment.stack.poll()
