"""Lanes that gather permits are asked in small groups, and a burst is granted in steps."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from fairlane.store.connection.connect import RedisClient
from fairlane.store.write.workers import Beat, WorkerInfo
from fairlane_scheduler.dispatch.timetable import (
    EARLIEST,
    GROUP,
    MEMORY_MS,
    PLACE_MS,
    STEP_MS,
    Ramp,
    Timetable,
)
from tests.support.scheduler_parts import Parts

LANES, PER_S, GATHER_MS = 48, 8, 250
FEW = 36  # permits; all lanes together have 96 in a gathering time


@pytest.mark.parametrize("early", [1, 30, GATHER_MS])
def test_a_lane_that_works_alone_is_asked_as_late_as_it_may_be(early: int) -> None:
    timetable, now = Timetable(), 0
    for _ in range(50):
        assert timetable.book("a", now, 10, GATHER_MS, GROUP) == now + GATHER_MS
        now += early


def test_lanes_with_few_permits_are_asked_together_until_their_group_is_full() -> None:
    timetable = Timetable()

    moments = Counter(timetable.book(f"{n}", 0, 10, GATHER_MS, 2) for n in range(2 * GROUP))

    assert moments[GATHER_MS] == GROUP // 2
    assert all(count <= GROUP // 2 for count in moments.values())


def test_lanes_that_find_every_group_full_are_spread_over_all_of_them() -> None:
    timetable = Timetable()
    places = int((1 - EARLIEST) * GATHER_MS) // PLACE_MS

    moments = Counter(timetable.book(f"{n}", 0, 10, GATHER_MS, GROUP) for n in range(3 * places))

    assert max(moments.values()) <= 3


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.integers(0, 400),
            st.integers(0, 300),
            st.integers(0, 300),
            st.integers(1, 300),
        ),
        max_size=60,
    )
)
def test_no_lane_is_asked_before_it_can_start_a_call_or_later_than_alone(
    bookings: list[tuple[str, int, int, int, int]],
) -> None:
    timetable, now = Timetable(), 0
    for lane, passed, wait_ms, gather_ms, permits in bookings:
        now += passed
        at_ms = timetable.book(lane, now, wait_ms, gather_ms, permits)
        assert now + max(wait_ms, round(EARLIEST * gather_ms)) <= at_ms <= now + max(wait_ms, gather_ms)


def test_lanes_that_begin_together_are_soon_asked_apart_and_keep_their_rates(fake_redis: Redis) -> None:
    parts = working(fake_redis)
    granted: Counter[int] = Counter()
    per_lane: Counter[str] = Counter()
    began = parts.clock.monotonic_ms()
    while (now := parts.clock.monotonic_ms() - began) < 2500:
        wait_ms = parts.dispatcher.tick(parts.moment())
        attempts = parts.mailbox.collect()
        granted[now] += len(attempts)
        per_lane.update(attempt.lane for attempt in attempts)
        parts.clock.advance((wait_ms or 1) / 1000)

    assert max(count for at, count in granted.items() if at > 1000) <= FEW
    assert len(per_lane) == LANES
    assert max(per_lane.values()) - min(per_lane.values()) <= PER_S * GATHER_MS / 1000
    assert sum(per_lane.values()) >= 2.5 * PER_S * LANES


def working(redis: RedisClient) -> Parts:
    """Lanes of `PER_S` calls a second, each with a run of its own."""
    parts = Parts(redis, max_in_flight=10_000)
    lanes = [f"sim:m{n}" for n in range(LANES)]
    parts.capacity.update([Beat("w", 0, WorkerInfo("w", 10_000, lanes, "0", 1, "h", 0))])
    for n, lane in enumerate(lanes):
        parts.registry.ensure(lane)
        parts.admit(100, run=f"r{n}", model=lane)
    parts.feed_all()
    for lane in lanes:
        parts.lanes.limit(lane, {"requests_per_minute": 60 * PER_S})
    return parts


@given(
    st.integers(1, 5000),
    st.lists(st.tuples(st.integers(0, 400), st.floats(0, 1)), min_size=1, max_size=80),
)
def test_calls_in_flight_grow_as_fast_as_workers_start_calls_and_ended_ones_are_replaced_at_once(
    per_s: int, passes: list[tuple[int, float]]
) -> None:
    """Each pass comes some ms after the last, when a part of the calls has ended, and starts all it may."""
    ramp, now, in_flight = Ramp(), 5_000_000, 0
    step = max(1, round(per_s * STEP_MS / 1000))
    history = [(now, 0)]  # calls in flight after each pass
    for passed_ms, ended in passes:
        now, before = now + passed_ms, in_flight
        in_flight -= int(in_flight * ended)
        while room := ramp.room(in_flight, per_s, now):
            in_flight += room
        lately = max((count for at, count in history if now - at <= 2 * MEMORY_MS + 400), default=0)
        steps = 1 + passed_ms // STEP_MS
        assert in_flight <= lately + step * steps
        if passed_ms >= STEP_MS:
            assert in_flight >= min(before, lately)
            assert in_flight >= 1
        history.append((now, in_flight))


def test_a_burst_is_granted_in_steps_that_its_workers_start_before_the_next(fake_redis: Redis) -> None:
    parts, granted = Parts(fake_redis, max_in_flight=10_000), []
    parts.admit(300)
    parts.feed_all()
    parts.capacity.update([starting(name, 800) for name in ("v", "w")])
    for _ in range(7):
        wait_ms = parts.dispatcher.tick(parts.moment())
        granted.append(len(parts.mailbox.collect()))
        assert wait_ms == STEP_MS
        parts.clock.advance(STEP_MS / 1000)

    assert granted == [16] * 7


def test_a_burst_is_granted_at_once_if_a_worker_does_not_say_how_fast_it_starts_calls(
    fake_redis: Redis,
) -> None:
    parts = Parts(fake_redis, max_in_flight=10_000)
    parts.admit(100)
    parts.feed_all()
    parts.capacity.update([starting("v", 800), starting("w", 0)])

    parts.dispatcher.tick(parts.moment())

    assert len(parts.mailbox.collect()) == 100


def starting(name: str, per_s: int) -> Beat:
    return Beat(name, 0, WorkerInfo(name, 1000, ("sim:fast",), "0", 1, "h", 0, starts_per_s=per_s))
