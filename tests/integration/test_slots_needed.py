"""A scheduler with real work reports the slots that could be filled: autoscaling follows this number."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import httpx
import pytest

from fairlane.cli.lanes.workers import measure
from fairlane.client.deployment import Deployment
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.wait import wait_until

SLOTS = 5


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One worker of five slots."""
    with cluster(tmp_path_factory.mktemp("small"), workers=1, slots=SLOTS) as made:
        yield made


def announced(deployment: Cluster) -> float | None:
    """`fairlane_slots_needed` as Prometheus would read it; ``None`` before the leader has looked."""
    ready = json.loads((deployment.directory / "data" / "run" / "scheduler-1.ready").read_text())
    page = httpx.get(f"{ready['metrics']}/metrics", timeout=5).text
    found = re.search(r"^fairlane_slots_needed (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else None


def test_too_few_slots_are_reported_and_a_rate_that_is_used_to_the_full_asks_for_none(small: Cluster) -> None:
    free, limited = small.new_model(latency_ms=1000), small.new_model(latency_ms=500)
    small.lanes.limit(f"sim:{limited}", {"requests_per_minute": 120, "exact": 1})
    deployment = Deployment(small.settings, small.redis)
    run = small.client.submit(numbered(80), "question {{ n }}", model=f"sim:{free}")
    wait_until(lambda: (announced(small) or 0) > 2 * SLOTS, 45)
    assert measure(deployment)["slots"] == SLOTS
    all_succeeded(run)

    # 2 a second of half a second each are one at a time, whatever waits.
    run = small.client.submit(numbered(26), "question {{ n }}", model=f"sim:{limited}")
    wait_until(lambda: run.status().jobs_done >= 4, 45)
    needed = measure(deployment)["lanes"]
    assert isinstance(needed, dict)
    assert 1 <= needed[f"sim:{limited}"] <= SLOTS
    wait_until(lambda: 1 <= (announced(small) or 0) <= SLOTS, 45)
    assert not run.status().state.finished
    all_succeeded(run)
    wait_until(lambda: announced(small) == 0, 45)
