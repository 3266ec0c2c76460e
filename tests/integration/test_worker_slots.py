"""Slots are for calls: none waits for a rate, and no more is handed over than slots are free."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.model.lane import queue_name
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered, whole
from tests.support.wait import wait_until

SLOTS = 4


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One worker with four slots."""
    with cluster(tmp_path_factory.mktemp("narrow"), workers=1, slots=SLOTS) as made:
        yield made


def occupied(deployment: Cluster) -> tuple[int, int]:
    """At one moment: messages that wait at the broker plus attempts claimed, and permits out."""
    keys = deployment.keys
    pipeline = deployment.redis.pipeline(transaction=True)
    for lane in deployment.lanes.names():
        pipeline.llen(queue_name(lane))
    pipeline.hvals(keys.leased)
    *waiting, leased = pipeline.execute()
    claimed = sum(b'"worker"' in lease for lease in leased)
    return sum(waiting) + claimed, len(leased)


def test_a_lane_that_waits_for_its_rate_holds_no_slot_and_no_queue_grows(narrow: Cluster) -> None:
    slow, free = narrow.new_model(latency_ms=50), narrow.new_model(latency_ms=80)
    narrow.lanes.limit(f"sim:{slow}", {"requests_per_minute": 60, "burst_seconds": 1.0})
    rows = [*numbered(12, lane=slow), *numbered(100, lane=free)]
    run = narrow.client.submit(rows, "question {{ n }}", model="sim:{{ lane }}")
    seen: list[tuple[int, int]] = []

    def free_lane_is_done() -> bool:
        seen.append(occupied(narrow))
        return narrow.served(free).completed == 100

    wait_until(free_lane_is_done, interval=0.005)
    assert narrow.served(slow).requests < 12
    assert narrow.served(free).peak_in_flight == SLOTS
    assert max(handed_over for handed_over, _ in seen) <= SLOTS
    assert max(permits for _, permits in seen) <= SLOTS
    run.cancel()
    whole(run)


def test_all_lanes_together_stay_below_the_global_cap(tmp_path: Path) -> None:
    most = 6
    with cluster(tmp_path, scheduler={"max_in_flight": most}, workers=1, slots=10) as deployment:
        lanes = [deployment.new_model(latency_ms=100) for _ in range(3)]
        rows = [{"n": n, "lane": lanes[n % 3]} for n in range(90)]
        run = deployment.client.submit(rows, "question {{ n }}", model="sim:{{ lane }}")
        together: list[int] = []

        def is_over() -> bool:
            together.append(deployment.redis.zcard(deployment.keys.leases))
            return run.status().state.finished

        wait_until(is_over, interval=0.005)
        whole(run)
        # The cap is used to the full, and no lane was left out.
        assert max(together) == most
        assert all(deployment.served(lane).completed == 30 for lane in lanes)


def test_every_slot_is_used_by_a_lane_that_is_alone(narrow: Cluster) -> None:
    model = narrow.new_model(latency_ms=80)
    run = narrow.client.submit(numbered(40), "question {{ n }}", model=f"sim:{model}")
    all_succeeded(run)
    assert narrow.served(model).peak_in_flight == SLOTS
