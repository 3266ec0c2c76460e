"""Several deployments behind one client: who gets which models, item numbers, and a cell that is away."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakeredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.client.cells.handle import CellsRun
from fairlane.client.cells.routing import Cells
from fairlane.client.outputs import Run
from fairlane.core.errors import RunTimeout, StoreUnavailable, SubmissionError
from fairlane.model.job import JobState
from fairlane.model.run import RunState
from fairlane.store.write.scopes import Scopes
from tests.support.stage import Stage

AWAY = StoreUnavailable("redis://east", "it is away")
ROUTES = {"sim": "west", "far": "east"}


class Two:
    """Two deployments in which a test plays scheduler and workers, behind one client."""

    def __init__(self, routes: dict[str, str] | None = None) -> None:
        self.stages = {name: Stage(fakeredis.FakeRedis()) for name in ("west", "east")}
        clients = {name: stage.client for name, stage in self.stages.items()}
        self.cells = Cells(clients, routes=ROUTES if routes is None else routes)

    def submit(self, rows: int = 3, admit: tuple[str, ...] = ("west", "east"), **options: Any) -> CellsRun:
        options.setdefault("models", ["far:a", "sim:b", "far:c"])
        run = self.cells.submit([{"n": n} for n in range(rows)], "{{ n }}", **options)
        for cell in admit:
            self.stages[cell].admit()
        return run

    def answer(self, run: CellsRun, cell: str, count: int, **how: Any) -> None:
        self.stages[cell].answer(run.ids[cell], count, **how)


@pytest.fixture
def two() -> Two:
    return Two()


@settings(max_examples=15)
@given(
    models=st.lists(st.sampled_from(["sim", "far"]), min_size=1, max_size=4),
    rows=st.integers(1, 3),
    prompts=st.integers(1, 2),
    repetitions=st.integers(1, 3),
)
@pytest.mark.slow
def test_items_are_numbered_as_if_models_stood_in_the_order_of_their_cells(
    models: list[str], rows: int, prompts: int, repetitions: int
) -> None:
    two = Two()
    named = [f"{connection}:{number}" for number, connection in enumerate(models)]
    run = two.cells.submit(
        ({"n": n} for n in range(rows)),
        prompts=[f"{number} {{{{ n }}}}" for number in range(prompts)],
        models=named,
        repetitions=repetitions,
    )
    for cell in run.ids:
        two.stages[cell].admit()
        two.answer(run, cell, run.parts[cell].status().items, last_first=True)
    ordered = sorted(named, key=lambda model: not model.startswith("sim"))
    expected = [
        (row, prompt, model, repetition)
        for row in range(rows)
        for prompt in range(prompts)
        for model in ordered
        for repetition in range(repetitions)
    ]
    found = [
        (record.item, (record.row["n"], record.prompt, record.model, record.repetition))
        for record in run.results()
    ]
    assert found == list(enumerate(expected))
    assert run.summary().items == len(expected)


def test_a_status_is_the_sum_of_its_parts_and_its_state_that_of_all(two: Two) -> None:
    run = two.submit()
    assert run.status().state is RunState.RUNNING
    two.answer(run, "west", 3)
    two.answer(run, "east", 4)
    status = run.status()
    assert (status.state, status.items, status.items_done, status.unreachable) == (RunState.RUNNING, 9, 7, ())
    assert status.by_state[JobState.SUCCEEDED] == 7
    assert {cell: part.state for cell, part in status.cells.items() if part} == {
        "west": RunState.COMPLETED,
        "east": RunState.RUNNING,
    }
    two.answer(run, "east", 2)
    assert (run.wait().state, run.wait().progress) == (RunState.COMPLETED, 1.0)


def test_ids_of_no_part_and_of_an_unknown_cell_are_refused(two: Two) -> None:
    """Else a run without its part would look complete."""
    run = two.submit()
    for ids in ({}, {**run.ids, "north": "r1"}):
        with pytest.raises(SubmissionError, match=r"Cells: west, east\."):
            two.cells.run(ids)
    assert two.cells.run(run.ids).ids == run.ids


def test_a_cell_that_goes_away_hides_neither_the_error_nor_other_parts(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Run:
        raise SubmissionError("model", "far:a", "is refused")

    def go_away(_: Run) -> None:
        raise AWAY

    monkeypatch.setattr(two.stages["east"].client, "submit", refuse)
    monkeypatch.setattr(Run, "cancel", go_away)
    with pytest.raises(SubmissionError, match="is refused"):
        two.submit()


def away(monkeypatch: pytest.MonkeyPatch, run: CellsRun, cell: str, looks: int) -> None:
    """A cell whose Redis does not answer the next ``looks`` questions for its status."""
    part, status, left = run._parts[cell], Run.status, [looks]

    def answer(self: Run) -> Any:
        if self is part and left[0] > 0:
            left[0] -= 1
            raise AWAY
        return status(self)

    monkeypatch.setattr(Run, "status", answer)


def test_a_cell_that_is_away_is_named_and_waited_for(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    run = two.submit()
    run._clock, run._waiter = two.stages["west"].clock, two.stages["west"]
    two.answer(run, "west", 3)
    run.status()
    away(monkeypatch, run, "east", 3)
    assert (run.status().unreachable, run.status().items) == (("east",), 9)
    two.answer(run, "east", 6)
    assert run.wait().state is RunState.COMPLETED
    away(monkeypatch, run, "east", 10)
    assert run.wait(timeout=60).state is RunState.COMPLETED, "it was seen to be over before"


def test_a_run_whose_cell_stays_away_times_out_as_asked(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    run = two.submit()
    run._clock, run._waiter = two.stages["west"].clock, two.stages["west"]
    away(monkeypatch, run, "east", 10**6)
    with pytest.raises(RunTimeout):
        run.wait(timeout=30)
    assert run.status().cells["east"] is None


def test_a_stream_has_each_record_once_although_a_cell_went_away_in_between(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = two.submit()
    for cell, count in (("west", 3), ("east", 6)):
        two.answer(run, cell, count)
    part, stream, fails = run._parts["east"], Run.stream, [2, 0]

    def cut(self: Run) -> Any:
        for number, record in enumerate(stream(self)):
            if self is part and fails and number == fails[-1] + 1:
                fails.pop()
                raise AWAY
            yield record

    monkeypatch.setattr(Run, "stream", cut)
    run._waiter = two.stages["west"]
    assert sorted(record.item for record in run.stream()) == list(range(9))
    assert not fails


def test_an_error_of_one_cell_ends_the_stream(two: Two) -> None:
    run = two.submit(admit=("west",))
    two.answer(run, "west", 3)
    two.stages["east"].refuse(run.ids["east"], "no such thing")
    with pytest.raises(SubmissionError, match="no such thing"):
        list(run.stream())


@pytest.mark.parametrize(
    ("action", "state"), [(CellsRun.cancel, RunState.CANCELLED), (CellsRun.pause, RunState.RUNNING)]
)
def test_every_part_is_paused_or_cancelled(
    two: Two, action: Callable[[CellsRun], None], state: RunState
) -> None:
    run = two.submit()
    action(run)
    for stage in two.stages.values():
        stage.admit()
    status = run.status()
    assert {part.state for part in status.cells.values() if part} == {state}
    assert all(
        (part.paused is not None) == (state is RunState.RUNNING) for part in status.cells.values() if part
    )


def test_a_run_is_found_again_by_the_ids_of_its_parts(two: Two) -> None:
    run = two.submit()
    found = two.cells.run(dict(reversed(run.ids.items())))
    assert list(found.ids.items()) == list(run.ids.items())
    assert found.status() == run.status()


@pytest.mark.parametrize(
    ("options", "field", "says"),
    [
        ({"models": ["sim:a", "fra:b"]}, "models[1]", "no cell has a connection 'fra'"),
        ({"models": ["{{ c }}:b"]}, "models[0]", "a connection that differs by row"),
        ({"models": None, "model": "fra:b"}, "model", "no cell has a connection"),
        ({"models": None, "task": "crm.tasks:fetch"}, "model", "decides which cell calls"),
    ],
)
def test_a_model_without_a_cell_is_refused_by_name(
    two: Two, options: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(SubmissionError, match=says) as refused:
        two.submit(**options)
    assert refused.value.field == field


def test_a_connection_that_two_cells_have_needs_a_route() -> None:
    two = Two(routes={})
    for stage in two.stages.values():
        Scopes(stage.redis, stage.keys).publish({"sim": {}})
    with pytest.raises(SubmissionError, match="west and east have a connection 'sim'"):
        two.submit(models=["sim:a"])


def test_a_submission_that_one_cell_refuses_leaves_no_part_behind(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    east = two.stages["east"].client
    monkeypatch.setattr(east, "submit", lambda *_, **__: (_ for _ in ()).throw(AWAY))
    with pytest.raises(StoreUnavailable):
        two.submit()
    two.stages["west"].admit()
    assert [status.state for status in two.stages["west"].client.runs()] == [RunState.CANCELLED]


@pytest.mark.parametrize(("cells", "routes"), [({}, {}), ({"a": None}, {"sim": "b"})])
def test_cells_without_a_deployment_or_with_a_route_to_none_are_refused(
    cells: dict[str, Any], routes: dict[str, str]
) -> None:
    with pytest.raises(SubmissionError, match=r"no cell"):
        Cells(cells, routes=routes)


def test_cells_share_the_rows_of_a_pipe(two: Two, tmp_path: Path) -> None:
    pipe = tmp_path / "rows.jsonl"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=('{"n": 1}\n{"n": 2}\n',), daemon=True)
    writer.start()
    run = two.cells.submit(pipe, "{{ n }}", models=["far:a", "sim:b"])
    writer.join(timeout=10)
    assert {cell: part.status().items for cell, part in run.parts.items()} == {"west": 2, "east": 2}
