"""A model that rejects a run's first calls alike costs a few calls: the rest fail uncalled, or are held."""

from __future__ import annotations

from fairlane import JobState, RunState
from fairlane.core.events import Event
from fairlane.store.rejections import ENOUGH_REFUSALS
from tests.support.cluster import Cluster, all_succeeded, numbered, whole
from tests.support.wait import wait_until

ROWS = 500
IN_FLIGHT = 20


def test_a_model_that_does_not_exist_costs_a_few_calls_and_the_other_is_not_affected(
    deployment: Cluster,
) -> None:
    real, wrong = deployment.new_model(latency_ms=1), deployment.new_model(status_always=404, latency_ms=5)
    deployment.lanes.limit(f"sim:{wrong}", {"max_concurrency": IN_FLIGHT})
    run = deployment.client.submit(numbered(ROWS), "{{ n }}", models=[f"sim:{real}", f"sim:{wrong}"])
    records = whole(run)
    of_wrong = [record for record in records if record.model == f"sim:{wrong}"]
    assert {record.state for record in records if record.model == f"sim:{real}"} == {JobState.SUCCEEDED}
    assert {record.state for record in of_wrong} == {JobState.FAILED}
    assert all(f"{wrong} is configured to answer 404." in (record.error or "") for record in of_wrong)
    called = deployment.served(wrong).requests
    assert ENOUGH_REFUSALS <= called <= ENOUGH_REFUSALS + IN_FLIGHT
    assert all((record.error or "").startswith("no more calls: ") for record in of_wrong)
    assert sum(record.attempts for record in of_wrong) == called
    assert [each.lane for each in run.status().rejections] == [f"sim:{wrong}"]
    assert deployment.logged(Event.JOBS_FAILED_UNCALLED, run=run.id)


def test_a_held_model_is_tried_again_when_the_run_is_resumed(deployment: Cluster) -> None:
    model = deployment.new_model(status_always=422, latency_ms=5)
    lane = f"sim:{model}"
    deployment.lanes.limit(lane, {"max_concurrency": 1})
    run = deployment.client.submit(numbered(30), "{{ n }}", model=lane, on_refusal="hold")
    wait_until(lambda: run.why().constraint == "request_refused")
    assert f"{model} is configured to answer 422." in run.why().sentence
    status = run.status()
    assert (status.state, status.jobs_done) == (RunState.RUNNING, ENOUGH_REFUSALS)
    wait_until(lambda: deployment.logged(Event.RUN_HELD, run=run.id))
    (held,) = deployment.logged(Event.RUN_HELD, run=run.id)
    assert (held["lane"], held["level"]) == (lane, "warning")
    assert "is configured to answer 422." in held["reason"]
    assert run.wait(until_held=True).state is RunState.RUNNING
    run.resume()
    wait_until(lambda: run.status().jobs_done == 2 * ENOUGH_REFUSALS)
    wait_until(lambda: run.why().constraint == "request_refused")
    assert deployment.served(model).requests == 2 * ENOUGH_REFUSALS
    deployment.provider.change_model(model, status_always=None)
    run.resume()
    records = whole(run)
    assert sum(record.state is JobState.SUCCEEDED for record in records) == 20
    assert run.status().rejections == ()
    all_succeeded(deployment.client.submit(numbered(3), "{{ n }}", model=lane))
