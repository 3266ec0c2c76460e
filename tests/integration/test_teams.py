"""Teams share a lane by their weights while they compete, and a lone one has all of it."""

from __future__ import annotations

from datetime import datetime

import pytest

from fairlane.events import Event
from fairlane.handle import Run
from tests.support.cluster import Cluster, all_succeeded, numbered
from tests.support.wait import wait_until

JOBS = 90


def competing(deployment: Cluster, model: str, *teams: str) -> list[Run]:
    """A run of each team, all of them queued before the lane opens."""
    lane = f"sim:{model}"
    deployment.lanes.limit(lane, {"requests_per_minute": 3600, "burst_seconds": 0.2})
    deployment.lanes.pause(lane)
    runs = [
        deployment.client_of(team).submit(numbered(JOBS), f"{team} {{{{ n }}}}", model=lane) for team in teams
    ]
    wait_until(lambda: all(run.status().lanes for run in runs))
    deployment.lanes.resume(lane)
    return runs


def granted(deployment: Cluster, *runs: Run) -> list[str]:
    """Whose permits were granted one after another, as the scheduler logged it, once all runs are over."""
    for run in runs:
        all_succeeded(run)
    lines = [line for run in runs for line in deployment.logged(Event.ACQUIRED, run=run.id)]
    return [line["run"] for line in sorted(lines, key=lambda line: line["timestamp"])]


def while_both_wait(order: list[str], first: Run, last: Run) -> list[str]:
    """The stretch from the first permit of one run to the last of another."""
    return order[order.index(first.id) : len(order) - order[::-1].index(last.id)]


def test_teams_share_a_saturated_lane_by_weight(deployment: Cluster) -> None:
    small, large = competing(deployment, deployment.new_model(latency_ms=50), "small", "large")
    shared = while_both_wait(granted(deployment, small, large), large, large)
    assert shared.count(large.id) == JOBS
    assert shared.count(small.id) == pytest.approx(JOBS / 3, abs=3)


def test_teams_without_a_weight_share_alike(deployment: Cluster) -> None:
    one, other = competing(deployment, deployment.new_model(latency_ms=50), "one", "other")
    shared = while_both_wait(granted(deployment, one, other), one, one)
    assert shared.count(other.id) == pytest.approx(JOBS, abs=3)


def test_a_team_that_comes_later_gets_its_share_at_once_and_no_more(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=50)
    (early,) = competing(deployment, model, "one")
    wait_until(lambda: early.status().jobs_done >= JOBS // 4)
    late = deployment.client_of("other").submit(numbered(JOBS), "late {{ n }}", model=f"sim:{model}")
    order = granted(deployment, early, late)
    queued = min(line["timestamp"] for line in deployment.logged(Event.QUEUEING, run=late.id))
    before = [line for line in deployment.logged(Event.ACQUIRED, run=early.id) if line["timestamp"] < queued]
    shared = while_both_wait(order, late, early)
    # It is served at once; what it had not claimed before is no credit.
    assert order.index(late.id) - len(before) <= 3
    assert shared.count(late.id) == pytest.approx(shared.count(early.id), abs=3)


def test_within_a_team_the_run_of_higher_priority_goes_first(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=50)
    (usual,) = competing(deployment, model, "one")
    urgent = deployment.client_of("one").submit(
        numbered(20), "urgent {{ n }}", model=f"sim:{model}", priority=10
    )
    all_succeeded(urgent)
    assert usual.status().jobs_done < JOBS * 0.75
    all_succeeded(usual)


def test_a_team_at_its_most_waits_and_says_so_while_others_go_on(deployment: Cluster) -> None:
    bounded, free = competing(deployment, deployment.new_model(latency_ms=50), "bounded", "other")
    wait_until(lambda: bounded.why().constraint == "team_share")
    assert "has 20 % of" in bounded.why().sentence
    order = granted(deployment, bounded, free)
    assert order[-1] == bounded.id
    lines = deployment.logged(Event.ACQUIRED, run=bounded.id)
    times = [datetime.fromisoformat(line["timestamp"]).timestamp() for line in lines]
    # A fifth of 60 a second, and what may be made up for of a second.
    most = 12 * (times[-1] - times[0] + 1) * 1.1 + 1
    assert most >= JOBS
