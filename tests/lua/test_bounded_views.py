"""A team may run the verbs that read, so none of them works longer than it has to, whatever it is given."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from redis.exceptions import ResponseError

from fairlane.model.run import RunRef
from fairlane.store.keys import Keys
from fairlane.store.verbs import script
from fairlane.store.write.lanes.lanes import VIEWED_AT_ONCE, Lanes
from fairlane.store.write.runs.inbox import READ_AT_ONCE, Inbox
from fairlane.why.queues import LOOKED_AT
from tests.support.fences import KEYS, member_of

REF = RunRef("search", "r1")


def lane_keys(count: int) -> list[str]:
    return [key for n in range(count) for key in (KEYS.lane(f"sim:{n}"), KEYS.limits(f"sim:{n}"))]


def test_a_view_of_lanes_takes_a_hundred_and_no_more(real_redis: Redis) -> None:
    asked = script("lane_view").bind({"clock": KEYS.clock, "lanes": lane_keys(VIEWED_AT_ONCE)}, {"now_ms": 5})
    assert len(json.loads(asked.run(real_redis))["lanes"]) == VIEWED_AT_ONCE
    more = script("lane_view").bind(
        {"clock": KEYS.clock, "lanes": lane_keys(VIEWED_AT_ONCE + 1)}, {"now_ms": 5}
    )
    with pytest.raises(ResponseError, match="at most 200 keys"):
        more.run(real_redis)
    assert len(Lanes(real_redis, KEYS).views([f"sim:{n}" for n in range(250)])) == 250


def test_a_team_can_repeat_no_lane(real_redis: Redis) -> None:
    with member_of(real_redis, "search") as member:
        lane, limits = lane_keys(1)
        repeated = script("lane_view").bind({"clock": KEYS.clock, "lanes": [lane, limits] * 2}, {"now_ms": 5})
        with pytest.raises(ResponseError, match="each key once"):
            repeated.look(member)
        many = script("lane_view").bind(
            {"clock": KEYS.clock, "lanes": [lane, limits] * 20_000}, {"now_ms": 5}
        )
        with pytest.raises(ResponseError, match="at most 200 keys"):
            many.look(member)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(looked=st.integers(LOOKED_AT + 1, 10**15))
def test_a_view_of_a_queue_looks_at_a_bounded_number_of_jobs(real_redis: Redis, looked: int) -> None:
    keys = {name: KEYS.rows(REF) for name in script("queue_view").keys}
    call = script("queue_view").bind(keys, {"job": 1, "looked": looked})
    with pytest.raises(ResponseError, match="at most at 5000 jobs"):
        call.run(real_redis)


def test_an_inbox_is_read_a_bounded_number_of_entries_at_a_time(real_redis: Redis) -> None:
    keys = Keys("main")
    real_redis.rpush(keys.inbox("search"), *[json.dumps({"op": "cancel", "run": str(n)}) for n in range(500)])
    assert len(list(Inbox(real_redis, keys).peek("search"))) == READ_AT_ONCE
    bounds = {"first": 0, "most": 10**9, "entry_bytes": 1024}
    call = script("inbox_peek").bind({"inbox": keys.inbox("search")}, bounds)
    assert len(call.run(real_redis)) == READ_AT_ONCE
