"""A provider that rejects a share of all calls and tells each to wait is used as far as it answers.

Each such wait had shut the lane: 20 % with Retry-After 5 left 37 of 300 rows in 150 s.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, Overloaded, RateLimited, Success
from fairlane.model.tokens import Usage
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker

ROWS = 300
UNKNOWN: dict[str, Any] = {"requests_per_minute": None}
ENDLESS: dict[str, Any] = {}
STATED: dict[str, Any] = {"requests_per_minute": 1200}


class ByChance:
    """Rejects ``share`` of all calls; each is to wait ``wait_ms``. ``early``: calls of jobs before that."""

    def __init__(self, share: float, status: int, wait_ms: int, seed: int) -> None:
        self._share, self._status, self._wait_ms = share, status, wait_ms
        self._rng, self._told, self.early = random.Random(seed), dict[int, int](), 0
        self.cluster: Any = None

    def __call__(self, attempt: Attempt) -> tuple[float, Outcome]:
        now_ms = self.cluster.now_ms
        self.early += now_ms < self._told.get(attempt.job, 0)
        if self._rng.random() >= self._share:
            return 0.2, Success("yes", Usage(10, 5))
        self._told[attempt.job] = now_ms + self._wait_ms
        if self._status == 429:
            return 0.005, RateLimited("too many requests", retry_after_ms=self._wait_ms)
        return 0.005, Overloaded("busy", 503, retry_after_ms=self._wait_ms)


@pytest.mark.parametrize("limits", [UNKNOWN, ENDLESS, STATED], ids=["unknown", "endless", "stated"])
@pytest.mark.parametrize(
    ("status", "share", "wait_ms"),
    [(429, 0.05, 5000), (429, 0.2, 5000), (429, 0.2, 20_000), (503, 0.2, 5000), (503, 0.2, 20_000)],
)
def test_most_rows_are_done_long_before_the_sum_of_their_waits(
    real_redis: Redis, status: int, share: float, wait_ms: int, limits: dict[str, Any]
) -> None:
    done = []
    for seed in (2, 4, 6):
        real_redis.flushall()
        provider = ByChance(share, status, wait_ms, seed)
        cluster = Cluster(
            real_redis, provider=provider, workers=[FakeWorker("w1", 100)], lanes={"sim:fast": limits}
        )
        provider.cluster = cluster
        ref = cluster.submit(ROWS)
        cluster.run_for(75)
        done.append(cluster.status(ref).jobs_done)
        assert provider.early == 0

    assert sum(done) >= 0.6 * ROWS * len(done)
