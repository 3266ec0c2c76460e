"""Runs are admitted once, fed in order, and closed with everything they own on its way out."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.model.ending import CANCELLED, ReadyJob, RecordedJob
from fairlane.model.job import JobState
from fairlane.model.run import Plan, RunRef
from fairlane.store.write.runs.run_control import restore_active
from tests.support.conservation import Books
from tests.support.contents import read_contents
from tests.support.deployment import TTL_MS, Deployment, entry, make_spec, payload

pytestmark = pytest.mark.usefixtures("no_keys_left")


def test_an_admitted_run_keeps_what_its_client_uploaded(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.submit(rows=2)
    assert d.runs.active() == [ref]
    assert d.runs.plan(ref)
    assert {real_redis.ttl(key) for key in (d.keys.spec(ref), d.keys.rows(ref))} == {-1}
    assert d.state(ref)["started_ms"] == str(d.now_ms)
    Books(real_redis, d.keys).check()
    d.cancel(ref)


def test_an_ended_run_is_not_restored_to_the_active_ones(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ended, running = d.submit(run="r1"), d.submit(run="r2")
    d.cancel(ended)
    real_redis.delete(d.keys.active)
    assert restore_active(real_redis, d.keys, [ended, running]) == [running]
    assert d.runs.active() == [running]
    d.cancel(running)


def test_only_a_run_that_is_open_and_running_gets_more_rows(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    closed, ended, running = (d.submit(run=name, rows=1) for name in ("closed", "ended", "running"))
    for ref in (ended, running):
        real_redis.hset(d.keys.state(ref), "open", 1)
    d.cancel(ended)
    for ref, taken in ((closed, 0), (ended, 0), (running, 1)):
        plan = d.runs.plan(ref)
        assert plan is not None
        assert d.runs.extend(ref, plan, 3, d.epoch, d.now_ms, last=False) == taken
    for ref in (closed, running):
        d.cancel(ref)


def test_a_run_is_admitted_once(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.submit(rows=2)
    d.lane()
    d.feed(ref, 1)
    before = read_contents(real_redis)
    spec = make_spec(ref.team, ref.run, 5, 0, d.now_ms)
    assert d.runs.admit(Plan(spec=spec), d.epoch, d.now_ms) == 0
    assert not d.runs.refuse(ref, "no", 0, d.epoch, d.now_ms)
    assert read_contents(real_redis) == before
    d.cancel(ref)
    assert d.runs.admit(Plan(spec=spec), d.epoch, d.now_ms) == 0


def test_a_run_without_items_is_complete_at_once(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.submit(rows=0)
    assert d.state(ref)["state"] == "completed"
    assert d.runs.active() == []
    assert 0 < real_redis.pttl(d.keys.rows(ref)) <= TTL_MS


def test_a_refused_run_says_why_and_expires(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.upload(make_spec("search", "r1", 3, 0, d.now_ms))
    assert d.runs.refuse(ref, "model: no such connection", d.now_ms, d.epoch, d.now_ms)
    assert (d.state(ref)["state"], d.state(ref)["reason"]) == ("refused", "model: no such connection")
    assert 0 < real_redis.pttl(d.keys.spec(ref)) <= TTL_MS
    assert real_redis.zrange(d.keys.runs("search"), 0, -1) == [b"r1"]


def test_a_batch_longer_than_a_lua_stack_is_fed_whole(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=20_001)
    assert len(d.list(d.keys.fresh(ref, "sim:fast"))) == 20_001
    assert d.list(d.keys.fresh(ref, "sim:fast"))[::5000] == [
        "0:0:10:0",
        "5000:0:10:0",
        "10000:0:10:0",
        "15000:0:10:0",
        "20000:0:10:0",
    ]
    d.cancel(ref)


def test_feeding_no_jobs_only_moves_the_cursor(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.submit(rows=2)
    d.lane()
    assert d.runs.feed(ref, d.epoch, 0, 0, {"sim:fast": []}, [], d.now_ms) == 1
    assert d.feed(ref, 2) == 1
    Books(real_redis, d.keys).check()
    d.cancel(ref)


def test_feeding_from_a_wrong_cursor_feeds_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.submit(rows=5)
    d.lane()
    assert d.feed(ref, 2) == 1
    before = read_contents(real_redis)
    assert d.runs.feed(ref, d.epoch, 0, 2, {"sim:fast": [entry(0, 1), entry(1, 1)]}, [], d.now_ms) == 0
    assert read_contents(real_redis) == before
    d.cancel(ref)


def test_items_that_can_never_run_end_here_and_may_complete_the_run(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.submit(rows=2, judges=["sim:judge"])
    over = [
        RecordedJob(job, state, payload(state), lane)
        for job, state, lane in [
            (0, JobState.INVALID, ""),
            (1, JobState.SKIPPED, "sim:judge"),
            (2, JobState.INVALID, ""),
            (3, JobState.SKIPPED, "sim:judge"),
        ]
    ]
    assert d.runs.feed(ref, d.epoch, 0, 1, {}, over[:2], d.now_ms) == 1
    Books(real_redis, d.keys).check()
    assert d.runs.feed(ref, d.epoch, 1, 2, {}, over[2:], d.now_ms) == 2
    Books(real_redis, d.keys).check()
    assert d.list(d.keys.finished(ref)) == ["0", "1"]
    assert (d.count(ref, "n:invalid"), d.count(ref, "n:skipped")) == (2, 2)
    assert (d.count(ref, "known:sim:judge"), d.count(ref, "over:sim:judge")) == (2, 2)


def test_cancelling_takes_every_job_and_frees_calls_in_flight(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane("sim:judge")
    ref = d.submit(rows=12, judges=["sim:judge"])
    d.lane("sim:fast", max_concurrency=6)
    d.feed(ref, 10)
    flying = d.start(ref, 6)
    d.finish(flying[0], follow=[ReadyJob(entry(1, 5, 1), "sim:judge")])
    d.finish(flying[1], follow=[ReadyJob(entry(3, 5, 1), "sim:judge")])
    d.defer(flying[2])
    d.defer(flying[3], delay_ms=500)
    judge = d.start(ref, lane="sim:judge")[0]
    d.dirty()
    assert d.cancel(ref) == 22
    assert d.dirty() >= {"sim:fast", "sim:judge"}
    assert d.lanes.on_slots(["sim:fast", "sim:judge"]) == {"sim:fast": 0, "sim:judge": 0}
    assert d.leases.count() == 0
    state = d.state(ref)
    assert (state["jobs_done"], state["n:cancelled"], state["n:succeeded"]) == ("24", "22", "2")
    Books(real_redis, d.keys).check()
    assert [d.claim(flying[4], "w2"), d.finish(flying[4]), d.finish(judge)] == [None, None, None]
    assert d.count(ref, "late") == 2
    d.advance(500)
    assert d.promote() == 0


def test_cancelling_is_announced_to_every_machine(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane()
    with d.redis.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(d.keys.control)
        while not heard.subscribed:
            heard.get_message(timeout=1)
        heard.get_message(timeout=1)
        d.cancel(ref)
        message = heard.get_message(timeout=5)
    assert message is not None
    assert message["data"] == b"cancel:search/r1"


def test_a_run_that_is_not_running_is_not_cancelled(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    assert d.cancel(RunRef("search", "unknown")) == -1
    ref = d.submit(rows=0)
    before = read_contents(real_redis)
    assert d.cancel(ref) == -1
    assert read_contents(real_redis) == before


def test_cancelling_finds_lanes_that_the_caller_did_not_name(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane("sim:judge")
    ref = d.submit(rows=2, judges=["sim:judge"])
    d.lane()
    d.feed(ref, 2)
    d.finish(d.start(ref)[0], follow=[ReadyJob(entry(1, 5, 1), "sim:judge")])
    d.start(ref, lane="sim:judge")
    assert d.runs.end(ref, [], CANCELLED, d.epoch, d.now_ms) == 3
    assert d.lanes.on_slots(["sim:fast", "sim:judge"]) == {"sim:fast": 0, "sim:judge": 0}
    Books(real_redis, d.keys).check()


def test_at_a_runs_end_jobs_done_equal_the_known_jobs_of_each_lane(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane("sim:judge")
    ref = d.submit(rows=2, judges=["sim:judge"])
    d.lane()
    d.feed(ref, 2)
    first, second = d.start(ref, 2)
    d.finish(first, follow=[ReadyJob(entry(1, 5, 1), "sim:judge")])
    d.finish(second, state=JobState.FAILED, follow=[RecordedJob(3, JobState.SKIPPED, "{}", "sim:judge")])
    d.finish(d.start(ref, lane="sim:judge")[0])
    state = d.state(ref)
    assert state["state"] == "completed"
    for lane in ("sim:fast", "sim:judge"):
        assert state[f"known:{lane}"] == state[f"over:{lane}"] == "2"
