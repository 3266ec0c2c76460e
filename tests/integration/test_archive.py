"""A finished run goes into the archive by itself, and reads as it read before."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fairlane import Run, RunState
from fairlane.core.events import Event
from fairlane.evaluators.builders import llm_judge
from fairlane.model.run import RunRef
from fairlane.testing import SimulatedModel
from tests.support.cluster import Cluster, cluster, numbered
from tests.support.wait import wait_until

MODELS = {
    "fine": SimulatedModel(latency_ms=10, output="fixed", fixed_text="yes"),
    "hanging": SimulatedModel(latency_ms=60_000),
}
JUDGE = llm_judge("sim:fine", "{{ output }}", {"yes": 1})
CONVERSATION = llm_judge("sim:fine", "{{ session | length }}", {"yes": 1}, name="whole", level="session")
SECRET = "a-name-that-is-nobodys-business"


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("archived")
    config = f'[archive]\nurl = "sqlite:///{directory / SECRET}.db"\nafter_seconds = 1\n'
    with cluster(directory, MODELS, config=config, workers=1) as made:
        yield made


@pytest.fixture(autouse=True)
def _begin(archived: Cluster) -> None:
    archived.begin()


def left(archived: Cluster, run: Run) -> set[str]:
    """The parts of a run that Redis has."""
    found = archived.redis.scan_iter(match=f"*:{run.id}:*", count=1000)
    return {key.decode().rpartition(":")[2] for key in found}


def wait_moved(archived: Cluster, run: Run) -> None:
    state = archived.keys.state(RunRef(run.team, run.id))
    wait_until(lambda: archived.redis.hexists(state, "archived"))


def test_a_run_is_archived_by_itself_and_reads_the_same_before_and_after(archived: Cluster) -> None:
    rows = numbered(40, group="g")
    run = archived.client.submit(
        rows, "asked {{ n }}", model="sim:fine", evaluators=[JUDGE, CONVERSATION], session="group"
    )
    ended = list(run.stream())
    status, sessions, summary = run.wait(timeout=30.0), list(run.sessions()), run.summary()
    assert status.state is RunState.COMPLETED
    wait_moved(archived, run)
    assert left(archived, run) == {"state", "plan"}
    assert list(run.stream()) == ended
    assert list(run.results()) == sorted(ended, key=lambda record: record.item)
    again = archived.client.run(run.id)
    assert again.status() == status
    assert (list(again.sessions()), again.summary()) == (sessions, summary)
    assert [record.row["n"] for record in again.results()] == list(range(40))
    archived.redis.delete(*archived.redis.scan_iter(match=f"*:{run.id}:*", count=1000))
    gone = archived.client.run(run.id)
    assert (gone.status(), list(gone.stream()), list(gone.sessions())) == (status, ended, sessions)


def test_a_cancelled_run_is_archived_with_every_item(archived: Cluster) -> None:
    run = archived.client.submit(numbered(30), "hang {{ n }}", model="sim:hanging")
    wait_until(lambda: archived.served("hanging").in_flight > 0)
    run.cancel()
    run.wait(timeout=30.0)
    before = list(run.results())
    wait_moved(archived, run)
    assert list(run.results()) == before
    assert len(before) == 30


def test_archiving_is_reported_without_the_archives_location(archived: Cluster) -> None:
    run = archived.client.submit(numbered(3), "tell {{ n }}", model="sim:fine")
    run.wait(timeout=30.0)
    wait_moved(archived, run)
    archived.wait_logged(Event.RUN_ARCHIVED, run=run.id)
    logs = "".join(path.read_text() for path in (archived.directory / "data" / "logs").glob("*.log"))
    assert SECRET not in logs
    with closing(sqlite3.connect(Path(archived.directory / f"{SECRET}.db"))) as database:
        found = database.execute("select state, items from runs where run = ?", [run.id]).fetchall()
        assert found == [("completed", 3)]
