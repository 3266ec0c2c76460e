"""What lanes did lately: samples tell what happened since the one before, are bounded, and go away."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from fairlane.store.keys import Keys
from fairlane.store.write.lanes.lane_history import (
    FINE,
    MINUTES,
    STEPS,
    History,
    Reading,
    RecentCalls,
    Sample,
    Step,
    refused_share,
    used_per_minute,
)
from fairlane_scheduler.upkeep.lane_sampler import Series
from tests.support.scheduling import Cluster

KEYS, LANE = Keys("test"), "sim:fast"


@pytest.fixture
def history(redis: Redis) -> History:
    return History(redis, KEYS)


def reading(at_ms: int, granted: int, **more: Any) -> Reading:
    return Reading(at_ms, 600.0, "configured", granted, **more)


def test_a_sample_counts_from_the_one_before(history: History) -> None:
    shown = [
        reading(1, 10),
        reading(2, 14, finished=4, refused=1, in_flight=3, window=8, waiting=7),
        reading(3, 20, finished=9, refused=1),
    ]
    history.append((FINE, LANE, each) for each in shown)

    assert history.of(LANE, 0) == [
        Sample(1, 600.0, "configured", 0, 0, 0, 0, None, 0),
        Sample(2, 600.0, "configured", 4, 4, 1, 3, 8, 7),
        Sample(3, 600.0, "configured", 6, 5, 0, 0, None, 0),
    ]
    assert [sample.admitted for sample in history.of(LANE, 2)] == [6]


def test_counters_that_redis_has_forgotten_count_as_nothing(history: History) -> None:
    history.append((FINE, LANE, reading(at, granted)) for at, granted in enumerate((100, 90, 95)))

    assert [sample.admitted for sample in history.of(LANE, -1)] == [0, 0, 5]


@pytest.mark.parametrize("step", STEPS)
def test_a_history_is_bounded_and_expires(redis: Redis, history: History, step: Step) -> None:
    most = step.keep + 50
    history.append((step, LANE, reading(at, at)) for at in range(most))
    history.append([(step, LANE, reading(most, most))])

    key = KEYS.history(LANE, step.name)
    assert redis.llen(key) == step.keep + 1
    assert step.span_ms <= redis.pttl(key) <= step.span_ms + 60_000


def test_a_lane_that_is_used_all_day_takes_little_room(real_redis: Redis) -> None:
    history = History(real_redis, KEYS)
    for step in STEPS:
        history.append((step, LANE, reading(10**12 + n, 10**6 + n)) for n in range(step.keep + 1))

    keys = [KEYS.history(LANE, step.name) for step in STEPS]
    assert sum(real_redis.memory_usage(key, samples=0) or 0 for key in keys) < 150_000


def test_samples_reach_back_a_quarter_of_an_hour_and_a_day() -> None:
    assert (FINE.span_ms, MINUTES.span_ms) == (15 * 60_000, 24 * 3_600_000)


def test_the_share_of_refusals_and_the_rate_come_from_samples() -> None:
    samples = [Sample(at, None, None, 3, 4, 1, 0, None, 0) for at in (0, 30_000, 61_000)]

    assert refused_share(samples) == 0.25
    assert refused_share([]) is None
    assert used_per_minute(samples, 61_000) == 6


def test_lately_agrees_with_all_samples(history: History) -> None:
    for lane, most in (("a", 5), ("b", 13), ("c", 300)):
        readings = [reading(n * 5_000, 3 * n, finished=2 * n, refused=n // 2) for n in range(most)]
        history.append((FINE, lane, each) for each in readings)
    now_ms = 299 * 5_000

    lately, all_samples = history.lately(["a", "b", "c", "d"], now_ms), history.of_all(["a", "b", "c"], -1)

    assert lately["c"].used_per_minute == used_per_minute(all_samples["c"], now_ms) == 36
    assert [lately[lane].refused_share for lane in "abc"] == [
        refused_share(all_samples[lane]) for lane in "abc"
    ]
    assert (lately["a"].used_per_minute, lately["d"]) == (0, RecentCalls())


def test_a_lane_that_stood_still_has_no_throughput() -> None:
    series = Series(FINE)

    def taken(now_ms: int, granted: int) -> list[tuple[int, int]]:
        readings = {LANE: reading(now_ms, granted)}
        return [(each.at_ms, each.granted) for _, _, each in series.take(readings, now_ms)]

    assert taken(0, 5) == [(0, 5)]
    assert [taken(at, 5) for at in (5_000, 10_000, 15_000)] == [[], [], []]
    assert taken(20_000, 9) == [(15_000, 5), (20_000, 9)]
    assert taken(25_000, 10) == [(25_000, 10)]


def test_a_lane_that_is_new_begins_with_nothing() -> None:
    series = Series(FINE)
    assert list(series.take({}, 5_000)) == []

    found = list(series.take({LANE: reading(10_000, 7)}, 10_000))

    assert [(each.at_ms, each.granted) for _, _, each in found] == [(5_000, 0), (10_000, 7)]


@pytest.mark.slow
def test_every_permit_of_a_run_is_in_its_lanes_history(redis: Redis) -> None:
    cluster = Cluster(redis, lanes={LANE: {"requests_per_minute": 600}})
    cluster.run_for(6)
    ref = cluster.submit(100, judges=["sim:judge"])
    cluster.run_until_finished(ref)
    cluster.run_for(12)

    history = History(redis, cluster.keys)
    for lane in (LANE, "sim:judge"):
        samples = history.of(lane, 0)
        assert sum(sample.admitted for sample in samples) == 100
        assert sum(sample.finished for sample in samples) == 100
    fast = history.of(LANE, 0)
    assert {(sample.limit_per_minute, sample.source) for sample in fast[1:]} == {(600.0, "configured")}
    assert max(sample.waiting for sample in fast) > 0
    assert max(sample.in_flight for sample in fast) > 0


@pytest.mark.slow
def test_another_leader_continues_where_one_stopped(redis: Redis) -> None:
    cluster = Cluster(redis, lanes={LANE: {"requests_per_minute": 600}}, standbys=1)
    cluster.run_for(6)
    ref = cluster.submit(150)
    cluster.run_for(7)
    leader = next(process for process in cluster.processes if process.scheduler.leader.leads)
    leader.scheduler.resign()
    cluster.run_until_finished(ref)
    cluster.run_for(12)

    assert sum(sample.admitted for sample in History(redis, cluster.keys).of(LANE, 0)) == 150


def test_an_idle_lane_costs_no_sample(redis: Redis) -> None:
    cluster = Cluster(redis)
    ref = cluster.submit(5)
    cluster.run_until_finished(ref)
    cluster.run_for(20)
    history = History(redis, cluster.keys)
    before = history.of(LANE, 0)

    cluster.run_for(120)

    assert history.of(LANE, 0) == before
    assert not history.of("sim:slow", 0)
