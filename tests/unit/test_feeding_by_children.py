"""What a team may make as long as it likes is rendered and scored by children: a tick only asks for it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from redis import Redis

from fairlane.core.errors import CutOff, NoChild
from fairlane.model.choices import Message
from fairlane.model.evaluators import Regex
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.run import RunRef
from fairlane.pipeline.rendering import Rendering
from fairlane.store.read.reading import RecordReader
from fairlane_scheduler.feed.feeder import AWAITED_MS
from fairlane_scheduler.state.backlog import ActiveRun
from tests.support.scheduler_parts import Parts
from tests.support.slow_pool import SlowPool

HARD = "{{ q | string | upper }}"
ROWS = 120


@pytest.fixture
def pool() -> SlowPool:
    return SlowPool()


@pytest.fixture
def parts(fake_redis: Redis, pool: SlowPool, monkeypatch: pytest.MonkeyPatch) -> Parts:
    """A scheduler with children. Jinja and regular expressions outside of them fail the test."""
    parts = Parts(fake_redis, pool=pool)

    def only_in_children(target: str) -> None:
        module, _, name = target.rpartition(".")
        before = getattr(__import__(module, fromlist=[name]), name)

        def guarded(*args: Any, **kwargs: Any) -> Any:
            assert pool.works, f"{name} ran in the scheduler's tick"
            return before(*args, **kwargs)

        monkeypatch.setattr(target, guarded)

    only_in_children("fairlane.sandbox.pieces.complete_task")
    only_in_children("fairlane_scheduler.feed.uncalled_items.render_evaluations")
    task = Rendering.task

    def guarded_task(self: Rendering, *args: Any, **kwargs: Any) -> Any:
        hard = HARD in self.plan.spec.model_dump_json()
        assert pool.works or not hard, "a template ran in the scheduler's tick"
        return task(self, *args, **kwargs)

    monkeypatch.setattr(Rendering, "task", guarded_task)
    return parts


def tick(parts: Parts) -> None:
    parts.clock.advance((AWAITED_MS + 1) / 1000)
    parts.feeder.tick(parts.moment())


def hard(parts: Parts, rows: int = ROWS, **more: Any) -> ActiveRun:
    return parts.admit(rows, prompts=((Message(role="user", content=HARD),),), **more)


def records(parts: Parts, run: ActiveRun, count: int) -> list[Record]:
    return RecordReader(parts.redis, parts.keys, run.plan.spec).records(range(count))


def test_a_tick_asks_for_a_batch_and_feeds_it_once_it_is_done(parts: Parts, pool: SlowPool) -> None:
    run = hard(parts)
    tick(parts)
    assert run.cursor == 0
    asked = len(pool.waiting)
    assert asked > 100, "children get the items behind the first, too"
    tick(parts)
    assert (run.cursor, len(pool.waiting)) == (0, asked), "nothing is asked for twice"
    for _ in range(5):
        pool.do_all()
        tick(parts)
    assert parts.backlog.count("sim:fast", run.ref) == ROWS
    assert pool.waiting == []


def test_a_team_that_waits_for_its_children_delays_no_other(parts: Parts, pool: SlowPool) -> None:
    slow, other = hard(parts, team="hostile", run="r1"), parts.admit(50, team="victim", run="r2")
    tick(parts)
    assert slow.cursor == 0
    assert other.cursor == 50
    assert {team for team, *_ in pool.waiting} == {"hostile"}


def test_prompts_past_a_limit_are_invalid_and_hold_their_run(parts: Parts, pool: SlowPool) -> None:
    run = hard(parts)
    tick(parts)
    pool.do_all(CutOff("prompts", "computed for more than 2 s", "sandbox.cpu_seconds"))
    tick(parts)
    assert run.paused
    assert run.cursor > 0
    (first, *_) = records(parts, run, 1)
    assert first.state is JobState.INVALID
    assert "sandbox.cpu_seconds" in str(first.error)


def test_outputs_that_rows_give_are_scored_by_children(parts: Parts, pool: SlowPool) -> None:
    rows = [{"q": n, "out": "no 7" if n % 2 else "7"} for n in range(40)]
    run = parts.admit(
        rows, prompts=(), models=(), output_field="out", evaluators=(Regex(name="seven", pattern="^7"),)
    )
    tick(parts)
    assert (run.cursor, len(pool.waiting)) == (0, 40)
    pool.do_all()
    tick(parts)
    assert run.cursor == 40
    found = records(parts, run, 40)
    assert [list(record.scores.values()) for record in found] == [[float(n % 2 == 0)] for n in range(40)]


def test_scores_past_a_limit_are_empty_and_keep_the_output(parts: Parts, pool: SlowPool) -> None:
    rows = [{"q": n, "out": "7"} for n in range(2)]
    run = parts.admit(
        rows, prompts=(), models=(), output_field="out", evaluators=(Regex(name="seven", pattern="^7"),)
    )
    tick(parts)
    pool.do_all(CutOff("evaluators", "computed for more than 2 s", "sandbox.cpu_seconds"))
    tick(parts)
    first = records(parts, run, 1)[0]
    assert (first.state, first.output) == (JobState.SUCCEEDED, "7")
    assert list(first.scores.values()) == [None]
    assert "sandbox.cpu_seconds" in str(first.score_errors)


def test_plain_templates_need_no_child(parts: Parts, pool: SlowPool) -> None:
    run = parts.admit(ROWS)
    for _ in range(4):
        tick(parts)
    assert run.cursor > 0
    assert pool.waiting == []


def test_what_a_run_that_ended_had_asked_for_is_given_up(parts: Parts, pool: SlowPool) -> None:
    run = hard(parts)
    tick(parts)
    parts.feeder.forget(RunRef(run.ref.team, run.ref.run))
    assert all(future.cancelled() for *_, future in pool.waiting)


def test_a_team_with_as_much_waiting_as_it_may_is_fed_later(
    parts: Parts, pool: SlowPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = hard(parts)

    def full(*_: Any) -> Future[Any]:
        failed: Future[Any] = Future()
        failed.set_exception(NoChild("too many"))
        return failed

    with monkeypatch.context() as patched:
        patched.setattr(pool, "submit", full)
        tick(parts)
    for _ in range(4 * ROWS):
        tick(parts)
        pool.do_all()
    assert run.cursor == ROWS
