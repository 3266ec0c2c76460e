"""A broker that is not the state's Redis dies and comes back: the run goes on afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.embedded.server import EmbeddedRedis
from tests.support.cluster import cluster
from tests.support.strict_lane import start_strict_run
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos


def test_a_run_completes_although_its_separate_broker_is_killed(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "broker") as broker:
        config = f'[celery]\nbroker_url = "{broker.broker_url}"\n'
        with cluster(tmp_path, config=config, workers=1) as deployment:
            strict = start_strict_run(deployment, 120)
            broker.kill()
            wait_until(lambda: strict.run.status().in_flight == 0)
            # Runs are admitted and cancelled without the broker.
            other = deployment.client.submit([{}], "meanwhile", model=f"sim:{strict.model}")
            other.cancel()
            other.wait(timeout=60.0)
            broker.start()
            strict.check()
            assert not deployment.stack.poll()
