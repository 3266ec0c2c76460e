"""Finished runs are moved into a database whole, once, and read from there as they were read before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import select

from fairlane.apps.archive import mover
from fairlane.apps.archive.database import Database
from fairlane.apps.archive.mover import RunMover
from fairlane.apps.archive.rows import SessionEntry, record_of
from fairlane.apps.archive.schema import records
from fairlane.client.archive import Moved
from fairlane.client.outputs import Run
from fairlane.core.errors import RunArchived, RunNotFound, SubmissionError
from fairlane.model.evaluators import Judge
from fairlane.model.job import JobState
from fairlane.model.results import JudgeResult
from fairlane.model.run import RunRef, RunState
from fairlane.model.sessions import SessionRecord
from fairlane.store.read.reading import RecordReader, RowReader
from tests.support.archives import MEMORY, ArchivedStage, sqlite_url
from tests.support.stage import Stage

JUDGE = Judge(name="judge", model="sim:judge", template="{{ output }}", choices={"yes": 1, "no": 0})
ODD = ["naïve ☃ 😀", "a\0b", '"quoted"\\', "\u2028", ""]


class Broken(Exception):
    """The archiver was ended in the middle."""


@pytest.fixture
def stage(fake_redis: Redis, tmp_path: Path) -> Iterator[ArchivedStage]:
    made = ArchivedStage(fake_redis, sqlite_url(tmp_path))
    yield made
    made.close()


def submit(stage: Stage, rows: int = 5, **arguments: Any) -> Run:
    dataset = [{"question": f"q{n}", "n": n} for n in range(rows)]
    run = stage.client.submit(dataset, **{"prompt": "{{ question }}", "model": "sim:fast"} | arguments)
    stage.admit()
    return run


def completed(stage: Stage, rows: int = 5, **arguments: Any) -> Run:
    run = submit(stage, rows, **arguments)
    stage.answer(run.id, rows, last_first=True)
    if stage.spec(run.id).steps > 1:
        stage.judge(run.id, rows, score=0.5)
    assert run.status().state is RunState.COMPLETED
    return run


def seen(run: Run) -> tuple[Any, ...]:
    """Everything that a handle tells of a finished run."""
    return run.name, run.status(), list(run.results()), list(run.stream())


def test_a_moved_run_reads_the_same_before_and_after(stage: ArchivedStage) -> None:
    run = completed(stage, evaluators=[JUDGE], name="of record")
    before = seen(run)
    assert stage.move(run) is Moved.MOVED
    assert not stage.redis.exists(stage.keys.results(stage.ref(run)))
    assert seen(run) == before
    read = stage.archive.stored.finished
    assert [read(stage.ref(run), place, 1)[1] for place in range(3, 6)] == [[1], [0], []]
    assert seen(stage.client.run(run.id)) == before


def test_a_run_that_is_gone_from_redis_is_read_from_the_archive(stage: ArchivedStage) -> None:
    run = completed(stage, evaluators=[JUDGE], name="of record")
    before = seen(run)
    stage.move(run)
    stage.expire(run)
    assert seen(stage.client.run(run.id)) == before
    assert seen(run) == before


@pytest.mark.parametrize("also_expires", [False, True])
def test_a_run_that_moves_between_a_readers_looks_at_results_and_rows_keeps_its_rows(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch, also_expires: bool
) -> None:
    run, read = completed(stage), RowReader._read
    before, moves = list(run.results()), iter([stage.move])

    def move_and_read(reader: RowReader, number: int) -> list[dict[str, Any]]:
        for move in moves:
            assert move(run) is Moved.MOVED
            if also_expires:
                stage.expire(run)
        return read(reader, number)

    monkeypatch.setattr(RowReader, "_read", move_and_read)
    assert list(run.results()) == before


def test_an_archive_in_memory_does(fake_redis: Redis) -> None:
    stage = ArchivedStage(fake_redis, MEMORY)
    stage.archive = stage.client._deployment.archive or stage.archive  # a database in memory is one engine's
    run = completed(stage)
    before = seen(run)
    assert stage.move(run) is Moved.MOVED
    assert seen(run) == before
    stage.close()


def test_items_that_never_ran_are_in_the_archive_too(stage: ArchivedStage) -> None:
    run = submit(stage, 5)
    stage.answer(run.id, 2, last_first=True)
    run.cancel()
    stage.admit()
    before = seen(run)
    assert stage.move(run) is Moved.MOVED
    assert seen(run) == before
    assert [record.state for record in run.results()].count(JobState.CANCELLED) == 3
    assert [record.item for record in run.stream()] == [1, 0, 2, 3, 4]


def test_any_text_and_number_comes_back_as_it_was(stage: ArchivedStage) -> None:
    rows = [
        {"text": text, "big": 2**70, "float": 0.1, "none": None, "deep": {"a": [1, True]}} for text in ODD
    ]
    run = stage.client.submit(rows, prompt="{{ text }}", model="sim:fast")
    stage.admit()
    result: dict[str, Any] = {"scores": {"s": None, "t": 1.0}, "score_errors": {"s": "☃"}}
    stage.answer(run.id, len(ODD), output=f"{''.join(ODD)} half \ud83d of a pair", **result)
    before = list(run.results())
    assert stage.move(run) is Moved.MOVED
    assert list(run.results()) == before
    assert [record.row for record in before] == rows


def test_a_run_without_items_is_moved(stage: ArchivedStage) -> None:
    run = submit(stage, 0, check=False)
    before = seen(run)
    assert stage.move(run) is Moved.MOVED
    assert seen(run) == before


@pytest.mark.parametrize("portion", [0, 1, 2])
def test_a_move_that_is_broken_off_anywhere_and_done_again_ends_in_one_whole_copy(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    monkeypatch.setattr(mover, "RESULTS_AT_ONCE", 4)
    run = completed(stage, 5, evaluators=[JUDGE])
    before, portions = seen(run), iter(range(portion))

    def break_off() -> None:
        if next(portions, None) is None:
            raise Broken

    with pytest.raises(Broken):
        RunMover(stage.without_archive, stage.archive, break_off).move(stage.ref(run))
    assert seen(run) == before  # Redis has it all: nothing goes before the copy is whole
    with pytest.raises(RunNotFound):
        stage.archive.stored.overview(stage.ref(run))
    assert stage.move(run) is Moved.MOVED
    stage.expire(run)
    assert seen(stage.client.run(run.id)) == before


def test_nothing_leaves_redis_before_the_copy_is_committed(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = completed(stage)
    before = seen(run)

    def fail(*_: Any) -> None:
        raise Broken

    monkeypatch.setattr(stage.archive.stored, "finish", fail)
    with pytest.raises(Broken):
        stage.move(run)
    assert seen(run) == before


def test_a_copy_that_was_committed_without_a_stub_gets_it_the_next_time(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = completed(stage)
    with monkeypatch.context() as patch:
        patch.setattr(
            "fairlane.apps.archive.mover.ArchiveStubs.leave", lambda *_: (_ for _ in ()).throw(Broken)
        )
        with pytest.raises(Broken):
            stage.move(run)
    monkeypatch.setattr(stage.archive.stored, "add", lambda *_: pytest.fail("it is there already"))
    assert stage.move(run) is Moved.MOVED
    assert "archived" in stage.deployment.state(stage.ref(run))


def test_a_run_moved_twice_is_there_once(stage: ArchivedStage) -> None:
    run = completed(stage)
    before = seen(run)
    assert [stage.move(run), stage.move(run)] == [Moved.MOVED, Moved.MOVED_BEFORE]
    stage.expire(run)
    assert stage.move(run) is Moved.MOVED_BEFORE
    assert seen(run) == before


def test_two_movers_of_one_run_leave_it_whole(stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mover, "RESULTS_AT_ONCE", 2)
    run = completed(stage, 5)
    before, others = seen(run), iter([lambda: stage.move(run)])

    def let_another_pass() -> None:
        next(others, lambda: None)()

    slower = RunMover(stage.without_archive, stage.archive, let_another_pass)
    assert slower.move(stage.ref(run)) is Moved.MOVED_BEFORE
    assert seen(run) == before


def test_a_run_that_is_moved_while_it_is_read_is_read_to_its_end(
    stage: ArchivedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.client.following.records.RESULTS_AT_ONCE", 2)
    monkeypatch.setattr("fairlane.client.following.records.ITEMS_LISTED_AT_ONCE", 3)
    run = completed(stage, 9)
    whole = list(run.stream())
    reading = run.stream()
    begun = [next(reading), next(reading)]
    stage.move(run)
    assert begun + list(reading) == whole


def test_a_run_that_is_not_finished_stays(stage: ArchivedStage) -> None:
    run = submit(stage, 2)
    assert stage.move(run) is Moved.RUNNING
    stage.answer(run.id, 2)
    assert stage.move(run) is Moved.MOVED


def test_a_refused_run_has_nothing_to_keep(stage: ArchivedStage) -> None:
    run = stage.client.submit([{"question": "q"}], prompt="{{ question }}", model="sim:fast")
    stage.refuse(run.id, "no such model")
    assert stage.move(run) is Moved.REFUSED


def test_a_run_that_another_goes_on_from_stays_as_long_as_that_is_active(stage: ArchivedStage) -> None:
    run, later = completed(stage), submit(stage, 2)
    ref = RunRef(later.team, later.id)
    plan = stage.deployment.runs.plan(ref)
    assert plan is not None
    resumed: dict[str, Any] = {"run": run.id, "prompts": [0], "models": [0], "steps": [], "repetitions": 1}
    document = plan.model_dump(mode="json")
    document["spec"]["continues"] = resumed
    stage.redis.set(stage.keys.plan(ref), type(plan).model_validate(document).model_dump_json())
    assert stage.move(run) is Moved.NEEDED
    stage.deployment.cancel(ref)
    assert stage.move(run) is Moved.MOVED


@pytest.mark.parametrize("gone", [False, True])
def test_a_run_in_the_archive_is_not_continued(stage: ArchivedStage, gone: bool) -> None:
    run = completed(stage)
    stage.move(run)
    if gone:
        stage.expire(run)
    with pytest.raises(SubmissionError, match="has left Redis for the archive"):
        stage.client.continue_run(run.id)


def test_a_run_that_is_in_neither_is_not_found(stage: ArchivedStage) -> None:
    with pytest.raises(RunNotFound):
        stage.client.run("unknown")
    with pytest.raises(RunNotFound):
        stage.mover.move(RunRef("search", "unknown"))


def test_a_team_does_not_find_the_runs_of_another(stage: ArchivedStage) -> None:
    run = completed(stage)
    stage.move(run)
    stage.expire(run)
    with pytest.raises(RunNotFound), stage.client_of("ads") as other:
        other.run(run.id)


def test_without_the_archive_a_stub_says_where_its_records_are(stage: ArchivedStage) -> None:
    run = completed(stage)
    stage.move(run)
    bare = Stage(stage.redis).client.run(run.id)
    assert bare.status() == run.status()
    with pytest.raises(RunArchived, match=r"archive\.url"):
        list(bare.results())
    with pytest.raises(RunArchived):
        list(bare.stream())
    with pytest.raises(RunArchived):
        RecordReader(stage.redis, stage.keys, stage.spec(run.id)).records([0])


def test_the_archive_has_the_results_that_redis_had(stage: ArchivedStage) -> None:
    run = submit(stage, 3, evaluators=[JUDGE])
    stage.answer(run.id, 3, scores={"exact": 1.0}, finish_reason="length", latency_ms=5)
    stage.judge(run.id, 3, score=0.5)
    before, stored = list(run.results()), stage.redis.hgetall(stage.keys.results(stage.ref(run)))
    assert stage.move(run) is Moved.MOVED
    assert list(run.results()) == before
    with Database(stage.url).reading() as connection:
        assert connection is not None
        found = connection.execute(select(records.c.item, records.c.record, records.c.evaluations)).all()
    assert sorted(item for item, _, _ in found) == [0, 1, 2]
    for item, record, evaluations in found:
        (judged,) = json.loads(evaluations)
        expected = JudgeResult.from_json(stored[b"%d" % (2 * item + 1)])
        assert JudgeResult.from_json(json.dumps(judged)) == expected
        assert record_of(record) == before[item]


def test_sessions_are_in_the_archive_cell_by_cell(stage: ArchivedStage) -> None:
    run = completed(stage, 1)
    ref, spec = stage.ref(run), stage.spec(run.id).model_copy(update={"repetitions": 2})
    shown = [
        SessionEntry(number, cell, SessionRecord("ä", "sim:fast", 0, cell, (cell, 2), {"s": 1.0}, {}), [None])
        for number in range(2)
        for cell in range(2)
    ]
    for _ in range(2):
        stage.archive.stored.add_sessions(ref, shown)
    found = stage.archive.stored.sessions(ref, spec, [1, 0])
    assert found == [entry.record for entry in [*shown[2:], *shown[:2]]]
    with pytest.raises(RunNotFound):
        stage.archive.stored.sessions(ref, spec, [2])


def test_runs_that_finished_by_then_are_due_the_oldest_first(stage: ArchivedStage) -> None:
    first, running = completed(stage, 1), submit(stage, 1)
    stage.clock.advance(10)
    second, moment = completed(stage, 1), stage.clock.now_ms()
    due = stage.mover.due
    assert [ref.run for ref in due("search", moment)] == [first.id, second.id]
    assert [ref.run for ref in due("search", moment - 1)] == [first.id]
    stage.move(first)
    assert [ref.run for ref in due("search", moment)] == [second.id]
    assert list(due("ads", moment)) == []
    stage.expire(second)
    assert list(due("search", moment)) == []
    assert running.status().state is RunState.RUNNING
