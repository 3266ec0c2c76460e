"""Teams at a lane's own hidden limit, newcomers among them, meet few more 429s than without suspicions."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, RateLimited, Success
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from tests.support.hidden_limit import Bucket, Limit, Places, Window
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker

LANE, MINUTE_MS, MORE = "sim:fast", 60_000, 3
LIMITS: dict[str, tuple[Limit, bool, float, int]] = {
    "a bucket": (Bucket(600, 10), False, 0.3, 9),
    "a bucket, long calls": (Bucket(600, 10), False, 5.0, 7),
    "a window that names its end": (Window(300), True, 0.3, 16),
    "calls at once": (Places(8), False, 0.3, 12),
    "calls at once, long calls": (Places(16), False, 5.0, 22),
}
"""The limit, whether a 429 says when the minute ends, seconds a call, and 429s without suspicions: of those
that name a wait, a few meet calls that try whether the lane must wait so long."""


@dataclass
class Provider:
    """Counts 429s of a limit that no header states."""

    limit: Limit
    names: bool
    seconds: float
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    ends_ms: list[float] = field(default_factory=list)
    refused: int = 0

    def answer(self, now_ms: int) -> tuple[float, Outcome]:
        self.ends_ms = [end for end in self.ends_ms if end > now_ms]
        if not self.limit.admit(now_ms, len(self.ends_ms)):
            self.refused += 1
            return 0.02, RateLimited(
                "too many", retry_after_ms=MINUTE_MS - now_ms % MINUTE_MS if self.names else None
            )
        took_s = self.seconds * self.rng.uniform(0.5, 1.5)
        self.ends_ms.append(now_ms + 1000 * took_s)
        return took_s, Success("yes", Usage(10, 5))


@pytest.mark.parametrize("name", LIMITS)
def test_newcomers_at_a_hidden_limit_cost_few_more_429s(real_redis: Redis, name: str) -> None:
    limit, names, seconds, before = LIMITS[name]
    provider = Provider(limit, names, seconds)

    def answer(attempt: Attempt) -> tuple[float, Outcome]:
        return provider.answer(cluster.now_ms)

    lanes = {LANE: {"requests_per_minute": None}}
    cluster = Cluster(real_redis, provider=answer, workers=[FakeWorker("w1", 100)], lanes=lanes)
    refs: list[RunRef] = [cluster.submit(500, team=team) for team in ("one", "two")]
    for n in range(8):
        cluster.run_for(5)
        refs.append(cluster.submit(10, team=f"new{n}"))
    cluster.run_until_finished(*refs)
    assert 0 < provider.refused <= before + MORE
