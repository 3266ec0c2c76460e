"""Why something waits, on a deployment that works: the scheduler's own words, in one call."""

from __future__ import annotations

from tests.support.cluster import Cluster, all_succeeded, numbered
from tests.support.wait import wait_until


def test_a_slow_lane_and_its_run_and_jobs_say_what_holds_them(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=20)
    lane = f"sim:{model}"
    deployment.lanes.limit(lane, {"requests_per_minute": 30})
    run = deployment.client.submit(numbered(40), "question {{ n }}", model=lane)
    wait_until(lambda: run.why().constraint == "requests")
    found = run.why()
    assert "30 requests/min, configured" in found.sentence
    assert found.eta.at_ms is not None
    assert found.eta.at_ms > found.now_ms + 30_000
    last = run.why(39)
    assert (last.constraint, last.lanes[0].lane) == ("requests", lane)
    assert last.position == last.lanes[0].queued
    assert deployment.client.why(lane).lanes[0].queued == last.position
    deployment.lanes.limit(lane, {"requests_per_minute": 60_000})
    all_succeeded(run)
    assert run.why().constraint == "done"
    assert run.why(39).state == "succeeded"


def test_a_paused_lane_says_so_to_a_run_that_waits_for_it(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=20)
    lane = f"sim:{model}"
    deployment.lanes.limit(lane, {"requests_per_minute": 0})
    deployment.lanes.pause(lane)
    run = deployment.client.submit(numbered(3), "question {{ n }}", model=lane)
    wait_until(lambda: run.why(2).position == 3)
    assert (run.why().constraint, run.why().eta.at_ms) == ("paused", None)
    deployment.lanes.resume(lane)
    all_succeeded(run)


def test_why_names_the_other_team_on_a_lane(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=20)
    lane = f"sim:{model}"
    deployment.lanes.limit(lane, {"requests_per_minute": 30})
    small, large = (
        deployment.client_of(team).submit(numbered(20), "question {{ n }}", model=lane)
        for team in ("small", "large")
    )
    wait_until(lambda: {run.why().constraint for run in (small, large)} == {"fairness"})
    assert (small.why().lanes[0].share, large.why().lanes[0].share) == (0.25, 0.75)
    deployment.lanes.limit(lane, {"requests_per_minute": 60_000})
    for run in (small, large):
        all_succeeded(run)
