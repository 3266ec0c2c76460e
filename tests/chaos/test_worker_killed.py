"""A worker that dies in the middle of its calls: its jobs go back, once each, and nobody restarts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane import JobState, RetryPolicy, RunState
from fairlane.events import Event
from fairlane.testing import SimulatedModel
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered, whole
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

SLOTS = 10
STRICT = SimulatedModel(requests_per_minute=2400, burst_seconds=1.0, latency_ms=300)
LANE = '[lanes."sim:strict"]\nrequests_per_minute = 2400\nburst_seconds = 1.0\n'


def kill_in_mid_call(deployment: Cluster, name: str) -> int:
    """SIGKILL while it holds attempts; how many it held a moment before."""
    held = wait_until(lambda: deployment.leases_of(name))
    deployment.process(name).kill()
    deployment.process(name).join(5.0)
    return held


def test_every_job_of_a_run_whose_worker_was_killed_has_one_record(tmp_path: Path) -> None:
    with cluster(tmp_path, {"strict": STRICT}, config=LANE, workers=3, slots=SLOTS) as deployment:
        run = deployment.client.submit(numbered(200), "question {{ n }}", model="sim:strict")
        wait_until(lambda: run.status().jobs_done >= 40)
        kill_in_mid_call(deployment, "worker-1")
        all_succeeded(run)
        served = deployment.served("strict")
        assert served.rejected == 0
        assert 200 <= served.requests <= 200 + SLOTS
        assert deployment.logged(Event.WORKER_LOST, worker="worker-1")
        assert {beat.info.name for beat in deployment.beats()} == {"worker-2", "worker-3"}


def test_what_kills_its_worker_on_every_attempt_ends_as_failed(tmp_path: Path) -> None:
    hanging = {"hanging": SimulatedModel(latency_ms=20_000), "quick": SimulatedModel(latency_ms=20)}
    with cluster(tmp_path, hanging, slots=SLOTS) as deployment:
        run = deployment.client.submit(
            [{"model": "hanging"}, {"model": "quick"}],
            "{{ model }}",
            model="sim:{{ model }}",
            retry=RetryPolicy(max_attempts=1),
        )
        wait_until(lambda: run.status().jobs_done == 1)
        holder = next(name for name in ("worker-1", "worker-2") if deployment.leases_of(name))
        kill_in_mid_call(deployment, holder)
        poison, innocent = whole(run)
        assert run.status().state is RunState.COMPLETED
        assert (poison.state, innocent.state) == (JobState.FAILED, JobState.SUCCEEDED)
        assert "worker died" in (poison.error or "")
        assert deployment.served("hanging").requests == 1
