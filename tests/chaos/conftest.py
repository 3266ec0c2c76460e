"""One deployment that is battered by one test after the other, and is whole again before the next."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, cluster

WORKERS, SLOTS = 3, 10


@pytest.fixture(scope="session")
def battered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two schedulers and three workers of ten slots."""
    with cluster(tmp_path_factory.mktemp("battered"), schedulers=2, workers=WORKERS, slots=SLOTS) as made:
        yield made


@pytest.fixture
def deployment(battered: Cluster) -> Iterator[Cluster]:
    """It, with everybody alive and awake; whoever a test has killed or paused comes back after it."""
    battered.begin()
    yield battered
    for name, process in battered.stack.processes.items():
        if process.is_running:
            process.kill(signal.SIGCONT)
        else:
            battered.stack.restart(name)
    battered.wait_ready(WORKERS)
