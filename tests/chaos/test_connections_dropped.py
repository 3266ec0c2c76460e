"""Connections to Redis that are cut again and again, and scripts it forgets: no call is made twice."""

from __future__ import annotations

from functools import partial

import pytest

from fairlane import JobState, Run
from fairlane.evaluators.builders import llm_judge
from tests.support.cluster import Cluster, numbered, whole
from tests.support.strict_lane import start_strict_run
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

JOBS = 120


def has_done(run: Run, jobs: int) -> bool:
    return run.status().jobs_done >= jobs


def test_repeatedly_dropped_connections_repeat_no_call(deployment: Cluster) -> None:
    task = deployment.new_model(latency_ms=150)
    judge = deployment.new_model(latency_ms=50, output="fixed", fixed_text="yes")
    deployment.lanes.limit(f"sim:{task}", {"max_concurrency": 15})
    run = deployment.client.submit(
        numbered(JOBS),
        "question {{ n }}",
        model=f"sim:{task}",
        evaluators=[llm_judge(f"sim:{judge}", "{{ output }}", {"yes": 1})],
    )
    for done in range(10, 2 * JOBS, 30):
        wait_until(partial(has_done, run, done))
        for kind in ("normal", "pubsub"):
            deployment.redis.client_kill_filter(_type=kind, skipme=True)
    records = whole(run)
    assert {(record.state, record.scores["llm_judge"]) for record in records} == {(JobState.SUCCEEDED, 1.0)}
    assert not deployment.stack.poll()
    assert (deployment.served(task).duplicates, deployment.served(judge).duplicates) == (0, 0)


def test_scripts_that_the_server_forgot_are_sent_again(deployment: Cluster) -> None:
    strict = start_strict_run(deployment, JOBS)
    deployment.redis.script_flush()
    strict.check()
    assert strict.served().requests == JOBS
