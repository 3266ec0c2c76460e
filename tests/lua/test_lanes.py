"""What an operator says of a lane, and how a lane looks to people."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.core.errors import ConfigurationError, LaneNotFound
from fairlane.model.lane import LaneLimits
from fairlane.store.write.permits import Offer
from tests.support.contents import read_contents
from tests.support.deployment import Deployment


def test_limits_are_read_back_as_they_were_set(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    limits = LaneLimits(
        requests_per_minute=0.5,
        tokens_per_minute=2_000_000,
        burst_seconds=2.5,
        max_concurrency=200,
        min_gap_ms=3,
        input_tokens_per_minute=1_500_000.125,
        output_tokens_per_minute=0,
        requests_per_day=14_400,
        exact=True,
        charge="reserved",
        output_factor=1.1,
        cache_reads="counted",
    )
    assert d.lanes.configure("sim:fast", limits)
    assert not d.lanes.configure("sim:fast", limits)
    assert d.lanes.view("sim:fast").limits == limits
    assert d.lanes.names() == ["sim:fast"]


def test_removing_a_limit_keeps_the_others(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane(requests_per_minute=60, max_concurrency=3, burst_seconds=2)
    d.dirty()
    assert not d.lanes.limit("sim:fast", {"requests_per_minute": None, "burst_seconds": None})
    assert d.lanes.view("sim:fast").limits == LaneLimits(max_concurrency=3)
    assert d.dirty() == {"sim:fast"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests_per_minute": -1},
        {"max_concurrency": 0},
        {"burst_seconds": 0},
        {"speed": 3},
        {"charge": "sometimes"},
        {"output_factor": 0},
        {"requests_per_day": 1.5},
        {"requests_per_minute": float("nan")},
        {"requests_per_minute": float("inf")},
        {"requests_per_minute": 1e300},
        {"max_concurrency": 10**30},
        {"min_gap_ms": 10**22},
    ],
)
def test_an_invalid_limit_is_not_written(real_redis: Redis, wrong: dict[str, float | str]) -> None:
    d = Deployment(real_redis)
    d.lane(requests_per_minute=60)
    before = read_contents(real_redis)
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        d.lanes.limit("sim:fast", wrong)
    assert read_contents(real_redis) == before


def test_a_wrong_limit_is_answered_with_what_it_means(real_redis: Redis) -> None:
    with pytest.raises(
        ConfigurationError, match=r"must be greater than or equal to 1 .*Most calls in flight"
    ):
        Deployment(real_redis).lanes.limit("sim:fast", {"max_concurrency": 0})


def test_a_new_lane_is_announced_to_the_workers(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    with d.redis.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(d.keys.control)
        heard.get_message(timeout=1)
        d.lane("sim:fast")
        d.lane("sim:fast", max_concurrency=2)
        message = heard.get_message(timeout=5)
        assert message is not None
        assert message["data"] == b"lanes"
        assert heard.get_message(timeout=0.2) is None


@pytest.mark.parametrize("verb", ["pause", "resume", "view"])
def test_an_unknown_lane_is_named_and_not_created(real_redis: Redis, verb: str) -> None:
    d = Deployment(real_redis)
    d.lane("sim:fast")
    before = read_contents(real_redis)
    with pytest.raises(LaneNotFound, match=r"sim:fats.*sim:fast"):
        getattr(d.lanes, verb)("sim:fats")
    assert read_contents(real_redis) == before


def test_a_view_counts_what_has_happened(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(requests_per_minute=0)
    for attempt, signal in zip(
        d.start(ref, 5), ["ok", "limited", "broken", "overloaded", "answered"], strict=True
    ):
        d.defer(attempt, signal=signal, retry_after_ms=500)  # type: ignore[arg-type]
    view = d.lanes.view("sim:fast", d.now_ms)
    assert (view.granted, view.in_flight, view.succeeded, view.limited, view.failed) == (5, 0, 1, 1, 3)
    assert view.blocked_until_ms == d.now_ms + 500
    assert (view.circuit, view.parked, view.paused, view.learned_per_minute) == ("closed", None, False, None)


def test_a_run_may_be_offered_in_parts_and_gets_no_more_than_each_asks_for(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    first, second = d.queued_lane(jobs=5, run="r1"), d.queued_lane(jobs=5, run="r2")
    grant = d.ask([Offer(first, 2), Offer(second, 1), Offer(first, 1), Offer(second, 9)])
    assert [permit.offer for permit in grant.permits] == [0, 0, 1, 2, 3, 3, 3, 3]
    assert list(grant.queued) == [2, 0, 2, 0]


def test_a_lane_that_waits_for_a_slot_is_woken_by_any_lane(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref, other = d.queued_lane(), d.queued_lane(lane="sim:other", run="r2")
    busy = d.start(ref)[0]
    assert d.ask(other, lane="sim:other", max_in_flight=1).reason == "slots"
    d.dirty()
    d.finish(busy)
    assert "sim:other" in d.dirty()


def test_a_lane_that_waits_for_a_slot_is_woken_when_a_run_is_cancelled(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref, other = d.queued_lane(), d.queued_lane(lane="sim:other", run="r2")
    d.start(ref)
    assert d.ask(other, lane="sim:other", max_in_flight=1).reason == "slots"
    d.dirty()
    d.cancel(ref)
    assert d.dirty() == {"sim:fast", "sim:other"}
    assert len(d.ask(other, lane="sim:other", max_in_flight=1).permits) == 1


def test_a_lane_that_waits_for_its_window_is_woken_by_its_own_calls(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(max_concurrency=1)
    busy = d.start(ref)[0]
    assert (d.ask(ref).reason, d.ask(ref).at_ms) == ("window", 0)
    d.dirty()
    d.finish(busy)
    assert "sim:fast" in d.dirty()


@pytest.mark.parametrize("limit", [0, None])
def test_a_limit_may_be_removed_while_it_limits_jobs(real_redis: Redis, limit: float | None) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(requests_per_minute=60, jobs=50)
    assert d.ask(ref).reason == "requests"
    d.lanes.limit("sim:fast", {"requests_per_minute": limit})
    d.clock.advance(5)

    assert d.ask(ref).permits
