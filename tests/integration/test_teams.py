"""Teams share a lane by their weights while they compete, and a lone one has all of it."""

from __future__ import annotations

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


def test_teams_share_a_saturated_lane_by_weight(deployment: Cluster) -> None:
    small, large = competing(deployment, deployment.new_model(latency_ms=50), "small", "large")
    wait_until(lambda: large.status().jobs_done == JOBS, timeout=30.0)
    assert JOBS / 3 * 0.7 <= small.status().jobs_done <= JOBS / 3 * 1.4
    all_succeeded(small)


def test_teams_without_a_weight_share_alike(deployment: Cluster) -> None:
    one, other = competing(deployment, deployment.new_model(latency_ms=50), "one", "other")
    wait_until(lambda: one.status().jobs_done == JOBS, timeout=30.0)
    assert other.status().jobs_done >= JOBS * 0.85
    all_succeeded(other)


def test_a_team_that_comes_later_gets_its_share_at_once_and_no_more(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=50)
    (early,) = competing(deployment, model, "one")
    wait_until(lambda: early.status().jobs_done >= JOBS // 4)
    late = deployment.client_of("other").submit(numbered(JOBS), "late {{ n }}", model=f"sim:{model}")
    wait_until(lambda: late.status().jobs_done)
    left = JOBS - early.status().jobs_done
    wait_until(lambda: early.status().jobs_done == JOBS, timeout=30.0)
    # What it had not claimed before is no credit: it has done as much as the other one since, not more.
    assert left * 0.6 <= late.status().jobs_done <= left * 1.4 + 1
    all_succeeded(late)


def test_within_a_team_the_run_of_higher_priority_goes_first(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=50)
    (usual,) = competing(deployment, model, "one")
    urgent = deployment.client_of("one").submit(
        numbered(20), "urgent {{ n }}", model=f"sim:{model}", priority=10
    )
    all_succeeded(urgent)
    assert usual.status().jobs_done < JOBS * 0.75
    all_succeeded(usual)
