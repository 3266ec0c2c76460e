"""A worker that dies in mid-call: its jobs go back, each ends once, and nobody restarts anything."""

from __future__ import annotations

import pytest

from fairlane import JobState, RetryPolicy, RunState
from fairlane.core.events import Event
from tests.chaos.conftest import SLOTS
from tests.support.cluster import Cluster, whole
from tests.support.strict_lane import start_strict_run
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

JOBS = 150


def kill_one_in_mid_call(deployment: Cluster) -> str:
    """SIGKILL a worker that holds attempts; its name."""
    victim = wait_until(lambda: max(deployment.held(), default=""))
    deployment.process(victim).kill()
    deployment.process(victim).join(5.0)
    return victim


def test_every_job_of_a_run_whose_worker_was_killed_has_one_record(deployment: Cluster) -> None:
    strict = start_strict_run(deployment, JOBS)
    victim = kill_one_in_mid_call(deployment)
    records = strict.check()
    assert JOBS <= strict.served().requests <= JOBS + SLOTS
    assert {record.attempts for record in records} <= {1, 2}
    assert deployment.logged(Event.WORKER_LOST, worker=victim)
    assert victim not in {beat.info.name for beat in deployment.beats()}


def test_a_run_waits_for_workers_and_goes_on_with_the_first(deployment: Cluster) -> None:
    strict = start_strict_run(deployment, JOBS)
    for name in ("worker-1", "worker-2", "worker-3"):
        deployment.process(name).kill()
    wait_until(lambda: not deployment.beats())
    assert strict.run.status().jobs_done < JOBS
    deployment.stack.restart("worker-2")
    strict.check()


def test_what_kills_its_worker_on_every_attempt_ends_as_failed(deployment: Cluster) -> None:
    hanging, quick = deployment.new_model(latency_ms=20_000), deployment.new_model(latency_ms=20)
    run = deployment.client.submit(
        [{"model": hanging}, {"model": quick}],
        "question for {{ model }}",
        model="sim:{{ model }}",
        retry=RetryPolicy(max_attempts=1),
    )
    wait_until(lambda: deployment.served(hanging).in_flight == run.status().jobs_done == 1)
    kill_one_in_mid_call(deployment)
    poison, innocent = whole(run)
    assert run.status().state is RunState.COMPLETED
    assert (poison.state, innocent.state) == (JobState.FAILED, JobState.SUCCEEDED)
    assert "worker died" in (poison.error or "")
    assert deployment.served(hanging).requests == 1
