"""A worker that sleeps past its lease changes nothing when it wakes; its late reports are counted."""

from __future__ import annotations

import signal

import pytest

from fairlane.core.events import Event
from tests.support.cluster import Cluster
from tests.support.strict_lane import start_strict_run
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

JOBS = 150
LATENCY_MS = 400


def test_late_reports_of_a_paused_worker_are_counted_and_change_nothing(deployment: Cluster) -> None:
    strict = start_strict_run(deployment, JOBS, latency_ms=LATENCY_MS)
    sleeper, slept_on = wait_until(lambda: _asleep_over_calls(deployment))
    wait_until(lambda: sleeper not in deployment.held())
    assert strict.run.status().late_reports == 0
    deployment.process(sleeper).kill(signal.SIGCONT)
    late = wait_until(lambda: strict.run.status().late_reports)
    strict.check()
    assert 1 <= late <= slept_on
    assert deployment.logged(Event.LATE_REPORT, process=sleeper)
    # Each of its calls was made twice, by it and by whoever got the job after it; no other was.
    assert JOBS < strict.served().requests <= JOBS + slept_on


def test_a_run_completes_although_all_its_workers_were_paused(deployment: Cluster) -> None:
    strict = start_strict_run(deployment, JOBS, latency_ms=LATENCY_MS)
    workers = [name for name in deployment.stack.processes if name.startswith("worker")]
    for name in workers:
        deployment.process(name).kill(signal.SIGSTOP)
    wait_until(lambda: not deployment.beats())
    for name in workers:
        deployment.process(name).kill(signal.SIGCONT)
    records = strict.check()
    assert {record.attempts for record in records} == {1, 2}


def _asleep_over_calls(deployment: Cluster) -> tuple[str, int] | None:
    """A worker that was stopped while it had calls, and how many; ``None`` where it had just ended them."""
    held = deployment.held()
    if not held:
        return None
    sleeper = max(held, key=lambda name: held[name])
    deployment.process(sleeper).kill(signal.SIGSTOP)
    if slept_on := deployment.held().get(sleeper):
        return sleeper, slept_on
    deployment.process(sleeper).kill(signal.SIGCONT)
    return None
