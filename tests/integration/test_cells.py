"""Two deployments behind one client: one is lost, the other's lanes go on, the run ends when it is back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fairlane import Cells, JobState, Record, RunState
from fairlane.local.stack import REDIS
from tests.support.cluster import Cluster, cluster, numbered
from tests.support.wait import wait_until

ROWS = 60
CELLS = ("west", "east")


@pytest.fixture
def cells(tmp_path: Path) -> Iterator[dict[str, Cluster]]:
    with ExitStack() as stack:
        made = dict[str, Cluster]()
        for cell in CELLS:
            (tmp_path / cell).mkdir()
            connection = f'[connections.{cell}]\nprotocol = "openai"\nbase_url = "{{base_url}}"'
            made[cell] = stack.enter_context(cluster(tmp_path / cell, config=connection, workers=1))
        yield made


def test_a_cell_that_is_lost_stops_its_own_models_alone(cells: dict[str, Cluster]) -> None:
    models = {cell: made.new_model(latency_ms=200) for cell, made in cells.items()}
    client = Cells({cell: made.client for cell, made in cells.items()})
    run = client.submit(
        numbered(ROWS),
        "question {{ n }}",
        models=[f"{cell}:{models[cell]}" for cell in CELLS],
        max_concurrent=4,
    )
    streamed = list[Record]()
    reader = threading.Thread(target=lambda: streamed.extend(run.stream()))
    reader.start()
    lost, east = cells["east"].process(REDIS), run.parts["east"]
    wait_until(lambda: east.status().items_done >= 4)
    lost.kill()

    wait_until(lambda: run.status().items_done >= ROWS)
    status = run.status()
    assert (status.state, status.unreachable) == (RunState.RUNNING, ("east",))
    west = status.cells["west"]
    assert west is not None
    assert (west.state, west.items_done) == (RunState.COMPLETED, ROWS)

    wait_until(lambda: not lost.is_running)
    cells["east"].stack.restart(REDIS)
    assert run.wait(timeout=60).state is RunState.COMPLETED
    records = list(run.results())
    assert [record.item for record in records] == list(range(2 * ROWS))
    assert [record.model.partition(":")[0] for record in records] == list(CELLS) * ROWS
    assert {record.state for record in records} == {JobState.SUCCEEDED}
    reader.join(60)
    assert sorted(record.item for record in streamed) == list(range(2 * ROWS))
    assert client.run(run.ids).status().progress == 1.0
