"""A stall, or a provider that is slow for a while, does not look like a provider that queues calls."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, Success
from fairlane.model.tokens import Usage
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker

LANE = "sim:fast"
EXACT = {"requests_per_minute": 900, "burst_seconds": 1.0, "exact": 1}
PER_S = 15
STALL_S = 7.0

Seconds = Callable[[Cluster, Attempt], float]


def _usual(cluster: Cluster, attempt: Attempt) -> float:
    return 0.3 + 0.4 * (attempt.job * 37 % 101) / 100


def _running(redis: Redis, limits: dict[str, float], seconds: Seconds = _usual, slots: int = 200) -> Cluster:
    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        return seconds(cluster, attempt), Success("yes", Usage(10, 5))

    cluster = Cluster(redis, provider=provider, workers=[FakeWorker("w1", slots)], lanes={LANE: limits})
    cluster.submit(6000)
    return cluster


def _starts(cluster: Cluster, seconds: float) -> int:
    before = len(cluster.starts)
    cluster.run_for(seconds)
    return len(cluster.starts) - before


@pytest.mark.parametrize("stall_s", [2.0, STALL_S])
def test_a_lane_returns_to_its_rate_within_seconds_of_a_stall(real_redis: Redis, stall_s: float) -> None:
    cluster = _running(real_redis, EXACT)
    cluster.run_for(20)
    cluster.clock.advance(stall_s)  # nobody does anything: calls end late, and reports come late
    cluster.run_for(3)
    assert _starts(cluster, 10) >= 10 * PER_S - 1
    assert _starts(cluster, 30) >= 30 * PER_S - 1


def test_a_provider_that_is_slow_for_a_while_leaves_no_narrow_window(real_redis: Redis) -> None:
    began_ms = 0

    def seconds(cluster: Cluster, attempt: Attempt) -> float:
        slow = 15 <= (cluster.now_ms - began_ms) / 1000 < 23
        return _usual(cluster, attempt) * (10 if slow else 1)

    cluster = _running(real_redis, {"requests_per_minute": 0, "max_concurrency": 16}, seconds)
    began_ms = cluster.now_ms
    cluster.run_for(10)
    usual = _starts(cluster, 5)
    cluster.run_for(8 + 7)  # the slow calls take seven seconds at most
    cluster.run_for(4)
    assert _starts(cluster, 5) >= 0.9 * usual


@pytest.mark.parametrize("growth", [0.3, 0.6])
def test_latency_that_grows_with_load_costs_no_throughput(real_redis: Redis, growth: float) -> None:
    """Each call in flight slows the others; at the stated rate, latency ends at 1 / (1 - growth)."""

    def seconds(cluster: Cluster, attempt: Attempt) -> float:
        in_flight = sum(len(worker.calls) for worker in cluster.workers)
        return 1.0 + growth * in_flight / PER_S

    cluster = _running(real_redis, EXACT, seconds)
    cluster.run_for(5)
    assert _starts(cluster, 60) >= 60 * PER_S - 1


@pytest.mark.parametrize("sigma", [0.4, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_quick_calls_that_end_first_do_not_make_the_others_look_slow(
    real_redis: Redis, seed: int, sigma: float
) -> None:
    """Calls that start together end in the order of their durations, and workers get more slots meanwhile."""
    rng = random.Random(seed)

    def seconds(_cluster: Cluster, _attempt: Attempt) -> float:
        return rng.lognormvariate(-0.7, sigma)

    stated = {"requests_per_minute": 30_000, "burst_seconds": 1.0}
    cluster = _running(real_redis, stated, seconds, slots=200)
    cluster.run_for(0.3)
    cluster.workers[0].slots = 320
    cluster.beat(cluster.workers[0], changed=True)
    for _ in range(5):
        cluster.run_for(1)
        lane = cluster.redis.hgetall(cluster.keys.lane(LANE))
        assert lane.get(b"search_by") != b"latency"
