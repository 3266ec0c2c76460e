"""A paused run starts nothing, whatever happens meanwhile, loses nothing, and goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.decision import PAUSED, unsent
from fairlane.model.job import Attempt
from fairlane.model.run import RunRef, RunState
from fairlane.store.write.permits import Offer
from tests.support.deployment import Deployment

LANE = "sim:fast"
ACTS = ["take", "end", "retry", "due", "lose", "pause", "resume", "elect"]


def pause(d: Deployment, ref: RunRef) -> bool:
    return d.runs.pause(ref, "ann@host", d.epoch, d.now_ms)


def resume(d: Deployment, ref: RunRef) -> bool:
    return d.runs.resume(ref, "ann@host", d.epoch, d.now_ms)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bounded=st.booleans(), acts=st.lists(st.sampled_from(ACTS), max_size=40))
def test_no_permit_is_granted_while_paused_and_none_is_missing_after(
    real_redis: Redis, bounded: bool, acts: list[str]
) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=8)
    if bounded:
        real_redis.hset(d.keys.state(ref), mapping={"bounded": 1, "max_concurrent": 3})
    running: list[Attempt] = []
    paused = False
    for act in acts:
        if act == "take":
            taken = d.take(ref, 2)
            assert not (paused and taken)
            for attempt in taken:
                assert d.claim(attempt) is not None, "what was granted may be called"
            running += taken
        elif act == "end" and running:
            d.finish(running.pop())
        elif act == "retry" and running:
            d.defer(running.pop(), delay_ms=50)
        elif act == "lose" and running:
            d.recover(running.pop(), dead_worker="w1", max_attempts=99)
        elif act == "due":
            d.advance(100)
            d.promote()
        elif act == "pause" and d.state(ref)["state"] == RunState.RUNNING:
            assert pause(d, ref) is not paused
            paused = True
        elif act == "resume" and d.state(ref)["state"] == RunState.RUNNING:
            assert resume(d, ref) is paused
            paused = False
        elif act == "elect":
            d.elect("scheduler-2")
    if d.state(ref)["state"] == RunState.RUNNING:
        resume(d, ref)
    while d.state(ref)["state"] == RunState.RUNNING:
        d.advance(100)
        d.promote()
        running += [attempt for attempt in d.take(ref) if d.claim(attempt)]
        while running:
            d.finish(running.pop())
    assert d.count(ref, "n:succeeded") == 8


def test_a_paused_run_delays_no_other(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=5)
    other = d.submit(run="r2", rows=5)
    d.feed(other, 5)
    pause(d, ref)
    grant = d.ask([Offer(ref, 3), Offer(other, 3)])
    assert [permit.offer for permit in grant.permits] == [1, 1, 1]
    assert [(kept.offer, kept.bound, kept.until_ms) for kept in grant.delayed] == [(0, "run_paused", 0)]


def test_resuming_wakes_every_lane_of_the_run(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2)
    real_redis.sadd(d.keys.run_lanes(ref), "sim:judge")
    pause(d, ref)
    assert d.take(ref) == []
    d.dirty()
    resume(d, ref)
    assert d.dirty() == {LANE, "sim:judge"}
    assert len(d.take(ref)) == 2


def test_only_a_running_run_is_paused(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2)
    assert not pause(d, RunRef("search", "none"))
    assert not real_redis.exists(d.keys.state(RunRef("search", "none")))
    d.cancel(ref)
    assert not pause(d, ref)
    assert "paused_ms" not in d.state(ref)


@pytest.mark.parametrize("act", [pause, resume])
def test_a_replaced_leader_can_neither_pause_nor_resume(
    real_redis: Redis, act: Callable[[Deployment, RunRef], bool]
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2)
    if act is resume:
        pause(d, ref)
    before, old = d.state(ref), d.epoch
    d.elect("scheduler-2")
    d.epoch = old
    assert not act(d, ref)
    assert d.state(ref) == before


def test_a_paused_run_can_be_cancelled_and_is_not_paused_any_more(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=3)
    pause(d, ref)
    assert d.cancel(ref) == 3
    assert not resume(d, ref)
    assert d.state(ref)["state"] == RunState.CANCELLED


def test_a_run_keeps_when_it_was_paused(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2)
    assert d.runs.extent(ref).pauses == ()
    pauses: list[tuple[int, int]] = []
    for _ in range(103):
        since = d.now_ms
        pause(d, ref)
        d.advance(1000)
        assert d.runs.extent(ref).pauses == tuple(pauses[-100:])
        resume(d, ref)
        pauses.append((since, d.now_ms))
        d.advance(10)
    assert d.runs.extent(ref).pauses == tuple(pauses[-100:])
    assert not d.runs.extent(ref).paused


@pytest.mark.parametrize("what", ["run", "lane"])
def test_a_permit_that_is_claimed_after_the_pause_is_returned_at_no_cost(
    real_redis: Redis, what: str
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=4, requests_per_minute=600, burst_seconds=1.0)
    before, after = d.take(ref, 2)
    started = d.claim(before)
    assert started is not None
    assert (started.sendable, started.paused) == (True, False)
    if what == "run":
        pause(d, ref)
    else:
        d.lanes.pause(LANE)
    d.advance(3_000)
    late = d.claim(after)
    assert late is not None
    assert (late.sendable, late.paused) == (False, True)
    assert d.report(after, unsent(PAUSED).feedback, done=False) is not None
    assert d.finish(before), "what had begun ends as it does"
    if what == "run":
        resume(d, ref)
    else:
        d.lanes.resume(LANE, d.now_ms)
    d.advance(3_000)
    again = [d.claim(attempt) for attempt in d.take(ref, 4)]
    assert len(again) == 3
    assert all(claim and claim.sendable and claim.attempts == 0 for claim in again)
