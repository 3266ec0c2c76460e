"""A scheduler with nothing to do, in virtual time: it sleeps, and what it asks of Redis is bounded."""

from __future__ import annotations

from redis import Redis

from fairlane_scheduler.service import HOUSEKEEPING_MS
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker


def commands(redis: Redis) -> int:
    return int(redis.info("stats")["total_commands_processed"])


def test_an_idle_scheduler_sleeps_from_one_housekeeping_to_the_next(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, workers=[])
    cluster.run_for(10)
    process = cluster.processes[0]
    ticks = process.ticks

    cluster.run_for(60)

    assert process.ticks - ticks <= 61
    cluster.clock.advance(1)
    process.scheduler.tick(set())
    assert process.scheduler.tick(set()) >= HOUSEKEEPING_MS - 1


def test_an_idle_tick_sends_a_bounded_number_of_commands(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, workers=[FakeWorker("w1", 10)])
    runs = [cluster.submit(5, model=f"sim:{name}") for name in "abcdef"]
    cluster.run_until_finished(*runs)
    cluster.run_for(10)
    process = cluster.processes[0]
    cluster.clock.advance(1)

    before = commands(real_redis)
    process.scheduler.tick(set())

    assert commands(real_redis) - before <= 30


def test_a_lane_that_waits_for_its_rate_is_asked_once_a_permit(real_redis: Redis) -> None:
    cluster = Cluster(
        real_redis, lanes={"sim:fast": {"requests_per_minute": 60}}, workers=[FakeWorker("w1", 5)]
    )
    cluster.submit(200)
    cluster.run_for(5)
    process = cluster.processes[0]
    ticks = process.ticks

    cluster.run_for(60)

    # A permit a second and its end; leadership, housekeeping and recovery in between.
    assert process.ticks - ticks <= 60 * 6
