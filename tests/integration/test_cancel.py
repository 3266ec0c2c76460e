"""Cancelling breaks calls off on every machine at once, frees their places, and leaves a record an item."""

from __future__ import annotations

from collections import Counter

from fairlane import JobState, RunState
from tests.support.cluster import Cluster, all_succeeded, numbered, whole
from tests.support.wait import wait_until

WITHIN_S = 2.0
LONG_MS = 30_000


def test_calls_in_flight_end_on_every_worker_within_two_seconds(deployment: Cluster) -> None:
    long, quick = deployment.new_model(latency_ms=LONG_MS), deployment.new_model(latency_ms=20)
    rows = [*numbered(5, model=quick), *numbered(45, model=long)]
    run = deployment.client.submit(rows, "question {{ n }}", model="sim:{{ model }}")
    wait_until(lambda: deployment.served(long).in_flight == 45 and run.status().jobs_done == 5)
    assert set(deployment.held()) == {"worker-1", "worker-2"}
    run.cancel()
    wait_until(lambda: deployment.served(long).in_flight == 0, timeout=WITHIN_S)
    served = deployment.served(long)
    assert (served.requests, served.abandoned, served.completed) == (45, 45, 0)
    records = whole(run)
    assert run.status().state is RunState.CANCELLED
    assert Counter(record.state for record in records) == {JobState.SUCCEEDED: 5, JobState.CANCELLED: 45}
    assert sorted(record.item for record in run.stream()) == list(range(50))


def test_a_stream_that_was_open_yields_every_item_once(deployment: Cluster) -> None:
    long, quick = deployment.new_model(latency_ms=LONG_MS), deployment.new_model(latency_ms=20)
    rows = [*numbered(10, model=long), *numbered(10, model=quick)]
    run = deployment.client.submit(rows, "question {{ n }}", model="sim:{{ model }}")
    yielded = []
    for record in run.stream():
        yielded.append(record.item)
        if len(yielded) == 10:
            run.cancel()
    assert sorted(yielded[:10]) == list(range(10, 20))
    assert yielded[10:] == list(range(10))


def test_a_cancelled_run_gives_its_places_to_others(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=LONG_MS)
    lane = f"sim:{model}"
    deployment.lanes.limit(lane, {"max_concurrency": 5})
    first = deployment.client.submit(numbered(30), "first {{ n }}", model=lane)
    wait_until(lambda: deployment.served(model).in_flight == 5)
    deployment.provider.change_model(model, latency_ms=20)
    second = deployment.client.submit(numbered(10), "second {{ n }}", model=lane)
    first.cancel()
    all_succeeded(second)
    assert deployment.lanes.view(lane).in_flight == 0
    assert {record.state for record in whole(first)} == {JobState.CANCELLED}


def test_a_run_that_waits_is_cancelled_without_a_call(deployment: Cluster) -> None:
    model = deployment.new_model()
    deployment.lanes.limit(f"sim:{model}", {})
    deployment.lanes.pause(f"sim:{model}")
    run = deployment.client.submit(numbered(300), "question {{ n }}", model=f"sim:{model}")
    wait_until(lambda: run.status().state is RunState.RUNNING)
    run.cancel()
    assert {record.state for record in whole(run)} == {JobState.CANCELLED}
    deployment.lanes.resume(f"sim:{model}")
    again = deployment.client.submit(numbered(3), "question {{ n }}", model=f"sim:{model}")
    all_succeeded(again)
    assert deployment.served(model).requests == 3


def test_a_run_that_is_over_stays_as_it_is(deployment: Cluster) -> None:
    run = deployment.client.submit(
        numbered(3), "question {{ n }}", model=f"sim:{deployment.new_model(latency_ms=10)}"
    )
    before = all_succeeded(run)
    run.cancel()
    run.cancel()
    later = deployment.client.submit(numbered(1), "later", model=f"sim:{deployment.new_model(latency_ms=10)}")
    all_succeeded(later)
    assert run.status().state is RunState.COMPLETED
    assert whole(run) == before
