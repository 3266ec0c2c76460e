"""Verbs that end or stop work pass on a full server, also where nothing that they change was there before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from redis.exceptions import NoPermissionError, OutOfMemoryError

from fairlane.model.run import RunRef
from fairlane.store.keys import Keys
from fairlane.store.verbs import script
from fairlane.store.write.leader import LeaderLease
from fairlane.store.write.runs.inbox import Inbox, Outbox
from tests.support.deployment import Deployment
from tests.support.fences import KEYS, member_of
from tests.support.redis import emptied

REF = RunRef("search", "r1")


@pytest.fixture
def full(real_server: Redis) -> Iterator[Redis]:
    """A server on which every write that may take memory fails, from the call on."""
    yield emptied(real_server)
    real_server.config_set("maxmemory", "0")


def fill(redis: Redis) -> None:
    redis.config_set("maxmemory", "1")
    with pytest.raises(OutOfMemoryError):
        redis.set("any", "value")


def test_a_scheduler_becomes_and_stays_the_leader(full: Redis) -> None:
    lease = LeaderLease(full, Keys("main"), "s1", 1000)
    fill(full)
    assert lease.acquire(1000).epoch == 1
    assert lease.acquire(1500).epoch == 1
    assert lease.acquire(9000).epoch == 2


@pytest.mark.parametrize("op", ["cancel", "pause"])
def test_a_request_that_frees_memory_is_taken(full: Redis, op: str) -> None:
    outbox, inbox = Outbox(full, Keys("main")), Inbox(full, Keys("main"))
    fill(full)
    if op == "cancel":
        outbox.cancel(REF)
    else:
        outbox.pause(REF, "me")
    assert [request.op for request in inbox.peek("search") if request is not None] == [op]


def test_a_request_that_takes_memory_is_refused(full: Redis) -> None:
    outbox = Outbox(full, Keys("main"))
    fill(full)
    with pytest.raises(OutOfMemoryError):
        outbox.extend(REF, 5, last=True)


def test_a_full_server_takes_a_bounded_number_of_requests(full: Redis) -> None:
    outbox = Outbox(full, Keys("main"))
    full.rpush(Keys("main").inbox("search"), *["{}"] * 1000)
    fill(full)
    with pytest.raises(OutOfMemoryError):
        outbox.cancel(REF)
    assert outbox.waiting("search") == 1000


def test_a_team_with_its_own_redis_user_sees_that_redis_is_full(full: Redis) -> None:
    with member_of(full, "search") as member:
        outbox = Outbox(member, KEYS)
        fill(full)
        with pytest.raises(OutOfMemoryError):
            outbox.cancel(REF)
        call = script("inbox_ask").bind(
            {"inbox": KEYS.inbox("search")}, {"entry": "{}", "channel": KEYS.wake, "message": "x"}
        )
        with pytest.raises(NoPermissionError):
            call.run(member)
        full.config_set("maxmemory", "0")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=st.integers(1, 5), started=st.integers(0, 5), paused=st.booleans())
def test_a_run_is_paused_and_cancelled_whatever_it_has_in_flight(
    full: Redis, jobs: int, started: int, paused: bool
) -> None:
    full.config_set("maxmemory", "0")
    full.flushdb()
    d = Deployment(full)
    ref = d.queued_lane(jobs=jobs)
    if started:
        d.start(ref, min(started, jobs))
    fill(full)
    if paused:
        assert d.runs.pause(ref, "me", d.epoch, d.now_ms)
    assert d.cancel(ref) == jobs
    status = d.state(ref)
    assert (status["state"], status["in_flight"]) == ("cancelled", "0")
    assert d.leases.count() == 0
