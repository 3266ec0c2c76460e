"""A call that its provider continues stays in flight, holds no slot, and is known to the next attempt."""

from __future__ import annotations

import pytest
from redis import Redis

from tests.support.conservation import Books
from tests.support.contents import read_contents
from tests.support.deployment import LEASE_MS, Deployment

LANE = "sim:fast"


def test_a_pending_call_holds_no_slot_but_counts_as_in_flight(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=4, max_concurrency=3)
    first, second = d.start(ref, 2)
    assert d.wait_for(first)
    assert d.lanes.on_slots([LANE]) == {LANE: 1}
    grant = d.ask(ref, count=5)
    assert (len(grant.permits), grant.reason) == (1, "window")
    assert (grant.in_flight, grant.pending) == (3, 1)
    d.finish(first)
    d.finish(second)
    assert d.lanes.on_slots([LANE]) == {LANE: 1}
    Books(real_redis, d.keys).check()


def test_reporting_a_pending_call_twice_frees_one_slot(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    (attempt,) = d.start(d.queued_lane(), 1)
    assert d.wait_for(attempt)
    before = read_contents(real_redis)
    assert d.wait_for(attempt)
    assert read_contents(real_redis) == before


def test_a_lane_that_waits_for_a_slot_is_woken(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2)
    (attempt,) = d.start(ref, 1)
    real_redis.sadd(d.keys.starved, "sim:other")
    d.dirty()
    d.wait_for(attempt, frees_slot=False)
    assert d.dirty() == set()
    d.wait_for(attempt)
    assert d.dirty() == {"sim:other"}


@pytest.mark.parametrize("worker", ["w2", ""])
def test_only_the_worker_that_holds_a_lease_can_report_it_pending(real_redis: Redis, worker: str) -> None:
    d = Deployment(real_redis)
    (attempt,) = d.start(d.queued_lane(), 1)
    before = read_contents(real_redis)
    assert not d.wait_for(attempt, worker)
    assert read_contents(real_redis) == before


@pytest.mark.parametrize("handle", ["p1", "a:b:c", "9:9:9", "\u00e9 {}"])
def test_the_next_attempt_of_a_lost_job_gets_the_pending_calls_handle(real_redis: Redis, handle: str) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    (attempt,) = d.start(ref, 1)
    d.wait_for(attempt, handle=handle)
    d.advance(LEASE_MS)
    assert d.recover(attempt) == 1
    assert d.lanes.on_slots([LANE]) == {LANE: 0}
    again = d.claim(d.take(ref, 1)[0])
    assert again is not None
    assert (again.handle, again.attempts) == (handle, 1)
    Books(real_redis, d.keys).check()


def test_a_retry_gets_the_handle_only_if_the_last_attempt_kept_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    for kept in ("p1", None):
        (attempt,) = d.take(ref, 1)
        d.claim(attempt)
        d.wait_for(attempt, handle="p1")
        d.defer(attempt, handle=kept)
        (again,) = d.take(ref, 1)
        claim = d.claim(again)
        assert claim is not None
        assert claim.handle == kept
        d.defer(again)


def test_a_pending_call_leaves_nothing_when_its_job_ends_or_its_run_is_cancelled(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=3)
    ended, broken_off = d.start(ref, 2)
    d.wait_for(ended)
    d.wait_for(broken_off)
    d.finish(ended)
    assert not real_redis.hexists(d.keys.jobs(ref), str(ended.job))
    d.cancel(ref)
    assert d.lanes.on_slots([LANE]) == {LANE: 0}


def test_a_pending_count_left_by_an_earlier_version_is_corrected(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2)
    real_redis.hset(d.keys.lane(LANE), "pending", 7)
    (attempt,) = d.start(ref, 1)
    d.finish(attempt)
    assert d.lanes.on_slots([LANE]) == {LANE: 0}
