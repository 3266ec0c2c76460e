"""A worker that dies in mid-call: its jobs go back, each ends once, and nobody restarts anything."""

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
LANE = '[lanes."sim:strict"]\nrequests_per_minute = 2400\nburst_seconds = 0.5\n'


def kill_one_in_mid_call(deployment: Cluster) -> str:
    """SIGKILL a worker that holds attempts; its name."""
    victim = wait_until(lambda: max(deployment.held(), default=""))
    deployment.process(victim).kill()
    deployment.process(victim).join(5.0)
    return victim


def test_every_job_of_a_run_whose_worker_was_killed_has_one_record(tmp_path: Path) -> None:
    with cluster(tmp_path, {"strict": STRICT}, config=LANE, workers=3, slots=SLOTS) as deployment:
        run = deployment.client.submit(numbered(200), "question {{ n }}", model="sim:strict")
        wait_until(lambda: run.status().jobs_done >= 40)
        victim = kill_one_in_mid_call(deployment)
        all_succeeded(run)
        served = deployment.served("strict")
        assert served.rejected == 0
        assert 200 <= served.requests <= 200 + SLOTS
        assert deployment.logged(Event.WORKER_LOST, worker=victim)
        assert victim not in {beat.info.name for beat in deployment.beats()}


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
        kill_one_in_mid_call(deployment)
        poison, innocent = whole(run)
        assert run.status().state is RunState.COMPLETED
        assert (poison.state, innocent.state) == (JobState.FAILED, JobState.SUCCEEDED)
        assert "worker died" in (poison.error or "")
        assert deployment.served("hanging").requests == 1
