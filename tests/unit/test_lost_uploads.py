"""Redis may lose its last second: what a run loses with it is named, and what is left stays readable."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane import RunLost
from fairlane.cli.runs.run_views import print_run
from fairlane.model.run import RunRef, RunState
from tests.support.scheduler_parts import Parts
from tests.support.stage import Stage

ROWS_A_PAGE = 500
ROWS = 2_300


def submit(stage: Stage, rows: int = ROWS) -> Any:
    return stage.client.submit(numbered(rows), "{{ question }}", model="sim:fast")


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"question": n} for n in range(count)]


def ref_of(run: Any) -> RunRef:
    return RunRef(run.team, run.id)


def lose(stage: Stage, run: Any, *pages: int) -> None:
    assert stage.redis.hdel(stage.keys.rows(ref_of(run)), *map(str, pages)) == len(pages)


def test_a_submission_whose_rows_were_lost_meanwhile_ends_with_an_error(stage: Stage) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        for number, row in enumerate(numbered(ROWS)):
            if number == 4 * ROWS_A_PAGE:
                (key,) = stage.redis.scan_iter("*:rows")
                assert stage.redis.hdel(key, "0") == 1
            yield row

    with pytest.raises(RunLost, match=r"1 of its 5 pages of rows"):
        stage.client.submit(rows(), "{{ question }}", model="sim:fast")
    assert stage.redis.exists(stage.keys.inbox("search")) == 0
    assert list(stage.redis.scan_iter("*:rows")) == []


@pytest.mark.parametrize("lost", [(0,), (2,), (1, 3)])
def test_a_run_whose_rows_are_missing_is_rejected_with_what_to_do(
    parts: Parts, lost: tuple[int, ...]
) -> None:
    spec = parts.spec(40, page_rows=10)
    ref = parts.upload(spec, numbered(40))
    parts.redis.hdel(parts.keys.rows(ref), *map(str, lost))
    parts.receiver.tick(None, parts.moment())
    state = parts.state(ref)
    assert state["state"] == RunState.REFUSED
    assert f"rows: {len(lost)} of 4 pages are missing" in state["reason"]
    assert "submit the run again" in state["reason"]


@pytest.mark.filterwarnings("ignore:.*Redis has lost rows of it")
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lost=st.sets(st.integers(0, 4), min_size=1))
def test_rows_that_are_lost_later_are_empty_and_all_else_is_readable(
    fake_redis: Redis, lost: set[int]
) -> None:
    fake_redis.flushdb()
    stage = Stage(fake_redis)
    run = submit(stage)
    stage.admit()
    lose(stage, run, *lost)
    stage.answer(run.id, 5)
    stage.deployment.cancel(ref_of(run))
    for records in (list(run.results()), sorted(run.stream(), key=lambda record: record.item)):
        assert [record.output for record in records[:6]] == [*(f"answer {n}" for n in range(5)), None]
        there = [{} if n // ROWS_A_PAGE in lost else {"question": n} for n in range(ROWS)]
        assert [dict(record.row) for record in records] == there
    assert run.summary().by_state == {"succeeded": 5, "cancelled": ROWS - 5}


def test_a_page_that_is_damaged_or_shorter_later_has_empty_rows(stage: Stage) -> None:
    run = submit(stage, 3)
    stage.admit()
    stage.answer(run.id, 3)
    for page in (b"no page", b""):
        stage.redis.hset(stage.keys.rows(ref_of(run)), "0", page)
        assert [dict(record.row) for record in run.results()] == [{}, {}, {}]


def test_a_run_whose_request_was_lost_says_so(stage: Stage) -> None:
    run = submit(stage, 3)
    assert "as a rule for less than a second" in run.why().sentence
    stage.redis.delete(stage.keys.inbox("search"))
    assert run.status().state is RunState.SUBMITTED
    assert "Redis has lost its request" in run.why().sentence
    assert "Submit it again" in run.why().sentence


@pytest.mark.parametrize("read", ["wait", "results", "stream", "summary"])
def test_waiting_for_a_run_whose_request_was_lost_ends_with_an_error(stage: Stage, read: str) -> None:
    run = submit(stage, 3)
    stage.redis.delete(stage.keys.inbox("search"))
    with pytest.raises(RunLost, match="Submit it again"):
        list(getattr(run, read)())
    assert 1 <= sum(stage.waits) <= 30


def test_a_run_that_waits_behind_others_in_the_inbox_is_not_lost(stage: Stage) -> None:
    others = [submit(stage, 1) for _ in range(20)]
    run = submit(stage, 3)
    stage.then(*[lambda: None] * 40, stage.admit, lambda: stage.answer(run.id, 3))
    assert run.wait().state is RunState.COMPLETED
    assert {other.status().state for other in others} == {RunState.RUNNING}


def test_the_error_survives_a_process_pool() -> None:
    error = copy.copy(RunLost("r1", "2 pages"))
    assert (error.run_id, error.what, str(error)) == ("r1", "2 pages", str(RunLost("r1", "2 pages")))


def test_a_run_whose_request_is_lost_says_so_in_its_status(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    run = submit(stage, 10)
    assert run.status().reason is None
    stage.redis.delete(stage.keys.inbox("search"))
    for status in (run.status(), stage.client.run(run.id).status()):
        assert status.state is RunState.SUBMITTED
        assert status.reason is not None
        assert "Submit it again" in status.reason
        print_run(status, status.submitted_ms)
        assert "Submit it again" in capsys.readouterr().out
    assert "Submit it again" in run.why().sentence
