"""Two deployments share one Redis, down to the names of their lanes, and know nothing of each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fairlane.core.events import Event
from fairlane.embedded.server import EmbeddedRedis
from fairlane.testing import SimulatedModel
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered, whole
from tests.support.wait import wait_until

NAMES = ("north", "south")
MODELS = {"same": SimulatedModel(latency_ms=50), "long": SimulatedModel(latency_ms=30_000)}


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cluster]]:
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis(tmp_path_factory.mktemp("server")))
        yield [
            stack.enter_context(
                cluster(
                    tmp_path_factory.mktemp(name),
                    MODELS,
                    env={"FAIRLANE_REDIS__DEPLOYMENT": name},
                    redis_url=server.url,
                    workers=1,
                )
            )
            for name in NAMES
        ]


def test_two_deployments_on_one_redis_execute_only_their_own_attempts(neighbours: list[Cluster]) -> None:
    runs = [each.client.submit(numbered(60), "question {{ n }}", model="sim:same") for each in neighbours]
    for each, run in zip(neighbours, runs, strict=True):
        records = all_succeeded(run)
        assert {record.attempts for record in records} == {1}
        assert each.served("same").requests == 60
        assert not each.logged(Event.STALE_CLAIM)
        assert not each.logged(Event.LEASE_RECOVERED)


def test_cancelling_in_one_deployment_does_not_affect_the_other(neighbours: list[Cluster]) -> None:
    north, south = neighbours
    runs = [each.client.submit(numbered(5), "question {{ n }}", model="sim:long") for each in neighbours]
    wait_until(lambda: north.served("long").in_flight == south.served("long").in_flight == 5)
    runs[0].cancel()
    whole(runs[0])
    wait_until(lambda: north.served("long").in_flight == 0)
    assert south.served("long").in_flight == 5
    runs[1].cancel()
    whole(runs[1])
