"""A leading scheduler that dies or falls asleep: a standby leads, and a sleeper that wakes grants nothing."""

from __future__ import annotations

import signal

import pytest

from fairlane import RunState
from fairlane.core.events import Event
from tests.support.cluster import Cluster, all_succeeded, numbered
from tests.support.strict_lane import start_strict_run
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

JOBS = 180


def test_a_standby_takes_over_from_a_killed_leader_and_the_run_goes_on(deployment: Cluster) -> None:
    strict = start_strict_run(deployment, JOBS)
    leader = deployment.leader()
    leader.kill()
    wait_until(lambda: deployment.leader().name != leader.name)
    strict.check()
    # What it had granted and not yet published is granted again: no call was made for it.
    assert strict.served().requests == JOBS
    assert strict.run.status().late_reports == 0


def test_a_paused_leader_is_replaced_and_grants_nothing_once_it_runs_again(deployment: Cluster) -> None:
    strict = start_strict_run(deployment, JOBS)
    sleeper = deployment.leader()
    sleeper.kill(signal.SIGSTOP)
    wait_until(lambda: deployment.leader().name != sleeper.name)  # a standby may still start
    strict.wait_for(JOBS // 2)
    sleeper.kill(signal.SIGCONT)
    strict.check()
    assert strict.served().requests == JOBS
    deployment.wait_logged(Event.LEADER_LOST, process=sleeper.name)
    assert deployment.leader().name != sleeper.name


def test_a_leader_that_is_stopped_releases_its_lease(deployment: Cluster) -> None:
    strict = start_strict_run(deployment, JOBS)
    leader = deployment.leader()
    leader.ask_to_stop()
    assert leader.join(10.0)
    assert leader.returncode == 0
    identity, until_ms = deployment.redis.hmget(deployment.keys.leader, "id", "until_ms")
    assert until_ms == b"0" or identity != leader.name.encode()
    strict.check()
    assert strict.served().requests == JOBS


def test_requests_made_without_a_leader_are_served_by_the_next(deployment: Cluster) -> None:
    under_way = start_strict_run(deployment, JOBS)
    for name in ("scheduler-1", "scheduler-2"):
        deployment.process(name).kill()
        deployment.process(name).join(5.0)
    model = deployment.new_model(latency_ms=20)
    submitted = deployment.client.submit(numbered(20), "question {{ n }}", model=f"sim:{model}")
    under_way.run.cancel()
    assert submitted.status().state is RunState.SUBMITTED
    assert under_way.run.status().state is RunState.RUNNING
    deployment.stack.restart("scheduler-2")
    all_succeeded(submitted)
    assert under_way.run.wait(timeout=60.0).state is RunState.CANCELLED
