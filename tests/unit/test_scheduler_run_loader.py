"""Loading: all that a scheduler knows of runs can be read again from Redis."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis
from structlog.testing import capture_logs

from fairlane.model.ending import Completion
from fairlane.model.job import Feedback, JobState
from fairlane.model.results import TaskResult
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from fairlane.store.run_queries import RunQueries
from fairlane_scheduler.feed import run_loader
from tests.support.scheduler_parts import Parts


def test_what_another_leader_admitted_and_fed_is_found(parts: Parts, fake_redis: Redis) -> None:
    run = parts.admit(300, judges=["sim:judge"])
    parts.feeder.tick(parts.moment())
    fake_redis.rpush(parts.keys.hot(run.ref, "sim:judge"), "1:4:16:1")
    fake_redis.sadd(parts.keys.run_lanes(run.ref), "sim:judge")
    heir = Parts(fake_redis)

    assert heir.loader.refresh() is False

    loaded = heir.backlog.get(run.ref)
    assert loaded is not None
    assert (loaded.cursor, loaded.plan, loaded.task_lanes) == (128, run.plan, {"sim:fast"})
    assert heir.backlog.queued("sim:fast") == {run.ref: 128}
    assert heir.backlog.queued("sim:judge") == {run.ref: 1}


def test_a_lane_that_tasks_share_with_judges_is_a_lane_of_tasks(parts: Parts, fake_redis: Redis) -> None:
    rows = [{"q": n, "lane": "fast" if n % 2 else "slow"} for n in range(20)]
    run = parts.admit(rows, model="sim:{{ lane }}", judges=["sim:fast", "sim:judge"])
    parts.feed_all()
    heir = Parts(fake_redis)

    heir.loader.refresh()

    loaded = heir.backlog.get(run.ref)
    assert loaded is not None
    assert loaded.task_lanes == {"sim:fast", "sim:slow"}


def test_a_run_that_has_ended_is_forgotten(parts: Parts, fake_redis: Redis) -> None:
    run = parts.admit(10)
    parts.feed_all()
    fake_redis.hset(parts.keys.state(run.ref), "state", "completed")
    fake_redis.srem(parts.keys.active, str(run.ref))

    parts.loader.refresh()

    assert parts.backlog.get(run.ref) is None
    assert parts.backlog.waiting_lanes() == []
    assert not fake_redis.exists(parts.keys.active)


def test_the_set_of_active_runs_is_rebuilt_where_redis_has_lost_it(parts: Parts, fake_redis: Redis) -> None:
    runs = [parts.admit(3, run=name).ref for name in ("r1", "r2", "r3")]
    parts.feed_all()
    fake_redis.hset(parts.keys.state(runs[2]), "state", "cancelled")
    fake_redis.delete(parts.keys.active)

    with capture_logs() as logs:
        parts.loader.refresh()

    assert set(parts.runs.active()) == set(runs[:2])
    assert {run.ref for run in parts.backlog.runs()} == set(runs[:2])
    assert parts.backlog.queued("sim:fast") == {runs[0]: 3, runs[1]: 3}, "nothing was loaded anew"
    lines = [line for line in logs if line["event"] == "index_restored"]
    assert [(line["index"], line["entries"]) for line in lines] == [("active", 2)]


def test_many_runs_are_loaded_a_part_at_a_time(
    parts: Parts, fake_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_loader, "LOADED_AT_ONCE", 4)
    for n in range(10):
        parts.admit(1, run=f"r{n}")
    heir = Parts(fake_redis)

    assert [heir.loader.refresh() for _ in range(3)] == [True, True, False]
    assert len(list(heir.backlog.runs())) == 10


@pytest.mark.parametrize("plan", [None, '{"spec":{"surprise":1}}', "garbage"])
def test_a_plan_that_cannot_be_read_stops_nobody(parts: Parts, fake_redis: Redis, plan: str | None) -> None:
    broken, whole = parts.admit(1, run="broken"), parts.admit(1, run="whole")
    fake_redis.delete(parts.keys.plan(broken.ref))
    if plan is not None:
        fake_redis.set(parts.keys.plan(broken.ref), plan)
    heir = Parts(fake_redis)

    with capture_logs() as logs:
        heir.loader.refresh()

    assert heir.backlog.get(broken.ref) is None
    assert heir.backlog.get(whole.ref) is not None
    assert ("plan_unreadable" in [line["event"] for line in logs]) is (plan is not None)


def test_plans_that_cannot_be_read_do_not_keep_the_scheduler_busy(
    parts: Parts, fake_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_loader, "LOADED_AT_ONCE", 2)
    fake_redis.sadd(parts.keys.active, *(f"search/ghost{n}" for n in range(5)))

    assert parts.loader.refresh() is False


def test_forgetting_everything_leaves_nothing(parts: Parts) -> None:
    parts.admit(5, run="a")
    parts.admit(5, run="b")
    parts.feed_all()

    parts.loader.forget_all()

    assert list(parts.backlog.runs()) == []
    assert parts.backlog.waiting_lanes() == []
    assert parts.loader.plan(RunRef("search", "a")) is not None


def test_a_team_with_long_plans_holds_no_pass_and_no_other_teams_runs(
    parts: Parts, fake_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        parts.admit(1, run=f"r{number}", team="flood")
    other = parts.admit(1, team="search")
    heir, read = Parts(fake_redis), RunQueries.plan

    def slowly(queries: RunQueries, ref: RunRef) -> Any:
        heir.clock.advance(0.15)
        return read(queries, ref)

    monkeypatch.setattr(RunQueries, "plan", slowly)
    assert heir.loader.refresh() is True
    loaded = [run.ref for run in heir.backlog.runs()]
    assert len(loaded) == 2
    assert other.ref in loaded
    assert not heir.loader.complete
    while heir.loader.refresh():
        pass
    assert heir.loader.complete


def test_runs_that_nobody_can_read_keep_none_from_being_loaded(
    parts: Parts, fake_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_loader, "LOADED_AT_ONCE", 2)
    for number in range(5):
        broken = parts.admit(1, run=f"b{number}", team="flood")
        fake_redis.set(parts.keys.plan(broken.ref), "{}")
    whole = [parts.admit(1, run=f"w{number}").ref for number in range(5)]
    heir = Parts(fake_redis)
    for _ in range(6):
        heir.loader.refresh()
    assert {run.ref for run in heir.backlog.runs()} == set(whole)
    assert not heir.loader.complete


@pytest.mark.parametrize(
    "field", ["", "state", "steps", "items", "jobs", "jobs_done", "cursor", "started_ms"]
)
def test_a_run_of_whose_state_redis_has_lost_a_part_holds_up_no_other(parts: Parts, field: str) -> None:
    """A new leader loads all runs; an error of one of them would end each of its ticks."""
    lost, kept = parts.admit(2), parts.admit(2, run="r2")
    parts.loader.forget_all()
    key = parts.keys.state(lost.ref)
    parts.redis.hdel(key, field) if field else parts.redis.delete(key)
    parts.loader.refresh()
    assert parts.backlog.get(kept.ref) is not None


def test_items_that_went_first_end_once_though_their_rows_are_lost(parts: Parts) -> None:
    """Then nothing says any more that they went first."""
    rows = [{"q": n, "first": n < 1} for n in range(4)]
    run = parts.admit(rows, order={"serial_field": "first"}, page_rows=1)
    parts.feed_all()
    (attempt,) = parts.permits(run.ref, 1)
    parts.attempts.claim(attempt, "w1", 1000, parts.now_ms).run(parts.redis)
    payload, feedback = TaskResult(JobState.SUCCEEDED, output="yes").to_json(), Feedback("ok", Usage(1, 1))
    end = parts.attempts.finish(
        attempt, "w1", feedback, Completion(JobState.SUCCEEDED, payload), parts.now_ms
    )
    end.run(parts.redis)
    parts.redis.hset(parts.keys.state(run.ref), "cursor", 4)  # it has looked for others that go first
    parts.redis.delete(parts.keys.rows(run.ref))
    parts.loader.forget_all()
    parts.loader.refresh()
    parts.feed_all()
    counts = parts.state(run.ref)
    assert (counts["items_done"], counts["jobs_done"], counts["n:succeeded"]) == ("4", "4", "1")


def test_a_new_leader_finds_queues_though_the_set_of_lanes_is_lost(parts: Parts, fake_redis: Redis) -> None:
    run = parts.admit(3, judges=["sim:judge"])
    parts.feed_all()
    parts.redis.rpush(parts.keys.hot(run.ref, "sim:judge"), "1:1:1:1")
    parts.redis.delete(parts.keys.run_lanes(run.ref))
    heir = Parts(fake_redis)
    heir.loader.refresh()
    assert heir.backlog.queued("sim:fast") == {run.ref: 3}
    assert heir.backlog.queued("sim:judge") == {run.ref: 1}
