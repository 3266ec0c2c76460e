"""Large pages of rows are decoded beside the leader's tick: no team's page delays another team's."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import wait

import pytest
from structlog.testing import capture_logs

from fairlane.datasets.rows import encode_page
from fairlane.model.results import TaskResult
from fairlane.model.run import RunRef
from fairlane.sandbox.pool import Pool
from fairlane.sandbox.process import Limits
from fairlane_scheduler.feed.feeder import AWAITED_MS, BATCH_ITEMS, BROKEN_RUN_PAUSE_MS, Feeder
from fairlane_scheduler.feed.placement import RowPages
from fairlane_scheduler.state.backlog import ActiveRun
from tests.support.scheduler_parts import Parts
from tests.support.worker_parts import lines

LARGE = [{"q": f"{n}-" + "x" * 4000} for n in range(200)]
PATIENCE_S = 60


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    pool = Pool(2, getattr(request, "param", Limits(cpu_s=20.0, wall_s=60.0)), {})
    yield pool
    pool.close()


def feeder(parts: Parts, pool: Pool) -> Feeder:
    sandbox = parts.settings.sandbox.model_copy(update={"hold_after": 2})
    settings = parts.settings.model_copy(update={"sandbox": sandbox})
    return Feeder(parts.runs, parts.backlog, parts.registry, parts.clock, settings, pool=pool)


def pages_of(feeder: Feeder) -> RowPages:
    return feeder._placement._pages


def ticks(parts: Parts, feeder: Feeder, run: ActiveRun, most: int = 30) -> None:
    """Feed a run to its end, in as many ticks as its pages and long prompts ask for."""
    for _ in range(most):
        work = feeder._placement._work
        assert work is not None
        wait([*pages_of(feeder)._awaited.values(), *work._asked.values()], PATIENCE_S)
        parts.clock.advance(AWAITED_MS / 1000)
        feeder.tick(parts.moment())
        parts.backlog.set_queued("sim:fast", run.ref, 0)
        if run.caught_up or run.paused:
            return


def test_a_run_waits_for_its_page_and_others_are_fed(parts: Parts, pool: Pool) -> None:
    large, other = parts.admit(LARGE, page_rows=200), parts.admit(10, team="other")
    fed = feeder(parts, pool)
    fed.tick(parts.moment())
    assert (large.cursor, other.cursor) == (0, 10)
    assert fed.wait_ms(parts.clock.monotonic_ms()) == AWAITED_MS
    wait(list(pages_of(fed)._awaited.values()), PATIENCE_S)
    parts.clock.advance(AWAITED_MS / 1000)
    fed.tick(parts.moment())
    assert large.cursor == BATCH_ITEMS
    ticks(parts, fed, large)
    assert large.cursor == 200
    assert parts.state(large.ref)["cursor"] == "200"
    fed.forget(large.ref)
    assert not pages_of(fed)._large_pages


def test_small_pages_start_no_child(parts: Parts, pool: Pool) -> None:
    run = parts.admit(50)
    feeder(parts, pool).tick(parts.moment())
    assert run.cursor == 50
    assert pool.pids == []


def test_a_row_of_a_large_page_that_is_too_large_is_invalid_alone(parts: Parts, pool: Pool) -> None:
    run = parts.admit([{"q": "x" * 300_000}, {"q": "y" * 1_500_000}, {"q": "z"}], page_rows=3)
    ticks(parts, feeder(parts, pool), run)
    assert parts.state(run.ref)["n:invalid"] == "1"
    stored = parts.redis.hget(parts.keys.results(run.ref), "1")
    assert stored is not None
    error = str(TaskResult.from_json(stored).error)
    assert "row 2: it has 1,500,008 bytes as JSON, at most 1,048,576 are allowed." in error
    assert "raise scheduler.limits.row_bytes at schedulers" in error


@pytest.mark.parametrize("pool", [Limits(cpu_s=0.05)], indirect=True)
def test_pages_that_run_over_make_their_items_invalid_and_then_the_run_is_paused(
    parts: Parts, pool: Pool
) -> None:
    run = parts.admit(9, page_rows=3)
    bomb = encode_page([{"q": [[]] * 500_000}] * 3)
    parts.redis.hset(parts.keys.rows(run.ref), mapping={str(n): bomb for n in range(3)})
    ticks(parts, feeder(parts, pool), run)
    state = parts.state(run.ref)
    assert (run.paused, state["n:invalid"]) == (True, "6")
    what = "2 of its pages, prompts or evaluators"
    assert state["paused_by"] == f"the scheduler, as {what} went past the limits of sandbox"
    stored = parts.redis.hget(parts.keys.results(run.ref), "0")
    assert stored is not None
    assert "rows: it was ended, as it computed for more than 0.05 s" in str(
        TaskResult.from_json(stored).error
    )


def test_a_run_that_is_forgotten_waits_for_nothing(parts: Parts, pool: Pool) -> None:
    run = parts.admit(LARGE, page_rows=200)
    fed = feeder(parts, pool)
    fed.tick(parts.moment())
    fed.forget(run.ref)
    assert not pages_of(fed)._awaited
    fed.forget(RunRef("search", "nothing"))


def test_where_no_child_starts_the_run_is_tried_again_later(parts: Parts, pool: Pool) -> None:
    run, other = parts.admit(LARGE, page_rows=200), parts.admit(10, team="other")
    pool.close()
    fed = feeder(parts, pool)
    fed.tick(parts.moment())
    parts.clock.advance(AWAITED_MS / 1000)
    with capture_logs() as logs:
        fed.tick(parts.moment())
    assert ["NoChild" in line["error"] for line in lines(logs, "feeding_failed")] == [True]
    assert (run.cursor, other.cursor) == (0, 10)
    assert fed.wait_ms(parts.clock.monotonic_ms()) == BROKEN_RUN_PAUSE_MS
