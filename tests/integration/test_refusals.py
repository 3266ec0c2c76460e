"""A lane that is refused for good is parked, one whose provider is gone opens its circuit."""

from __future__ import annotations

import pytest

from fairlane import JobState, RetryPolicy, RunState
from fairlane.core.events import Event
from tests.support.cluster import Cluster, all_succeeded, numbered, whole
from tests.support.wait import wait_until

FAILURES_THAT_OPEN = 5
WORKERS = 2
SOON = RetryPolicy(initial_delay=0.05, max_delay=0.3)
OUTAGE = ((0.0, 1000.0),)


def end_cool_down(deployment: Cluster, lane: str) -> None:
    """As if its 30 seconds were over."""
    deployment.redis.hset(deployment.keys.lane(lane), "open_ms", 1)


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "configured to answer 401"), ("insufficient_quota", "exceeded your current quota")],
)
def test_a_refusal_parks_the_lane_after_one_call_a_worker_and_fails_no_job(
    deployment: Cluster, status: int | str, reason: str
) -> None:
    model = deployment.new_model(status_always=status, latency_ms=20)
    lane = f"sim:{model}"
    deployment.lanes.limit(lane, {"max_concurrency": 1})
    run = deployment.client.submit(numbered(10), "question {{ n }}", model=lane)
    wait_until(lambda: deployment.lanes.view(lane).parked)
    assert reason in (deployment.lanes.view(lane).parked or "")
    deployment.wait_logged(Event.LANE_PARKED, lane=lane)
    # Resumed while nothing has changed: a probe of each worker, although ten jobs may start.
    deployment.lanes.limit(lane, {"max_concurrency": None})
    refused = deployment.served(model).requests
    assert refused <= WORKERS
    deployment.lanes.resume(lane)
    wait_until(lambda: deployment.served(model).requests > refused and deployment.lanes.view(lane).parked)
    probed = deployment.served(model).requests
    assert probed <= refused + WORKERS
    deployment.provider.change_model(model, status_always=None)
    assert run.status().jobs_done == 0
    deployment.lanes.resume(lane)
    records = all_succeeded(run)
    assert {record.attempts for record in records} == {1}
    assert deployment.served(model).requests == probed + 10


def test_calls_in_flight_together_that_are_refused_go_back_unharmed(deployment: Cluster) -> None:
    model = deployment.new_model(status_always=403)
    lane = f"sim:{model}"
    deployment.lanes.limit(lane, {})
    run = deployment.client.submit(numbered(30), "question {{ n }}", model=lane)
    wait_until(lambda: deployment.lanes.view(lane).parked and deployment.lanes.view(lane).in_flight == 0)
    status = run.status()
    assert (status.state, status.jobs_done) == (RunState.RUNNING, 0)
    assert deployment.served(model).requests <= 30
    deployment.provider.change_model(model, status_always=None, latency_ms=10)
    deployment.lanes.resume(lane)
    assert {record.attempts for record in all_succeeded(run)} == {1}


def test_a_model_that_the_key_may_not_use_parks_no_lane_that_others_share(deployment: Cluster) -> None:
    denied, fine = deployment.new_model(status_always=403), deployment.new_model(latency_ms=10)
    hostile = deployment.client_of("hostile").submit(numbered(40), "{{ n }}", model=f"shared:{denied}")
    victim = deployment.client_of("victim").submit(numbered(40), "{{ n }}", model=f"shared:{fine}")
    all_succeeded(victim)
    assert not deployment.lanes.view("shared").parked
    assert {record.state for record in whole(hostile)} == {JobState.FAILED}
    assert deployment.served(denied).requests < 40


def test_an_outage_opens_the_circuit_and_single_probes_close_it(deployment: Cluster) -> None:
    model = deployment.new_model(outages=OUTAGE, latency_ms=10)
    lane = f"sim:{model}"
    deployment.lanes.limit(lane, {"max_concurrency": 1, "min_gap_ms": 250})
    run = deployment.client.submit(numbered(20), "question {{ n }}", model=lane, retry=SOON)
    wait_until(lambda: deployment.lanes.view(lane).circuit == "open")
    assert deployment.logged(Event.CIRCUIT_OPENED, lane=lane)
    deployment.lanes.limit(lane, {"max_concurrency": None, "min_gap_ms": 0})
    assert deployment.served(model).requests == FAILURES_THAT_OPEN
    end_cool_down(deployment, lane)
    wait_until(lambda: deployment.served(model).requests == FAILURES_THAT_OPEN + 1)
    wait_until(lambda: deployment.lanes.view(lane).circuit == "open")
    deployment.provider.change_model(model, outages=())
    assert deployment.served(model).requests == FAILURES_THAT_OPEN + 1
    end_cool_down(deployment, lane)
    all_succeeded(run)
    assert deployment.logged(Event.CIRCUIT_CLOSED, lane=lane)
    assert deployment.lanes.view(lane).circuit == "closed"


def test_few_calls_are_made_into_an_outage_however_many_may_start(deployment: Cluster) -> None:
    model = deployment.new_model(outages=OUTAGE)
    lane = f"sim:{model}"
    deployment.lanes.limit(lane, {"requests_per_minute": 600, "burst_seconds": 0.2})
    run = deployment.client.submit(numbered(200), "question {{ n }}", model=lane, retry=SOON)
    wait_until(lambda: deployment.lanes.view(lane).circuit == "open")
    # Ten a second, failures count that started 50 ms apart, and over HTTP it takes a while to hear of one.
    assert deployment.served(model).requests <= 4 * FAILURES_THAT_OPEN
    status = run.status()
    assert JobState.FAILED not in status.by_state
    run.cancel()
    run.wait(timeout=60.0)
