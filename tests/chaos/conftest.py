"""One deployment that is battered by one test after the other, and is whole again before the next."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, cluster

WORKERS, SLOTS, RESERVED_SLOTS = 3, 10, 6
LANES_OF_A_TEAM, SHARED = 100, 8
"""Most lanes that a team opens; connections ``shared0`` … have a key each, whose models share one lane."""

SCHEDULER = {"reserved_slots_percent": 100 * RESERVED_SLOTS // (WORKERS * SLOTS)}

CONFIG = f"""
[scheduler.limits]
lanes = {LANES_OF_A_TEAM}
""" + "".join(
    f"""
[connections.shared{n}]
protocol = "openai"
base_url = "{{base_url}}"
lane_scope = "connection"
api_key_env = "SHARED{n}_KEY"
"""
    for n in range(SHARED)
)


@pytest.fixture(scope="package")
def battered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two schedulers and three workers of ten slots, of which six are reserved for teams that hold fewer."""
    place = tmp_path_factory.mktemp("battered")
    keys = {f"SHARED{n}_KEY": f"key-of-shared{n}" for n in range(SHARED)}
    counts = {"schedulers": 2, "workers": WORKERS, "slots": SLOTS}
    with cluster(place, config=CONFIG, env=keys, scheduler=SCHEDULER, **counts) as made:
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
