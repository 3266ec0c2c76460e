"""Functions that raise RateLimited for single rows: no other row waits, and a true limit is found."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, RateLimited, Success
from fairlane.model.tokens import Usage
from tests.simulation.test_rows_alone import count, run_until
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker

LANE, ROWS = "python:crm", 60
Raises = Callable[[int, int, random.Random], bool]
ROWS_THAT_RAISE: dict[str, Raises] = {
    "a tenth at random": lambda job, call, rng: rng.random() < 0.1,
    "a third at random": lambda job, call, rng: rng.random() < 0.3,
    "every second row's first call": lambda job, call, rng: job % 2 == 1 and call == 1,
    "three calls of every tenth row": lambda job, call, rng: job % 10 == 3 and call <= 3,
}


def cluster_of(redis: Redis, provider: Callable[[Attempt], tuple[float, Outcome]]) -> Cluster:
    limits = {LANE: {"requests_per_minute": None}}
    return Cluster(redis, provider=provider, workers=[FakeWorker("w1", 100)], lanes=limits)


@pytest.mark.parametrize("wait_ms", [None, 5000])
@pytest.mark.parametrize("latency_s", [0.05, 1.0])
@pytest.mark.parametrize("raises", ROWS_THAT_RAISE)
def test_rows_that_raise_slow_no_other_row(
    real_redis: Redis, raises: str, latency_s: float, wait_ms: int | None
) -> None:
    calls, rng = Counter[int](), random.Random(1)

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        calls[attempt.job] += 1
        if ROWS_THAT_RAISE[raises](attempt.job, calls[attempt.job], rng):
            return 0.002, RateLimited("busy", retry_after_ms=wait_ms)
        return latency_s, Success("yes", Usage(None, None))

    cluster = cluster_of(real_redis, provider)
    ref = cluster.submit(ROWS, model=LANE)
    own_waits_s = 3 * (wait_ms or 1000) / 1000
    took_s = run_until(cluster, lambda: count(cluster, ref, "n:succeeded") == ROWS, 6 + own_waits_s + 2)
    assert took_s
    assert calls.total() <= 2 * ROWS


@pytest.mark.parametrize("names_wait", [False, True])
def test_a_true_limit_of_a_function_is_found(real_redis: Redis, names_wait: bool) -> None:
    rate, bucket, rejected = 5, [5.0, 0.0], [0]

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        now_s = cluster.now_ms / 1000
        bucket[:] = [min(5, bucket[0] + (now_s - (bucket[1] or now_s)) * rate), now_s]
        if bucket[0] < 1:
            rejected[0] += 1
            wait_ms = round(1000 * (1 - bucket[0]) / rate) + 1
            return 0.005, RateLimited("busy", retry_after_ms=wait_ms if names_wait else None)
        bucket[0] -= 1
        return 0.5, Success("yes", Usage(None, None))

    cluster = cluster_of(real_redis, provider)
    ref = cluster.submit(60 * rate, model=LANE)
    run_until(cluster, lambda: count(cluster, ref, "n:succeeded") == 60 * rate, 80)
    assert rejected[0] <= 60
