from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.client.following import records
from fairlane.client.following.chunks import Chunk
from fairlane.client.following.records import Seen
from fairlane.core.errors import FairlaneError, RunNotFound, SubmissionError
from fairlane.model.evaluators import Judge
from fairlane.model.job import JobState
from fairlane.model.results import TaskResult
from fairlane.model.run import RunRef, RunState
from fairlane.model.run_status import RoleTime
from fairlane.model.tokens import Usage
from fairlane.store.read import reading
from tests.support.stage import Stage

JUDGE = Judge(name="judge", model="sim:judge", template="{{ output }}", choices={"yes": 1, "no": 0})
COMPLETE = range(5)


def submit(stage: Stage, rows: int = 5, **arguments: Any) -> Any:
    """A run that has been admitted."""
    dataset = [{"question": f"q{n}"} for n in range(rows)]
    run = stage.client.submit(dataset, **{"prompt": "{{ question }}", "model": "sim:fast"} | arguments)
    stage.admit()
    return run


def items(found: Any) -> list[int]:
    return [record.item for record in found]


def test_results_come_in_item_order_once_the_run_is_over(stage: Stage) -> None:
    run = submit(stage)
    stage.then(lambda: stage.answer(run.id, 5, last_first=True))
    found = list(run.results())
    assert items(found) == [0, 1, 2, 3, 4]
    assert [record.output for record in found] == [f"answer {n}" for n in range(5)]
    assert [record.row["question"] for record in found] == [f"q{n}" for n in range(5)]


def test_a_record_reports_everything_of_its_item(stage: Stage) -> None:
    run = submit(
        stage, rows=2, evaluators=[JUDGE], models=["sim:fast", "sim:slow"], model=None, repetitions=2
    )
    stage.answer(run.id, 8, scores={"exact_match": 1.0})
    stage.judge(run.id, 8, score=0.5)
    last = list(run.results())[-1]
    assert (last.item, last.row, last.model, last.prompt, last.repetition) == (
        7,
        {"question": "q1"},
        "sim:slow",
        0,
        1,
    )
    assert (last.state, last.scores, last.usage, last.attempts, last.error) == (
        JobState.SUCCEEDED,
        {"exact_match": 1.0, "judge": 0.5},
        Usage(10, 5),
        1,
        None,
    )


def test_results_are_read_a_bounded_number_at_a_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "RESULTS_AT_ONCE", 4)
    monkeypatch.setattr(reading, "MOST_AT_ONCE", 4)
    run = submit(stage, rows=7, evaluators=[JUDGE])
    stage.answer(run.id, 7)
    stage.judge(run.id, 7)
    asked = counted(stage, monkeypatch)
    assert items(run.results()) == list(range(7))
    assert asked == [4, 4, 4, 2]


def test_long_results_are_read_fewer_at_a_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a reader holds is bounded by bytes, but for its first look and for one result that is longer."""
    monkeypatch.setattr(reading, "RESULTS_AT_ONCE", 4)
    monkeypatch.setattr(reading, "BYTES_AT_ONCE", 300)
    run = submit(stage, rows=14)
    stage.answer(run.id, 14)
    key = stage.keys.results(RunRef(run.team, run.id))
    for item in range(4, 8):
        stage.redis.hset(key, str(item), TaskResult(JobState.SUCCEEDED, "x" * 290).to_json(short=True))
    asked = counted(stage, monkeypatch)
    assert items(run.results()) == list(range(14))
    first, *later = asked
    assert first == 4
    assert later[0] > 4, "short results are read many at a time"
    assert later[1] == 1, "long results are read one at a time"
    assert sum(asked) == 14


def counted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many results each read asks for, from now on."""
    asked: list[int] = []
    pipeline = stage.redis.pipeline

    def counting(*args: Any, **kwargs: Any) -> Any:
        made = pipeline(*args, **kwargs)
        really = made.hmget

        def hmget(key: str, *fields: Any) -> Any:
            if key.endswith(":results"):
                asked.append(len(fields[0]))
            return really(key, *fields)

        made.hmget = hmget
        return made

    monkeypatch.setattr(stage.redis, "pipeline", counting)
    return asked


def test_a_stream_yields_items_as_they_end(stage: Stage) -> None:
    run = submit(stage)
    stage.then(
        lambda: stage.answer(run.id, 2, last_first=True), lambda: None, lambda: stage.answer(run.id, 3)
    )
    assert items(run.stream()) == [1, 0, 2, 3, 4]


def test_a_stream_waits_for_an_items_judges(stage: Stage) -> None:
    run = submit(stage, rows=2, evaluators=[JUDGE])
    stage.answer(run.id, 2)
    stage.then(lambda: stage.judge(run.id, 1), lambda: stage.judge(run.id, 1))
    assert [(record.item, record.scores) for record in run.stream()] == [
        (0, {"judge": 1.0}),
        (1, {"judge": 1.0}),
    ]


def test_a_stream_may_begin_before_the_run_is_admitted(stage: Stage) -> None:
    run = stage.client.submit([{"question": "q"}], "{{ question }}", model="sim:fast")
    stage.then(lambda: None, stage.admit, lambda: stage.answer(run.id))
    assert items(run.stream()) == [0]


def test_a_cancelled_runs_stream_ends_with_what_never_ran(stage: Stage) -> None:
    run = submit(stage, rows=6, evaluators=[JUDGE])
    stage.answer(run.id, 3, last_first=True)
    stage.judge(run.id, 1)
    run.cancel()
    stage.then(stage.admit)
    found = list(run.stream())
    assert items(found) == [2, 0, 1, 3, 4, 5]
    assert [record.state for record in found] == [JobState.SUCCEEDED] * 3 + [JobState.CANCELLED] * 3
    assert found[1].score_errors == {"judge": "the run was cancelled"}
    assert [record.error for record in found] == [None] * 3 + ["the run was cancelled"] * 3
    assert items(run.results()) == list(range(6))


def test_an_item_is_reported_once_even_if_redis_forgets_who_ended(stage: Stage) -> None:
    run = submit(stage)
    stage.answer(run.id, 2)
    stage.then(
        lambda: stage.redis.rpop(stage.keys.finished(RunRef("search", run.id)), 2),
        lambda: stage.answer(run.id, 3),
    )
    assert sorted(items(run.stream())) == list(COMPLETE)


def test_many_items_are_listed_by_the_page(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "ITEMS_LISTED_AT_ONCE", 2)
    run = submit(stage)
    stage.answer(run.id, 5)
    assert items(run.stream()) == list(COMPLETE)
    assert stage.waits == []


@given(st.lists(st.integers(0, 99), max_size=200))
def test_each_item_is_new_once(announced: list[int]) -> None:
    seen = Seen()
    assert [item for item in announced if seen.add(item)] == list(dict.fromkeys(announced))


def test_a_refused_run_says_why(stage: Stage) -> None:
    run = stage.client.submit([{"question": "q"}], "{{ question }}", model="nowhere:fast")
    stage.then(lambda: stage.refuse(run.id, "there is no connection 'nowhere'"))
    status = run.wait()
    assert (status.state, status.reason) == (RunState.REFUSED, "there is no connection 'nowhere'")
    for read in (run.results, run.stream, stage.client.run(run.id).results):
        with pytest.raises(SubmissionError, match="no connection 'nowhere'"):
            next(read())


def test_a_run_that_is_refused_while_it_is_streamed_says_why(stage: Stage) -> None:
    run = stage.client.submit([{"question": "q"}], "{{ question }}", model="nowhere:fast")
    stage.then(lambda: stage.refuse(run.id, "no such connection"))
    with pytest.raises(SubmissionError, match="no such connection"):
        next(run.stream())


def test_a_run_of_a_version_to_come_can_be_watched_but_not_read(stage: Stage) -> None:
    run = submit(stage, rows=1)
    stage.redis.set(stage.keys.plan(RunRef("search", run.id)), '{"spec": {"version": 99}}')
    stage.redis.delete(stage.keys.spec(RunRef("search", run.id)))
    again = stage.client.run(run.id)
    assert (again.status().state, again.name) == (RunState.RUNNING, run.id)
    with pytest.raises(FairlaneError, match="newer version"):
        next(again.stream())


def test_an_expired_run_is_not_found(stage: Stage) -> None:
    run = submit(stage, rows=1)
    stage.answer(run.id)
    reading = run.results()
    for key in stage.redis.keys(f"*{run.id}*"):
        stage.redis.delete(key)
    for read in (run.status, run.wait, lambda: next(reading), lambda: stage.client.run(run.id)):
        with pytest.raises(RunNotFound):
            read()
    assert stage.client.runs() == []


def test_a_run_is_found_again_by_its_id(stage: Stage) -> None:
    run = submit(stage, rows=1, name="again")
    again = stage.client_of("search").run(run.id)
    stage.answer(run.id)
    assert (again.id, again.name, again.team) == (run.id, "again", "search")
    assert items(again.results()) == [0]


def test_a_run_is_found_again_by_its_name(stage: Stage) -> None:
    named = "GSM8K, of the night"
    older, newer = submit(stage, rows=1, name=named), submit(stage, rows=1, name=named)
    stage.answer(newer.id)
    assert older.id != stage.client.run(named).id == newer.id
    assert stage.client.continue_run(named).status().items == 1
    with pytest.raises(RunNotFound):
        stage.client_of("ads").run(named)


@pytest.mark.parametrize("run_id", ["unknown", "", "a/b", "a\n", "x" * 65])
def test_an_unknown_run_is_not_found(stage: Stage, run_id: str) -> None:
    with pytest.raises(RunNotFound):
        stage.client.run(run_id)


def test_another_teams_run_is_not_found(stage: Stage) -> None:
    run = submit(stage)
    with pytest.raises(RunNotFound):
        stage.client_of("ads").run(run.id)
    assert stage.client_of("ads").runs() == []


def test_runs_are_listed_newest_first_with_those_that_wait(stage: Stage) -> None:
    ids = [submit(stage).id for _ in range(3)]
    ids.append(stage.client.submit([{}], "x", model="sim:fast").id)
    listed = stage.client.runs()
    assert {status.run for status in listed} == set(ids)
    assert [status.submitted_ms for status in listed] == sorted(
        (status.submitted_ms for status in listed), reverse=True
    )
    assert [status.state for status in listed if status.run == ids[3]] == [RunState.SUBMITTED]


def test_expired_runs_do_not_shorten_the_list(stage: Stage) -> None:
    ids = [submit(stage, rows=1).id for _ in range(5)]
    for run in ids[2:]:
        for key in stage.redis.keys(f"*{run}*"):
            stage.redis.delete(key)
    assert {status.run for status in stage.client.runs(limit=2)} == set(ids[:2])


def test_a_limit_bounds_the_list(stage: Stage) -> None:
    for _ in range(3):
        submit(stage, rows=1)
    assert len(stage.client.runs(limit=2)) == 2
    assert stage.client.runs(limit=0) == []


def test_chunks_arrive_until_the_run_is_over(stage: Stage) -> None:
    run = submit(stage, rows=2, evaluators=[JUDGE])
    heard = run.chunks()
    channel = stage.keys.chunks(RunRef("search", run.id))
    for message in (
        '{"job": 0, "number": 1, "text": "Hel"}',
        "no JSON",
        "[" * 100_000,
        '{"job": "x"}',
        '{"job": 1, "number": 1, "text": "a judge speaks"}',
        '{"job": 2, "number": 1, "text": "lo"}',
    ):
        stage.redis.publish(channel, message)
    run.cancel()
    stage.admit()
    assert list(heard) == [Chunk(0, "Hel", 1), Chunk(1, "lo", 1)]


def announced(stage: Stage, *pieces: tuple[int, str | None]) -> list[tuple[str, int, bool]]:
    """What a listener hears of pieces of one item: ``(attempt, text)``, ``None`` for a void."""
    run = submit(stage, rows=1)
    heard = run.chunks()
    for number, text in pieces:
        said: dict[str, Any] = {"void": True} if text is None else {"text": text}
        message = json.dumps({"job": 0, "number": number} | said)
        stage.redis.publish(stage.keys.chunks(RunRef("search", run.id)), message)
    run.cancel()
    stage.admit()
    return [(each.text, each.attempt, each.void) for each in heard]


def test_a_chunk_says_which_attempt_it_belongs_to_and_when_that_is_void(stage: Stage) -> None:
    assert announced(stage, (1, "Hel"), (1, None), (2, "Hi")) == [
        ("Hel", 1, False),
        ("", 1, True),
        ("Hi", 2, False),
    ]


def test_an_attempt_whose_worker_died_is_void_once_the_next_one_streams(stage: Stage) -> None:
    assert announced(stage, (1, "Hel"), (3, "Hi")) == [("Hel", 1, False), ("", 1, True), ("Hi", 3, False)]


def test_what_a_void_attempt_still_sends_is_dropped(stage: Stage) -> None:
    pieces = announced(stage, (1, "Hel"), (2, "Hi"), (1, "lo"), (1, None), (2, None), (2, "late"))

    assert pieces == [("Hel", 1, False), ("", 1, True), ("Hi", 2, False), ("", 2, True)]


def test_listening_goes_on_after_a_restart_of_redis(stage: Stage) -> None:
    run = submit(stage, rows=1)
    heard = run.chunks()
    server = stage.redis.connection_pool.connection_kwargs["server"]
    server.connected = False

    def back() -> None:
        server.connected = True
        run.cancel()
        stage.admit()

    stage.then(lambda: None, back)
    assert list(heard) == []
    assert len(stage.waits) == 2


def test_a_status_counts_what_happened(stage: Stage) -> None:
    run = submit(stage, rows=3, evaluators=[JUDGE])
    stage.answer(run.id, 2)
    status = run.status()
    assert (status.state, status.items, status.items_done) == (RunState.RUNNING, 3, 0)
    assert (status.jobs, status.jobs_done, status.in_flight) == (6, 2, 0)
    assert status.by_state == {JobState.SUCCEEDED: 2}
    assert [(lane.lane, lane.known, lane.done) for lane in status.lanes] == [
        ("sim:fast", 3, 2),
        ("sim:judge", 3, 0),
    ]
    assert status.started_ms is not None
    assert status.finished_ms is None


def test_a_summary_splits_the_time_into_predict_and_score(stage: Stage) -> None:
    run = submit(stage, rows=2, evaluators=[JUDGE])
    fields = {"calls:task": 2, "calling_ms:task": 900, "open:task": 0, "open_ms:task": 1000}
    stage.redis.hset(stage.keys.state(RunRef("search", run.id)), mapping=fields)
    run.cancel()
    stage.admit()

    summed = run.summary()
    assert (summed.predict, summed.score) == (RoleTime(2, 0.1, 0.9), None)
    assert summed.to_dict()["predict"] == {"calls": 2, "waiting_s": 0.1, "calling_s": 0.9}
