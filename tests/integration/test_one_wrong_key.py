"""One worker has a wrong key beside others with the right one: it leaves the lane to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from fairlane.core.events import Event
from fairlane.testing import ServedProvider, SimulatedModel, SimulatorConfig, serve_in_thread
from fairlane_workers.execution.denied_lanes import DENIED_IN_A_ROW
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.wait import wait_until

RIGHT, WRONG = "sk-right-c0ffee-1234567890", "sk-wrong-badcafe-1234567890"
LANE = "c:m"


@contextmanager
def wrong_beside_right(directory: Path, case: str) -> Iterator[tuple[Cluster, ServedProvider]]:
    """Two workers, one of which has a wrong key.

    "fresh": the lane has served nobody. "answered": it has. "revoked": it has, with a key that is wrong now.
    """
    models = {"m": SimulatedModel(latency_ms=400)}
    with serve_in_thread(SimulatorConfig(models=models, api_key=SecretStr(RIGHT))) as provider:
        config = f'[connections.c]\nprotocol = "openai"\nbase_url = "{provider.base_url}"\n'
        config += f'api_key_env = "C_KEY"\n[lanes."{LANE}"]\nmax_concurrency = 16\n'
        with cluster(directory, config=config, env={"C_KEY": RIGHT}, workers=2) as deployment:
            if case != "fresh":
                all_succeeded(deployment.client.submit(numbered(20), "first {{ n }}", model=LANE))
            worker = deployment.process("worker-2")
            worker.stop()
            worker.env = {**worker.env, "C_KEY": WRONG}
            worker.start()
            deployment.wait_ready(2)
            if case == "revoked":
                provider.change_key(WRONG)
            yield deployment, provider


@pytest.mark.timeout(180)
@pytest.mark.parametrize("case", ["fresh", "answered", "revoked"])
def test_a_worker_whose_key_alone_is_denied_leaves_the_lane_to_the_others(tmp_path: Path, case: str) -> None:
    with wrong_beside_right(tmp_path, case) as (deployment, provider):
        run = deployment.client.submit(numbered(200), "question {{ n }}", model=LANE)
        deployment.wait_logged(Event.LANE_LEFT, lane=LANE)
        wait_until(lambda: [LANE not in beat.info.lanes for beat in deployment.beats()].count(True) == 1)
        [denied] = [beat.info for beat in deployment.beats() if beat.info.denied]
        assert set(denied.denied) == {LANE}
        assert denied.name == f"worker-{1 if case == 'revoked' else 2}"
        records = all_succeeded(run)
        lost = sum(record.attempts - 1 for record in records)
        assert lost <= (DENIED_IN_A_ROW - 1 if case == "revoked" else 0)  # of one job or of several
        assert not deployment.logged(Event.LANE_PARKED)
        assert not deployment.logged(Event.CIRCUIT_OPENED)
        assert provider.stats().unauthorized < 40
