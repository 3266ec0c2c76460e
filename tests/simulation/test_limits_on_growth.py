"""A provider that limits how fast a rate grows is used as it allows, also while it names waits."""

from __future__ import annotations

import random
from collections import deque

import pytest
from redis import Redis

from fairlane.model.hints import Hints
from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, RateLimited, Success
from fairlane.model.tokens import Usage
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker

LANE = "sim:fast"
SPAN_S, BEFORE_S = 10.0, 30.0
WORDS = "this request would exceed your organization's maximum usage increase rate"


class Accelerating:
    """Input tokens in 10 s may be 1.3 times the mean of 10 s in the 30 s before, and 600 more."""

    def __init__(self, seed: int, factor: float = 1.3, free: int = 600) -> None:
        self._rng, self._factor, self._free = random.Random(seed), factor, free
        self._admitted: deque[tuple[float, int]] = deque()
        self.count = self.refused = 0
        self.cluster: Cluster

    def __call__(self, attempt: Attempt) -> tuple[float, Outcome]:
        now, tokens = self.cluster.now_ms / 1000, self._rng.randint(50, 90)
        while self._admitted and self._admitted[0][0] < now - SPAN_S - BEFORE_S:
            self._admitted.popleft()
        last = sum(each for at, each in self._admitted if at > now - SPAN_S)
        before = sum(each for at, each in self._admitted if at <= now - SPAN_S)
        if last + tokens > self._factor * before * SPAN_S / BEFORE_S + self._free:
            self.refused += 1
            return 0.1, RateLimited(WORDS, 429, 10_000, Hints(exhausted="growth"))
        self._admitted.append((now, tokens))
        self.count += 1
        return self._rng.uniform(0.2, 0.6), Success("yes", Usage(tokens, 10))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("limit", [None, 3000.0], ids=["an unknown limit", "50 a second"])
def test_a_lane_grows_as_fast_as_its_provider_lets_it(
    real_redis: Redis, seed: int, limit: float | None
) -> None:
    """It made 43 to 91 calls in 80 s, as it waited for 10 s after each 429 and fell meanwhile."""
    provider = Accelerating(seed)
    cluster = Cluster(
        real_redis,
        provider=provider,
        workers=[FakeWorker("w1", 200)],
        lanes={LANE: {"requests_per_minute": limit}},
    )
    provider.cluster = cluster
    cluster.submit(1000)
    cluster.run_for(80)
    assert provider.count >= 130
    assert provider.refused <= 60  # 40 of them are the first burst of a bucket at 50 a second
