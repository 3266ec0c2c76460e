"""Redis behind Sentinels and as a cluster: a run goes on when another server takes over."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fairlane import Run
from fairlane.events import Event
from fairlane.local.embedded import start_embedded
from fairlane.local.ports import LOOPBACK
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.command_line import run_command
from tests.support.redis_fleet import Fleet, clustered, watched_by_sentinels
from tests.support.wait import wait_until

ITEMS = 200
PER_SECOND, BURST_S = 40, 1.0
SLACK = 1.1
"""A second is counted by the server's clock and by ours."""

NAMED = "apart"
"""A deployment of another name: its keys have another slot, its queues another prefix."""


def test_a_run_goes_on_when_sentinels_name_another_primary(tmp_path: Path) -> None:
    with _fleet(tmp_path, watched_by_sentinels) as (fleet, deployment):
        _doctor_knows(fleet, deployment)
        run, served = _limited_run(deployment)
        before = fleet.kill_primary()
        assert fleet.primary() != before
        all_succeeded(run)
        deployment.wait_logged(Event.STORE_BACK)
        assert max(served()) <= (PER_SECOND + PER_SECOND * BURST_S) * SLACK, "faster than the lane allows"
        assert not deployment.stack.poll(), "a process has died"
        _doctor_knows(fleet, deployment)


def test_a_run_goes_on_when_its_slot_moves_and_when_its_node_dies(tmp_path: Path) -> None:
    with _fleet(tmp_path, clustered, broker=True) as (fleet, deployment):
        _doctor_knows(fleet, deployment)
        run, served = _limited_run(deployment)
        before = fleet.primary()
        fleet.move_slot()
        assert fleet.primary() != before
        wait_until(lambda: run.status().items_done >= ITEMS // 2, timeout=30.0)
        fleet.move_slot(to=before)
        assert fleet.kill_primary() == before
        assert fleet.primary() != before
        all_succeeded(run)
        assert max(served()) <= (PER_SECOND + PER_SECOND * BURST_S) * SLACK, "faster than the lane allows"
        assert not deployment.stack.poll(), "a process has died"
