"""A leading scheduler that dies or falls asleep: a standby leads, and a sleeper that wakes grants nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from fairlane.events import Event
from fairlane.testing import SimulatedModel
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

JOBS = 240
STRICT = SimulatedModel(requests_per_minute=2400, burst_seconds=1.0, latency_ms=200)
CONFIG = '[lanes."sim:strict"]\nrequests_per_minute = 2400\nburst_seconds = 0.5\n'


def calls(deployment: Cluster) -> tuple[int, int]:
    """Requests and 429s, as the provider counted them."""
    served = deployment.served("strict")
    return served.requests, served.rejected


def test_a_standby_takes_over_from_a_killed_leader_and_the_run_goes_on(tmp_path: Path) -> None:
    with cluster(tmp_path, {"strict": STRICT}, config=CONFIG, schedulers=2) as deployment:
        run = deployment.client.submit(numbered(JOBS), "question {{ n }}", model="sim:strict")
        wait_until(lambda: run.status().jobs_done >= 60)
        leader = deployment.leader()
        leader.kill()
        wait_until(lambda: deployment.leader().name != leader.name)
        all_succeeded(run)
        # What it had granted and not yet published is granted again: no call was made for it.
        assert calls(deployment) == (JOBS, 0)
        assert not run.status().late_reports


def test_a_paused_leader_is_replaced_and_grants_nothing_when_it_wakes(tmp_path: Path) -> None:
    with cluster(tmp_path, {"strict": STRICT}, config=CONFIG, schedulers=2) as deployment:
        run = deployment.client.submit(numbered(JOBS), "question {{ n }}", model="sim:strict")
        wait_until(lambda: run.status().jobs_done >= 60)
        sleeper = deployment.leader()
        sleeper.kill(signal.SIGSTOP)
        wait_until(lambda: deployment.leader().name != sleeper.name)
        before = run.status().jobs_done
        wait_until(lambda: run.status().jobs_done >= before + 20)
        sleeper.kill(signal.SIGCONT)
        all_succeeded(run)
        assert calls(deployment) == (JOBS, 0)
        wait_until(lambda: deployment.logged(Event.LEADER_LOST, process=sleeper.name))
        assert deployment.leader().name != sleeper.name


def test_a_leader_that_is_asked_to_stop_hands_over_without_a_lease_of_silence(tmp_path: Path) -> None:
    patient = {"leader_lease_seconds": 9.0}
    with cluster(tmp_path, {"strict": STRICT}, config=CONFIG, scheduler=patient, schedulers=2) as deployment:
        run = deployment.client.submit(numbered(JOBS), "question {{ n }}", model="sim:strict")
        wait_until(lambda: run.status().jobs_done >= 60)
        leader = deployment.leader()
        leader.ask_to_stop()
        wait_until(lambda: deployment.leader().name != leader.name, timeout=6.0)
        all_succeeded(run)
        assert calls(deployment) == (JOBS, 0)
