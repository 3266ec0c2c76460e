"""A paused run starts no call, ends those in flight, and goes on where it stopped; others notice nothing."""

from __future__ import annotations

from fairlane import JobState, RunState
from fairlane.evaluators.builders import llm_judge
from fairlane.store.write.audit import Act, AuditLog, operator
from tests.support.cluster import Cluster, all_succeeded, numbered, whole
from tests.support.wait import wait_until


def test_calls_in_flight_end_and_no_other_starts_until_a_resume(deployment: Cluster) -> None:
    model, judge = (
        deployment.new_model(latency_ms=600),
        deployment.new_model(output="fixed", fixed_text="yes"),
    )
    lane = f"sim:{model}"
    deployment.lanes.limit(lane, {"max_concurrency": 5})
    yes = llm_judge(f"sim:{judge}", "{{ output }}", {"yes": 1, "no": 0})
    run = deployment.client.submit(numbered(40), "question {{ n }}", model=lane, evaluators=[yes])
    wait_until(lambda: deployment.served(model).in_flight == 5)
    run.pause()
    wait_until(lambda: run.status().paused is not None and run.status().in_flight == 0)
    status, called, judged = (
        run.status(),
        deployment.served(model).requests,
        deployment.served(judge).requests,
    )
    assert (status.state, status.by_state.get(JobState.FAILED, 0)) == (RunState.RUNNING, 0)
    assert 5 <= called < 40
    assert status.paused is not None
    assert status.paused.by == operator()
    assert run.why().constraint == "run_paused"
    # Its lanes serve others meanwhile: a whole run passes, and this one has not moved.
    deployment.provider.change_model(model, latency_ms=1)
    all_succeeded(deployment.client.submit(numbered(20), "other {{ n }}", model=lane))
    assert deployment.served(model).requests == called + 20
    assert deployment.served(judge).requests == judged
    assert run.status().jobs_done == status.jobs_done
    run.resume()
    all_succeeded(run)
    assert deployment.served(model).requests == 40 + 20
    shown = [entry for entry in AuditLog(deployment.redis, deployment.keys).since() if entry.what == run.id]
    assert [entry.act for entry in shown] == [Act.SUBMITTED, Act.RUN_PAUSED, Act.RUN_RESUMED]


def test_a_paused_run_can_be_cancelled(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=1)
    run = deployment.client.submit(numbered(300), "question {{ n }}", model=f"sim:{model}", max_concurrent=1)
    run.pause()
    wait_until(lambda: run.status().paused is not None)
    run.cancel()
    whole(run)
    assert run.status().state is RunState.CANCELLED
    assert run.status().paused is None


def test_a_pause_does_not_extend_max_duration(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=1)
    run = deployment.client.submit(
        numbered(300), "question {{ n }}", model=f"sim:{model}", max_concurrent=1, max_duration=1.5
    )
    run.pause()
    wait_until(lambda: run.status().paused is not None)
    whole(run)
    assert run.status().state is RunState.TIMED_OUT
