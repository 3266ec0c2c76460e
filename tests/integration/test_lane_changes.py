"""An operator's changes to a lane take effect within a second, while its runs go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlane import Run
from fairlane.core.errors import LaneNotFound
from fairlane.core.events import Event
from tests.support.cluster import Cluster, all_succeeded, numbered, whole
from tests.support.wait import wait_until

WITHIN_S = 1.0
MARGIN_S = 1.0
"""What a busy machine may need on top to grant the permits themselves."""
FEW = 5
"""Permits of which the second comes after two seconds at the old rate."""


def under_way(deployment: Cluster, model: str, jobs: int, **limits: float) -> Run:
    """A run of which the lane's limits have let something through."""
    deployment.lanes.limit(f"sim:{model}", limits)
    run = deployment.client.submit(numbered(jobs), "question {{ n }}", model=f"sim:{model}")
    wait_until(lambda: deployment.served(model).completed)
    return run


def permits_since(deployment: Cluster, run: Run, moment: datetime) -> list[dict[str, Any]]:
    """The run's permits that were granted later than that, as the scheduler logged them."""
    lines = [line for line in deployment.logged(Event.ACQUIRED, run=run.id) if stamp(line) > moment]
    return sorted(lines, key=stamp)


def stamp(line: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(line["timestamp"])


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ({"requests_per_minute": 30}, {"requests_per_minute": 60_000}),
        ({"requests_per_minute": 30, "min_gap_ms": 1000}, {"requests_per_minute": None, "min_gap_ms": None}),
    ],
    ids=["raised", "taken away"],
)
def test_a_higher_rate_takes_effect_within_a_second(
    deployment: Cluster, before: dict[str, int], change: dict[str, int | None]
) -> None:
    model = deployment.new_model(latency_ms=20)
    run = under_way(deployment, model, 40, **before)
    changed = datetime.now(UTC)
    deployment.lanes.limit(f"sim:{model}", change)
    all_succeeded(run)
    few = permits_since(deployment, run, changed)[:FEW]
    assert stamp(few[-1]) - changed <= timedelta(seconds=WITHIN_S + MARGIN_S)


def test_a_lowered_rate_takes_effect_within_a_second(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=20)
    run = under_way(deployment, model, 2000, requests_per_minute=1200, burst_seconds=0.2)
    lowered = datetime.now(UTC)
    deployment.lanes.limit(f"sim:{model}", {"requests_per_minute": 60})
    elsewhere = deployment.new_model(latency_ms=1500)
    all_succeeded(deployment.client.submit(numbered(1), "meanwhile", model=f"sim:{elsewhere}"))
    soon = lowered + timedelta(seconds=1.5)
    # At the old rate it were thirty.
    assert sum(stamp(line) <= soon for line in permits_since(deployment, run, lowered)) <= 12
    run.cancel()
    whole(run)


def test_a_narrowed_window_takes_effect_within_a_second(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=100)
    run = under_way(deployment, model, 300, max_concurrency=20)
    deployment.lanes.limit(f"sim:{model}", {"max_concurrency": 2})
    narrowed = datetime.now(UTC)
    wait_until(lambda: deployment.served(model).in_flight <= 2)
    wait_until(lambda: len(permits_since(deployment, run, narrowed + timedelta(seconds=WITHIN_S))) >= 10)
    widened = datetime.now(UTC)
    deployment.lanes.limit(f"sim:{model}", {"max_concurrency": 40})
    wait_until(lambda: deployment.served(model).in_flight > 20)
    all_succeeded(run)

    since = permits_since(deployment, run, narrowed + timedelta(seconds=WITHIN_S))
    assert {line["active_slots"] for line in since if stamp(line) < widened} <= {1, 2}
    wide = [stamp(line) for line in since if line["active_slots"] > 20]
    assert min(wide) - widened <= timedelta(seconds=WITHIN_S + MARGIN_S)


def test_nothing_starts_on_a_paused_lane_until_it_is_resumed(deployment: Cluster) -> None:
    model, elsewhere = deployment.new_model(latency_ms=50), deployment.new_model(latency_ms=300)
    run = under_way(deployment, model, 100, max_concurrency=5)
    deployment.lanes.pause(f"sim:{model}")
    paused = datetime.now(UTC)
    wait_until(lambda: deployment.lanes.view(f"sim:{model}").in_flight == 0)
    before = deployment.served(model).requests
    all_succeeded(deployment.client.submit(numbered(3), "meanwhile {{ n }}", model=f"sim:{elsewhere}"))
    assert deployment.served(model).requests == before < 100
    assert deployment.lanes.view(f"sim:{model}").paused
    assert not permits_since(deployment, run, paused + timedelta(seconds=WITHIN_S))
    resumed = datetime.now(UTC)
    deployment.lanes.resume(f"sim:{model}")
    all_succeeded(run)
    first = permits_since(deployment, run, resumed)[0]
    assert stamp(first) - resumed <= timedelta(seconds=WITHIN_S)


def test_a_lane_that_does_not_exist_can_be_neither_paused_nor_resumed(deployment: Cluster) -> None:
    for change in (deployment.lanes.pause, deployment.lanes.resume, deployment.lanes.view):
        with pytest.raises(LaneNotFound, match="no lane 'sim:nobody'"):
            change("sim:nobody")
