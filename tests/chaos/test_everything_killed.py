"""A power cut, a broker that dies on its own, no worker left: what was submitted still ends, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.local.embedded import start_embedded
from fairlane.testing import SimulatedModel
from tests.support.cluster import all_succeeded, cluster, numbered
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

JOBS, SLOTS = 120, 10
STRICT = SimulatedModel(requests_per_minute=2400, burst_seconds=1.0, latency_ms=200)
LANE = '[lanes."sim:strict"]\nrequests_per_minute = 2400\nburst_seconds = 0.5\n'


def test_a_run_goes_on_after_a_power_cut(tmp_path: Path) -> None:
    with cluster(tmp_path, {"strict": STRICT}, config=LANE, slots=SLOTS) as deployment:
        run = deployment.client.submit(numbered(JOBS), "question {{ n }}", model="sim:strict")
        wait_until(lambda: run.status().jobs_done >= 30)
        for process in deployment.stack.processes.values():
            process.kill()
        wait_until(lambda: not any(each.is_running for each in deployment.stack.processes.values()))
        for name in deployment.stack.processes:
            deployment.stack.restart(name)
        all_succeeded(run)
        served = deployment.served("strict")
        assert served.rejected == 0
        # Twice only what was in flight when the lights went out.
        assert JOBS <= served.requests <= JOBS + 2 * SLOTS


def test_a_run_waits_for_workers_and_goes_on_with_the_first(tmp_path: Path) -> None:
    with cluster(tmp_path, {"strict": STRICT}, config=LANE, slots=SLOTS) as deployment:
        run = deployment.client.submit(numbered(JOBS), "question {{ n }}", model="sim:strict")
        wait_until(lambda: run.status().jobs_done >= 30)
        for name in ("worker-1", "worker-2"):
            deployment.process(name).kill()
        wait_until(lambda: not deployment.beats())
        assert run.status().jobs_done < JOBS
        deployment.stack.restart("worker-2")
        all_succeeded(run)
        assert deployment.served("strict").rejected == 0


def test_a_broker_of_its_own_may_die_and_come_back(tmp_path: Path) -> None:
    with start_embedded(tmp_path / "broker") as broker:
        config = f'{LANE}[celery]\nbroker_url = "{broker.broker_url}"\n'
        with cluster(tmp_path, {"strict": STRICT}, config=config, slots=SLOTS) as deployment:
            run = deployment.client.submit(numbered(JOBS), "question {{ n }}", model="sim:strict")
            wait_until(lambda: run.status().jobs_done >= 30)
            broker.kill()
            wait_until(lambda: run.status().in_flight == 0)
            # The state is there all the while: runs are admitted, and cancelled, without the broker.
            other = deployment.client.submit(numbered(5), "other {{ n }}", model="sim:strict")
            other.cancel()
            other.wait(timeout=10.0)
            broker.start()
            all_succeeded(run)
            assert not deployment.stack.poll()
            assert deployment.served("strict").rejected == 0
