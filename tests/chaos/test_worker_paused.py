"""A worker that sleeps past its lease changes nothing when it wakes; its late reports are counted."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from fairlane.events import Event
from fairlane.testing import SimulatedModel
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

SLOTS = 10
MODELS = {"calm": SimulatedModel(latency_ms=400)}


def pause_one_in_mid_call(deployment: Cluster) -> tuple[str, int]:
    """SIGSTOP the worker that holds most; its name, and how many attempts it sleeps on."""
    held = wait_until(deployment.held)
    sleeper = max(held, key=lambda name: held[name])
    deployment.process(sleeper).kill(signal.SIGSTOP)
    return sleeper, deployment.held()[sleeper]


def test_late_reports_of_a_paused_worker_are_counted_and_change_nothing(tmp_path: Path) -> None:
    with cluster(tmp_path, MODELS, slots=SLOTS) as deployment:
        run = deployment.client.submit(numbered(120), "question {{ n }}", model="sim:calm")
        wait_until(lambda: run.status().jobs_done >= 30)
        sleeper, slept_on = pause_one_in_mid_call(deployment)
        wait_until(lambda: sleeper not in deployment.held())
        before = run.status()
        assert before.late_reports == 0
        deployment.process(sleeper).kill(signal.SIGCONT)
        late = wait_until(lambda: run.status().late_reports)
        records = all_succeeded(run)
        assert 1 <= late <= slept_on
        assert deployment.logged(Event.LATE_REPORT, process=sleeper)
        assert len(records) == 120
        # Each of its calls was made twice, by it and by whoever got the job after it; no other was.
        assert deployment.served("calm").requests <= 120 + slept_on


def test_a_worker_that_wakes_serves_again(tmp_path: Path) -> None:
    with cluster(tmp_path, MODELS, workers=1, slots=SLOTS) as deployment:
        run = deployment.client.submit(numbered(60), "question {{ n }}", model="sim:calm")
        wait_until(lambda: run.status().jobs_done >= 10)
        sleeper, _ = pause_one_in_mid_call(deployment)
        wait_until(lambda: not deployment.beats())
        deployment.process(sleeper).kill(signal.SIGCONT)
        all_succeeded(run)
        assert {record.attempts for record in run.results()} == {1, 2}
