"""A lane that is throttled, blocked, parked or paused slows no other, not even inside one run."""

from __future__ import annotations

from fairlane import Run
from fairlane.evaluators.builders import llm_judge
from tests.support.cluster import Cluster, all_succeeded, numbered, whole
from tests.support.wait import wait_until

CRAWL = {"requests_per_minute": 60, "burst_seconds": 1.0}
FEW = 20
"""What a lane of one a second does while the other one runs, on however slow a machine, and then some."""


def cancelled(run: Run) -> None:
    run.cancel()
    whole(run)


def test_a_throttled_lane_slows_no_other_inside_a_run(deployment: Cluster) -> None:
    fast, slow = deployment.new_model(latency_ms=100), deployment.new_model(latency_ms=100)
    deployment.lanes.limit(f"sim:{slow}", CRAWL)
    # The slow ones come first, so that a scheduler that works in order gets stuck.
    rows = [*numbered(60, lane=slow), *numbered(200, lane=fast)]
    run = deployment.client.submit(rows, "question {{ n }}", model="sim:{{ lane }}")
    wait_until(lambda: deployment.served(fast).completed == 200)
    assert deployment.served(slow).requests <= FEW
    lanes = {each.lane: each for each in run.status().lanes}
    assert lanes[f"sim:{slow}"].known == 60
    cancelled(run)


def test_a_throttled_judge_does_not_hold_up_the_tasks_of_its_run(deployment: Cluster) -> None:
    task, judge = (
        deployment.new_model(latency_ms=100),
        deployment.new_model(latency_ms=50, output="fixed", fixed_text="yes"),
    )
    deployment.lanes.limit(f"sim:{judge}", CRAWL)
    run = deployment.client.submit(
        numbered(150),
        "question {{ n }}",
        model=f"sim:{task}",
        evaluators=[llm_judge(f"sim:{judge}", "Is this good? {{ output }}", {"yes": 1, "no": 0})],
        ahead=0,
    )
    wait_until(lambda: deployment.served(task).completed == 150)
    assert 1 <= deployment.served(judge).requests <= FEW
    cancelled(run)


def test_a_lane_that_meets_429s_only_slows_no_other(deployment: Cluster) -> None:
    refused, fine = deployment.new_model(status_always=429), deployment.new_model(latency_ms=50)
    stuck = deployment.client.submit(numbered(40), "question {{ n }}", model=f"sim:{refused}")
    wait_until(lambda: deployment.served(refused).requests)
    run = deployment.client.submit(numbered(200), "question {{ n }}", model=f"sim:{fine}")
    all_succeeded(run)
    assert stuck.status().jobs_done == 0
    assert deployment.served(refused).requests < 200
    cancelled(stuck)


def test_a_paused_lane_slows_no_other_inside_a_run(deployment: Cluster) -> None:
    paused, fine = deployment.new_model(), deployment.new_model(latency_ms=50)
    deployment.lanes.limit(f"sim:{paused}", {})
    deployment.lanes.pause(f"sim:{paused}")
    rows = [*numbered(50, lane=paused), *numbered(50, lane=fine)]
    run = deployment.client.submit(rows, "question {{ n }}", model="sim:{{ lane }}")
    wait_until(lambda: deployment.served(fine).completed == 50)
    assert deployment.served(paused).requests == 0
    deployment.lanes.resume(f"sim:{paused}")
    all_succeeded(run)


def test_a_long_run_leaves_room_for_a_short_one_that_comes_later(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=50)
    deployment.lanes.limit(f"sim:{model}", {"requests_per_minute": 1800, "burst_seconds": 0.5})
    long = deployment.client.submit(numbered(2000), "long {{ n }}", model=f"sim:{model}")
    wait_until(lambda: long.status().jobs_done >= 10)
    short = deployment.client.submit(numbered(20), "short {{ n }}", model=f"sim:{model}")
    all_succeeded(short)
    assert long.status().jobs_done < 500
    cancelled(long)
