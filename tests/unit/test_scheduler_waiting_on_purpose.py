"""A run that waits as somebody wants it to does not stand still; one that waits for anything else does."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from redis import Redis

from fairlane.model.run import RunRef
from fairlane.store.write.workers import Beat, WorkerInfo
from fairlane_scheduler.monitoring.metrics import MEANT_BY_USERS, MEANT_ON_LANES, waiting_on_purpose
from fairlane_scheduler.state.backlog import REFUSED, Backlog
from tests.support.registries import ScheduledMetrics
from tests.support.scheduler_parts import Parts

HOUR_S, LANE = 3600, "sim:fast"


class Watched:
    """A scheduler's parts, and what its metrics say of how long a run has stood still."""

    def __init__(self, redis: Redis) -> None:
        self.parts = parts = Parts(redis)
        self.shown = ScheduledMetrics(redis, parts.settings, parts.clock)
        parts.capacity.update([Beat("w", 0, WorkerInfo("w", 10, (LANE,), "0", 1, "h", 0))])

    def look(self) -> None:
        parts = self.parts
        parts.redis.hset(parts.keys.leader, "until_ms", parts.now_ms + 60_000)
        parts.dispatcher.wake_all()
        parts.dispatcher.tick(parts.moment())
        names, reason_of = parts.registry.names(), parts.dispatcher.reason_of
        self.shown.metrics.note(parts.backlog, names, lambda team: 1.0, (), reason_of)
        self.shown.sampler.tick()

    def standstill_s(self) -> float:
        """After an hour."""
        self.look()
        self.parts.clock.advance(HOUR_S)
        self.look()
        return self.shown.samples("fairlane_runs_standstill_seconds")[()]


@pytest.fixture
def watched(real_redis: Redis) -> Watched:
    return Watched(real_redis)


def paused_lane(parts: Parts) -> None:
    parts.registry.ensure(LANE)
    parts.admit(3)
    parts.lanes.pause(LANE)


def parked_lane(parts: Parts) -> None:
    parts.admit(3)
    parts.redis.hset(parts.keys.lane(LANE), "parked", "401: wrong key")


def later_start(parts: Parts) -> None:
    parts.admit(3, bounds={"start_ms": parts.now_ms + 3 * HOUR_S * 1000})


def open_run(parts: Parts) -> None:
    parts.admit(0, open=True)


@pytest.mark.parametrize("arrange", [paused_lane, parked_lane, later_start, open_run])
def test_a_run_that_is_meant_to_wait_does_not_stand_still(
    watched: Watched, arrange: Callable[[Parts], None]
) -> None:
    arrange(watched.parts)
    watched.parts.feed_all()
    assert watched.standstill_s() == 0
    watched.parts.mailbox.collect()


def test_a_run_without_workers_stands_still(watched: Watched) -> None:
    watched.parts.admit(3)
    watched.parts.feed_all()
    watched.parts.capacity.update([])
    assert watched.standstill_s() == HOUR_S


def test_a_run_whose_call_hangs_stands_still_though_its_other_jobs_are_meant_to_wait(
    watched: Watched,
) -> None:
    run = watched.parts.admit(3)
    watched.parts.feed_all()
    watched.parts.permits(run.ref, 1)
    watched.parts.lanes.pause(LANE)
    assert watched.standstill_s() == HOUR_S


def test_a_run_stands_still_from_the_end_of_its_rest_on(watched: Watched) -> None:
    paused_lane(watched.parts)
    watched.parts.feed_all()
    assert watched.standstill_s() == 0
    watched.parts.capacity.update([])
    watched.parts.lanes.resume(LANE)
    watched.look()
    watched.parts.clock.advance(60)
    watched.look()
    assert 60 <= watched.shown.samples("fairlane_runs_standstill_seconds")[()] < 120


@pytest.mark.parametrize("seed", range(20))
def test_a_run_waits_on_purpose_if_all_of_its_queued_jobs_do(parts: Parts, seed: int) -> None:
    rng = random.Random(seed)
    reasons = {f"sim:l{n}": rng.choice(["", "requests", "window", *sorted(MEANT_ON_LANES)]) for n in range(4)}
    jobs: dict[RunRef, list[tuple[str, str]]] = {}
    for n in range(12):
        run = parts.admit(1, run=f"r{n}")
        jobs[run.ref] = []
        for lane in rng.sample(sorted(reasons), rng.randrange(4)):
            bound = rng.choice(["", "cap", "ahead", "serial", *sorted(MEANT_BY_USERS)])
            parts.backlog.add(lane, run.ref, rng.randrange(1, 5))
            if bound:
                parts.backlog.throttle(lane, run.ref, None, bound)
            jobs[run.ref].append((lane, bound))
    expected = {
        ref
        for ref, each in jobs.items()
        if each and all(reasons[lane] in MEANT_ON_LANES or bound in MEANT_BY_USERS for lane, bound in each)
    }
    assert waiting_on_purpose(parts.backlog, reasons.__getitem__) == expected


def test_held_runs_rest_and_an_empty_backlog_has_none() -> None:
    assert REFUSED in MEANT_BY_USERS
    assert waiting_on_purpose(Backlog(), str) == frozenset()
