"""A run's own bounds, kept to on the real stack: how many at once, how fast, how far ahead, for how long,
for how much.
"""

from __future__ import annotations

import pytest

from fairlane import JobState, RetryPolicy, RunState
from fairlane.core.events import Event
from fairlane.evaluators.builders import llm_judge
from tests.support.cluster import Cluster, all_succeeded, numbered, whole
from tests.support.wait import wait_until


def judged(model: str) -> list[object]:
    return [llm_judge(f"sim:{model}", "{{ output }}", {"yes": 1, "no": 0})]


def test_never_more_calls_at_once_than_max_concurrent(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=60)
    run = deployment.client.submit(numbered(30), "{{ n }}", model=f"sim:{model}", max_concurrent=3)
    all_succeeded(run)
    assert deployment.served(model).peak_in_flight == 3


def test_the_active_limit_is_logged_at_run_start(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=1)
    run = deployment.client.submit(numbered(2), "{{ n }}", model=f"sim:{model}", max_concurrent=7)
    all_succeeded(run)
    (shown,) = deployment.logged(Event.RUN_ADMITTED, run=run.id)
    assert shown["max_concurrent"] == 7


def test_a_fixed_task_rate_is_kept(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=1)
    run = deployment.client.submit(numbered(20), "{{ n }}", model=f"sim:{model}", task_rate=20)
    all_succeeded(run)
    status = run.status()
    assert status.finished_ms is not None
    assert status.started_ms is not None
    # Twenty starts are nineteen gaps of 50 ms, and a tenth of a second may be made up for.
    assert status.finished_ms - status.started_ms >= 19 * 50 - 110


def test_a_delay_is_the_least_gap_between_two_starts_and_holds_no_slot(deployment: Cluster) -> None:
    model, other = deployment.new_model(latency_ms=1), deployment.new_model(latency_ms=1)
    run = deployment.client.submit(numbered(6), "{{ n }}", model=f"sim:{model}", delay=0.2)
    all_succeeded(deployment.client.submit(numbered(50), "{{ n }}", model=f"sim:{other}"))
    all_succeeded(run)
    status = run.status()
    assert status.finished_ms is not None
    assert status.started_ms is not None
    assert status.finished_ms - status.started_ms >= 5 * 200


def test_tasks_do_not_run_further_ahead_of_their_evaluations_than_the_bound(deployment: Cluster) -> None:
    tasks, judge = (
        deployment.new_model(latency_ms=1),
        deployment.new_model(output="fixed", fixed_text="yes", latency_ms=1),
    )
    lane = f"sim:{judge}"
    deployment.lanes.configure(lane, None)
    deployment.lanes.pause(lane)
    run = deployment.client.submit(
        numbered(40), "{{ n }}", model=f"sim:{tasks}", evaluators=judged(judge), ahead=5
    )
    wait_until(lambda: deployment.served(tasks).requests >= 5)
    assert deployment.client.submit(numbered(5), "x", model=f"sim:{tasks}").wait(timeout=60.0).progress == 1.0
    assert deployment.served(tasks).requests == 10
    deployment.lanes.resume(lane)
    all_succeeded(run)
    assert deployment.served(tasks).requests == 45


def test_an_eval_starts_the_moment_its_output_exists(deployment: Cluster) -> None:
    tasks, judge = (
        deployment.new_model(latency_ms=400),
        deployment.new_model(output="fixed", fixed_text="yes", latency_ms=1),
    )
    run = deployment.client.submit(
        numbered(3), "{{ n }}", model=f"sim:{tasks}", evaluators=judged(judge), max_concurrent=1
    )
    wait_until(lambda: deployment.served(judge).requests >= 1)
    assert run.status().items_done < 3
    all_succeeded(run)


def test_what_is_unfinished_after_max_duration_is_recorded_as_timed_out_each_item_once(
    deployment: Cluster,
) -> None:
    quick, slow = deployment.new_model(latency_ms=1), deployment.new_model(latency_ms=60_000)
    rows = [{"m": quick}] * 5 + [{"m": slow}] * 5
    run = deployment.client.submit(rows, "question", model="sim:{{ m }}", max_duration=2.0)
    records = whole(run)
    assert run.status().state is RunState.TIMED_OUT
    assert [record.state for record in records] == [JobState.SUCCEEDED] * 5 + [JobState.TIMED_OUT] * 5
    assert sorted(record.item for record in run.stream()) == list(range(10))
    wait_until(lambda: deployment.served(slow).in_flight == 0)


def test_a_budget_of_tokens_stops_a_run_before_it_is_exceeded(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=5)
    run = deployment.client.submit(
        numbered(200),
        "a question of some length {{ n }}",
        model=f"sim:{model}",
        params={"max_tokens": 20},
        budget_tokens=1500,
    )
    records = whole(run)
    status = run.status()
    assert (status.state, status.progress) == (RunState.STOPPED, 1.0)
    assert "budget" in str(status.reason)
    done = [record for record in records if record.state is JobState.SUCCEEDED]
    assert 0 < len(done) < 200
    assert sum(record.usage.total or 0 for record in done) <= 1500
    assert {record.state for record in records} == {JobState.SUCCEEDED, JobState.SKIPPED}


def test_a_budget_counts_answers_that_were_lost(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=5, faults={"reset_after_work": 0.5})
    run = deployment.client.submit(
        numbered(200),
        "a question of some length {{ n }}",
        model=f"sim:{model}",
        params={"max_tokens": 20},
        retry=RetryPolicy(max_attempts=20, initial_delay=0.0),
        budget_tokens=1500,
    )
    whole(run)
    served = deployment.served(model)
    assert run.status().state is RunState.STOPPED
    assert served.errors["reset_after_work"] > 0
    assert served.prompt_tokens + served.completion_tokens <= 1500


@pytest.mark.parametrize(
    ("name", "value"), [("max_concurrent", 0), ("task_rate", -1), ("max_duration", 0), ("budget_tokens", 0)]
)
def test_a_bound_that_is_none_is_refused_by_name(deployment: Cluster, name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        deployment.client.submit([{}], "x", model="sim:none", **{name: value})  # type: ignore[arg-type]
