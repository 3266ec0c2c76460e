"""Providers that reject more than so many calls at once, in virtual time: by 429, or by 503."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import mean, median
from typing import Any

import pytest
from redis import Redis

from fairlane.model.decision import RetryPolicy
from fairlane.model.job import Attempt, JobState
from fairlane.model.outcome import Outcome, Overloaded, RateLimited, Success
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from tests.support.scheduling import Cluster, assert_complete
from tests.support.stand_ins import FakeWorker

LANE = "sim:fast"
WAY_MS = 5
SLOTS = 200
UNKNOWN: dict[str, float | None] = {"requests_per_minute": None}


class Places:
    """Serves ``at_once`` calls, each for about ``seconds``, and rejects more; ``spread`` is lognormal."""

    def __init__(
        self,
        at_once: int,
        seconds: float = 1.0,
        spread: float = 0.0,
        status: int = 429,
        seed: int = 1,
        wait_ms: int | None = None,
    ) -> None:
        self.at_once, self.seconds, self.spread, self.status = at_once, seconds, spread, status
        self.wait_ms = wait_ms
        self.rejected: list[int] = []
        self.served: list[int] = []
        self._inside, self._rng = 0, random.Random(seed)

    def within(self, cluster: Cluster) -> None:
        self._events, self._began_ms = cluster.events, cluster.now_ms

    def serve(self, attempt: Attempt, finish: Callable[[Outcome], None]) -> None:
        self._events.after(self._way_ms(), lambda: self._arrive(finish))

    def _arrive(self, finish: Callable[[Outcome], None]) -> None:
        if self._inside >= self.at_once:
            self.rejected.append(self._events.now_ms - self._began_ms)
            refusal: Outcome = RateLimited("too many requests")
            if self.status != 429:
                refusal = Overloaded("no place is free", self.status, retry_after_ms=self.wait_ms)
            self._events.after(self._way_ms(), lambda: finish(refusal))
            return
        self._inside += 1
        takes_s = self.seconds * math.exp(self.spread * self._rng.gauss(0, 1) - self.spread**2 / 2)
        self._events.after(max(1, round(takes_s * 1000)), lambda: self._leave(finish))

    def _leave(self, finish: Callable[[Outcome], None]) -> None:
        self._inside -= 1
        self.served.append(self._events.now_ms - self._began_ms)
        self._events.after(self._way_ms(), lambda: finish(Success("yes", Usage(10, 5))))

    def _way_ms(self) -> int:
        return round(WAY_MS * math.exp(0.3 * self._rng.gauss(0, 1)))


def _cluster(redis: Redis, provider: Any, jobs: int) -> tuple[Cluster, RunRef]:
    cluster = Cluster(redis, provider=provider, workers=[FakeWorker("w1", SLOTS)], lanes={LANE: UNKNOWN})
    provider.within(cluster)
    return cluster, cluster.submit(jobs)


@pytest.mark.parametrize("seconds", [1.0, 3.0])
def test_a_503_for_too_many_calls_at_once_is_no_outage(real_redis: Redis, seconds: float) -> None:
    jobs, at_once = 400, 16
    rejected, took = list[int](), list[float]()
    for seed in range(1, 6):
        real_redis.flushall()
        provider = Places(at_once, seconds, spread=0.3, status=503, seed=seed)
        cluster, ref = _cluster(real_redis, provider, jobs)
        took.append(cluster.run_until_finished(ref, limit_s=600))
        assert_complete(cluster, ref, JobState.SUCCEEDED)
        assert not [news for _, _, news in cluster.simulated.news if news == "open"]
        rejected.append(len(provider.rejected))
    assert mean(rejected) <= 0.06 * jobs
    assert median(took) <= 1.25 * jobs * seconds / at_once


@pytest.mark.parametrize("at_once", [1, 2, 3])
@pytest.mark.parametrize(("seconds", "wait_ms"), [(1.0, None), (1.0, 2000), (0.3, None)])
def test_few_places_whose_provider_rejects_by_503_are_kept_busy(
    real_redis: Redis, at_once: int, seconds: float, wait_ms: int | None
) -> None:
    """A wider window that meets a 503 is taken back: the lane does not wait for it, nor try again soon."""
    jobs = round(60 * at_once / seconds)
    took, rejected = list[float](), list[int]()
    for seed in range(1, 6):
        real_redis.flushall()
        provider = Places(at_once, seconds, spread=0.3, status=503, seed=seed, wait_ms=wait_ms)
        cluster, ref = _cluster(real_redis, provider, jobs)
        took.append(cluster.run_until_finished(ref, limit_s=600))
        assert_complete(cluster, ref, JobState.SUCCEEDED)
        rejected.append(len(provider.rejected))
    assert max(took) <= (1.3 if wait_ms else 1.15) * 60
    assert mean(rejected) <= 0.2 * jobs


def test_after_an_outage_of_503_the_window_is_wide_again_within_seconds(real_redis: Redis) -> None:
    provider = Places(16, spread=0.3, status=503)
    cluster, _ = _cluster(real_redis, provider, 3000)
    cluster.run_for(40)
    provider.at_once = 0
    cluster.run_for(20)
    provider.at_once = 16
    before = len(provider.served)
    while len(provider.served) == before:  # until a probe is answered
        cluster.run_for(1)
    cluster.run_for(7)
    before = len(provider.served)
    cluster.run_for(10)
    assert len(provider.served) - before >= 0.85 * 16 * 10


@pytest.mark.parametrize("spread", [0.05, 0.3])
def test_a_hidden_limit_of_calls_at_once_is_found_after_the_first_429(
    real_redis: Redis, spread: float
) -> None:
    """The ideal is a call in every place at every moment; each call also travels for 10 ms."""
    jobs, at_once = 800, 16
    provider = Places(at_once, spread=spread)
    cluster, ref = _cluster(real_redis, provider, jobs)
    took_s = cluster.run_until_finished(ref, limit_s=200)
    assert_complete(cluster, ref, JobState.SUCCEEDED)
    assert took_s <= 1.05 * jobs / at_once
    assert len(provider.rejected) <= 0.01 * jobs


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_few_places_are_found_although_one_call_more_or_fewer_is_much(
    real_redis: Redis, at_once: int
) -> None:
    jobs = 200 * at_once
    took, rejected = list[float](), list[int]()
    for seed in range(1, 4):
        real_redis.flushall()
        provider = Places(at_once, spread=0.3, seed=seed)
        cluster, ref = _cluster(real_redis, provider, jobs)
        took.append(cluster.run_until_finished(ref, limit_s=2000))
        assert_complete(cluster, ref, JobState.SUCCEEDED)
        rejected.append(len(provider.rejected))
    assert max(took) <= 1.1 * jobs / at_once
    assert max(rejected) <= 0.1 * jobs


@pytest.mark.parametrize(("at_first", "later"), [(8, 24), (16, 48)])
def test_a_hidden_limit_of_calls_at_once_that_rises_is_found_again(
    real_redis: Redis, at_first: int, later: int
) -> None:
    provider = Places(at_first, spread=0.3)
    cluster, _ = _cluster(real_redis, provider, 6000)
    cluster.run_for(60)
    provider.at_once = later
    cluster.run_for(35)  # a window is widened after 30 s at the latest, and then by each success
    before = len(provider.served)
    cluster.run_for(15)
    assert len(provider.served) - before >= 0.9 * later * 15
    assert len(provider.rejected) <= 0.02 * len(provider.served)


@pytest.mark.parametrize(
    ("rate", "share", "least"), [(20, 0.005, 0.95), (50, 0.02, 0.95), (50, 0.1, 0.93), (100, 0.05, 0.93)]
)
@pytest.mark.parametrize("seed", range(2))
def test_overloads_that_come_at_any_number_in_flight_do_not_narrow_the_lane(
    real_redis: Redis, seed: int, rate: int, share: float, least: float
) -> None:
    rng = random.Random(seed)

    def provider(_: Attempt) -> tuple[float, Outcome]:
        seconds = 0.5 * math.exp(0.4 * rng.gauss(0, 1))
        busy = rng.random() < share
        return seconds / (10 if busy else 1), Overloaded("busy", 529) if busy else Success(
            "yes", Usage(10, 5)
        )

    stated = {"requests_per_minute": 60.0 * rate, "burst_seconds": 1.0}
    cluster = Cluster(real_redis, provider=provider, workers=[FakeWorker("w1", SLOTS)], lanes={LANE: stated})
    cluster.submit(30 * rate, retry=RetryPolicy(max_attempts=6, initial_delay=0.5, max_delay=5.0))
    cluster.run_for(5)
    before = len(cluster.starts)
    cluster.run_for(20)
    assert len(cluster.starts) - before >= least * 20 * rate
