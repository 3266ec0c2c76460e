"""Redis may lose its last second while rows are added to a run: the writer has them still."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane import RunLost
from fairlane.client.submitting.row_writer import OPEN_PAGE_ROWS, PAGES_AHEAD
from fairlane.model.run import RunRef, RunState
from tests.support.scheduler_parts import Parts
from tests.support.stage import Stage

PAGES = 4
ROWS = (PAGES - 1) * OPEN_PAGE_ROWS + 7


def opened(stage: Stage) -> Any:
    return stage.client.open("{{ n }}", model="sim:fast", check=False)


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"n": n} for n in range(count)]


def rows_of(stage: Stage, run: Any) -> str:
    return stage.keys.rows(RunRef(run.team, run.id))


def scheduler(stage: Stage) -> Parts:
    """The scheduler that leads from now on."""
    stage.redis.delete(stage.keys.leader)
    return Parts(stage.redis)


@pytest.mark.parametrize("lost", [{0}, {1, 2}])
def test_pages_that_are_lost_while_rows_are_added_are_sent_again(stage: Stage, lost: set[int]) -> None:
    writer = opened(stage)
    writer.extend(numbered(3 * OPEN_PAGE_ROWS))
    stage.redis.hdel(rows_of(stage, writer.run), *map(str, lost))
    writer.extend(numbered(OPEN_PAGE_ROWS))
    assert stage.redis.hlen(rows_of(stage, writer.run)) == PAGES
    stage.redis.hdel(rows_of(stage, writer.run), "3")
    writer.close()
    assert stage.redis.hlen(rows_of(stage, writer.run)) == PAGES


@pytest.mark.filterwarnings("ignore:.*Redis has lost rows of it")
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lost=st.sets(st.integers(0, PAGES - 1), min_size=1))
def test_pages_that_are_lost_later_have_empty_rows(fake_redis: Redis, lost: set[int]) -> None:
    fake_redis.flushdb()
    stage = Stage(fake_redis)
    parts = scheduler(stage)
    writer = opened(stage)
    writer.extend(numbered(ROWS))
    run = writer.close()
    parts.receiver.tick(None, parts.moment())
    parts.redis.hdel(rows_of(stage, run), *map(str, lost))
    parts.feed_all()
    run.cancel()
    parts.receiver.tick(None, parts.moment())
    there = [{} if n // OPEN_PAGE_ROWS in lost else {"n": n} for n in range(ROWS)]
    for found in (run, stage.client.run(run.id)):
        for records in (list(found.results()), sorted(found.stream(), key=lambda record: record.item)):
            assert [dict(record.row) for record in records] == there
        assert sum(found.summary().by_state.values()) == ROWS


@pytest.mark.parametrize("read", ["wait", "results", "stream"])
def test_a_run_whose_closing_was_lost_is_closed_again(stage: Stage, read: str) -> None:
    parts = scheduler(stage)
    writer = opened(stage)
    parts.receiver.tick(None, parts.moment())
    run = writer.close()
    stage.redis.delete(stage.keys.inbox("search"))
    stage.then(*[lambda: parts.receiver.tick(None, parts.moment())] * 200)
    found = getattr(run, read)()
    if read != "wait":
        list(found)
    assert run.status().state is RunState.COMPLETED
    assert 5 <= sum(stage.waits) <= 30


def test_adding_rows_to_a_run_whose_submission_was_lost_ends_with_an_error(stage: Stage) -> None:
    writer = opened(stage)
    stage.redis.delete(stage.keys.inbox("search"))
    with pytest.raises(RunLost, match="Submit it again"):
        writer.extend(numbered((PAGES_AHEAD + 2) * OPEN_PAGE_ROWS))
    assert sum(stage.waits) <= 30
