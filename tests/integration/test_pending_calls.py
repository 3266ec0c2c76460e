"""Predictions that go on at their provider: few slots carry many, and each is begun and paid for once."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from fairlane import JobState, RetryPolicy, Run, RunState
from fairlane.store.write.leases import Leases
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered, whole
from tests.support.wait import wait_until

SLOTS, WORKERS = 1, 2
MANY = 50
LANE = "rep"

CONFIG = """
[connections.rep]
protocol = "replicate"
base_url = "{base_url}"
[lanes.rep]
requests_per_minute = 0
"""
GRACE_S = 0.5


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers of one slot."""
    worker = {"shutdown_grace_seconds": GRACE_S}
    with cluster(
        tmp_path_factory.mktemp("small"), config=CONFIG, worker=worker, workers=WORKERS, slots=SLOTS
    ) as made:
        yield made


@pytest.fixture
def deployment(small: Cluster) -> Iterator[Cluster]:
    """It, with the provider's books empty, and afterwards with every worker alive."""
    small.provider.reset()
    small.begin()
    yield small
    for name, process in small.stack.processes.items():
        if not process.is_running:
            small.stack.restart(name)
    small.wait_ready(WORKERS)


def begun(deployment: Cluster) -> int:
    return deployment.provider.stats().predictions.begun


def submitted(deployment: Cluster, count: int, latency_ms: float) -> tuple[str, Run]:
    model = deployment.new_model(latency_ms=latency_ms)
    run = deployment.client.submit(numbered(count), "question {{ n }}", model=f"{LANE}:{model}")
    return model, run


def wait_until_all_wait(deployment: Cluster, count: int) -> None:
    """Every job's call is made by the provider, and its handle is kept with the job."""
    wait_until(lambda: int(deployment.redis.hget(deployment.keys.lane(LANE), "pending") or 0) == count)


def test_few_slots_carry_many_predictions_at_once(deployment: Cluster) -> None:
    model, run = submitted(deployment, MANY, latency_ms=6000)
    wait_until_all_wait(deployment, MANY)
    wait_until(lambda: sum(beat.info.pending for beat in deployment.beats()) == MANY)
    assert all(beat.info.busy == 0 for beat in deployment.beats())
    all_succeeded(run)
    served = deployment.served(model)
    assert (served.peak_in_flight, served.admitted, begun(deployment)) == (MANY, MANY, MANY)
    assert deployment.lanes.on_slots([LANE]) == {LANE: 0}


@pytest.mark.chaos
def test_predictions_of_a_worker_that_is_killed_are_continued(deployment: Cluster) -> None:
    count = 30
    model, run = submitted(deployment, count, latency_ms=5000)
    wait_until_all_wait(deployment, count)
    victim = max(deployment.held())
    deployment.process(victim).kill()
    records = all_succeeded(run)
    assert {record.attempts for record in records} == {1, 2}
    served = deployment.served(model)
    assert (begun(deployment), served.completed, served.duplicates) == (count, count, 0)
    assert deployment.provider.stats().predictions.cancelled == 0


@pytest.mark.chaos
def test_a_worker_that_is_killed_while_it_begins_some_pays_twice_for_its_slots_at_most(
    deployment: Cluster,
) -> None:
    count = 60
    model, run = submitted(deployment, count, latency_ms=2000)
    victim = wait_until(lambda: begun(deployment) > 5 and max(deployment.held(), default=""))
    deployment.process(victim).kill()
    all_succeeded(run)
    assert count <= begun(deployment) <= count + SLOTS
    assert deployment.served(model).completed == begun(deployment)


def test_a_worker_that_stops_hands_its_predictions_over(deployment: Cluster) -> None:
    count = 20
    _, run = submitted(deployment, count, latency_ms=5000)
    wait_until_all_wait(deployment, count)
    stopping = deployment.process(max(deployment.held()))
    stopping.kill(signal.SIGTERM)
    records = all_succeeded(run)
    assert {record.attempts for record in records} == {1}
    assert (begun(deployment), deployment.provider.stats().predictions.cancelled) == (count, 0)


def test_predictions_of_a_cancelled_run_are_cancelled(deployment: Cluster) -> None:
    count = 10
    _, run = submitted(deployment, count, latency_ms=20_000)
    wait_until_all_wait(deployment, count)
    run.cancel()
    records = whole(run)
    assert run.status().state is RunState.CANCELLED
    assert {record.state for record in records} == {JobState.CANCELLED}
    wait_until(lambda: deployment.provider.stats().predictions.cancelled == count)
    assert Leases(deployment.redis, deployment.keys).count() == 0


def test_a_prediction_that_takes_too_long_is_cancelled_and_fails_its_attempt(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=20_000)
    run = deployment.client.submit(
        numbered(2),
        "question {{ n }}",
        model=f"{LANE}:{model}",
        timeout=1.0,
        retry=RetryPolicy(max_attempts=1),
    )
    records = whole(run)
    assert {record.state for record in records} == {JobState.FAILED}
    assert all("within 1 s" in str(record.error) for record in records)
    wait_until(lambda: deployment.provider.stats().predictions.cancelled == 2)
