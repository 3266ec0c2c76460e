"""A Redis that hangs, drops connections or forgets its scripts: nothing is called twice, nothing sticks."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from fairlane import JobState
from fairlane.evaluators import llm_judge
from fairlane.events import Event
from fairlane.testing import SimulatedModel
from tests.support.cluster import SCHEDULER, all_succeeded, cluster, numbered, whole
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

JOBS = 120
MODELS = {
    "task": SimulatedModel(latency_ms=150),
    "judge": SimulatedModel(latency_ms=50, output="fixed", fixed_text="yes"),
}
LANES = '[lanes."sim:task"]\nrequests_per_minute = 2400\nburst_seconds = 0.5\n[lanes."sim:judge"]\n'
JUDGE = llm_judge("sim:judge", "{{ output }}", {"yes": 1})


def test_a_redis_that_hangs_past_every_lease_costs_nothing_but_time(tmp_path: Path) -> None:
    with cluster(tmp_path, MODELS, config=LANES) as deployment:
        server = deployment.process("redis")
        run = deployment.client.submit(numbered(JOBS), "question {{ n }}", model="sim:task")
        wait_until(lambda: run.status().jobs_done >= 30)
        server.kill(signal.SIGSTOP)
        silent_until = time.monotonic() + SCHEDULER["lease_seconds"] + 0.5
        wait_until(lambda: time.monotonic() >= silent_until)
        server.kill(signal.SIGCONT)
        records = all_succeeded(run)
        assert {record.attempts for record in records} == {1}
        assert deployment.served("task").requests == JOBS
        assert not deployment.logged(Event.LEASE_RECOVERED)


def test_connections_that_are_dropped_again_and_again_make_no_call_twice(tmp_path: Path) -> None:
    with cluster(tmp_path, MODELS, config=LANES) as deployment:
        run = deployment.client.submit(
            numbered(JOBS), "question {{ n }}", model="sim:task", evaluators=[JUDGE]
        )
        for done in range(10, 2 * JOBS, 20):
            wait_until(lambda done=done: run.status().jobs_done >= done, timeout=30.0)
            for kind in ("normal", "pubsub"):
                deployment.redis.client_kill_filter(_type=kind, skipme=True)
        records = whole(run)
        assert {record.state for record in records} == {JobState.SUCCEEDED}
        assert {record.scores["llm_judge"] for record in records} == {1.0}
        assert not deployment.stack.poll()
        assert (deployment.served("task").duplicates, deployment.served("judge").duplicates) == (0, 0)


def test_scripts_that_the_server_forgot_are_sent_again(tmp_path: Path) -> None:
    with cluster(tmp_path, MODELS, config=LANES) as deployment:
        run = deployment.client.submit(numbered(JOBS), "question {{ n }}", model="sim:task")
        wait_until(lambda: run.status().jobs_done >= 30)
        deployment.redis.script_flush()
        all_succeeded(run)
        assert deployment.served("task").requests == JOBS
