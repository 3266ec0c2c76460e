"""What waits and limits teach: a named wait earns one call, and what was not asked measures nothing."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from tests.support.deployment import Deployment
from tests.support.hidden_limit import Bucket, HiddenLimit, hints

SECOND_MS, MINUTE_MS = 1000, 60_000


def test_at_the_end_of_a_named_wait_one_call_may_start_at_once(real_redis: Redis) -> None:
    """The provider says when it admits a call: the lane has earned that one by then, and no more."""
    d = Deployment(real_redis)
    ref = d.unknown_lane()
    started = d.take(ref)
    for attempt in started:
        d.claim(attempt)
        d.defer(attempt, signal="limited", retry_after_ms=9 * SECOND_MS)
    d.advance(9 * SECOND_MS - 1)
    assert d.take(ref) == []
    d.advance(20)  # the rate is somewhat below its estimate
    assert len(d.take(ref)) == 1


def test_after_a_wait_of_its_own_a_lane_earns_its_next_call_first(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane()
    for attempt in d.take(ref):
        d.claim(attempt)
        d.defer(attempt, signal="limited")
    d.advance(d.ask(ref).wait_ms)
    assert d.take(ref) == []


@pytest.mark.parametrize(("depth", "wait_ms"), [(1, None), (5, SECOND_MS)])
@pytest.mark.slow
def test_a_shallow_bucket_is_not_measured_by_what_the_lane_asked_of_it(
    real_redis: Redis, depth: int, wait_ms: int | None
) -> None:
    """Below the limit, a shallow bucket is always full: then the count is what the lane asked for."""

    def announced(now_ms: int, admitted: bool) -> dict[str, Any]:
        return {} if admitted or wait_ms is None else {"retry_after_ms": wait_ms}

    d = Deployment(real_redis)
    world = HiddenLimit(d, d.unknown_lane(jobs=4000), Bucket(450, depth), announced=announced)
    world.run(MINUTE_MS)
    since = d.now_ms
    world.run(MINUTE_MS)
    assert world.admitted(since) >= 0.92 * 450
    assert world.refused(since) <= 5


@pytest.mark.slow
def test_a_report_on_429s_alone_is_no_lasting_ceiling(real_redis: Redis) -> None:
    """A lane that stays below the report is never rejected, and so is never told that the limit has risen."""
    d = Deployment(real_redis)
    bucket = Bucket(600, 10)

    def announced(now_ms: int, admitted: bool) -> dict[str, Any]:
        return {} if admitted else {"hints": hints(requests=(round(bucket.per_minute), 0, None))}

    world = HiddenLimit(d, d.unknown_lane(jobs=12_000), bucket, announced=announced)
    world.run(MINUTE_MS)
    assert world.state("requests_reported") == 600
    bucket.per_minute = 1200
    world.run(MINUTE_MS)
    since = d.now_ms
    world.run(MINUTE_MS // 4)
    assert world.admitted(since) >= 0.95 * 300


@pytest.mark.slow
def test_a_report_that_every_answer_renews_is_a_ceiling(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    world = HiddenLimit(
        d,
        d.unknown_lane(jobs=12_000),
        Bucket(600, 10),
        announced=lambda now_ms, admitted: {"hints": hints(requests=(600, None, None))},
    )
    world.run(MINUTE_MS)
    since = d.now_ms
    world.run(MINUTE_MS)
    assert world.refused(since) == 0
