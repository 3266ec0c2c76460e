"""A Redis that loses everything: what the leader remembers of its lanes comes back, carefully."""

from __future__ import annotations

from redis import Redis

from fairlane.lab.simulator.limits.shapes import TokenBucket
from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, RateLimited, Success
from fairlane.model.tokens import Usage
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker

PER_MINUTE = 1200


class Hidden:
    """A provider with a limit that nobody has stated."""

    def __init__(self) -> None:
        self.cluster: Cluster | None = None
        self._bucket = TokenBucket(PER_MINUTE, 1.0, 0)
        self.refused = 0

    def __call__(self, attempt: Attempt) -> tuple[float, Outcome]:
        assert self.cluster is not None
        if self._bucket.take(1, self.cluster.now_ms):
            return 0.3 + attempt.job % 5 / 10, Success("yes", Usage(10, 5))
        self.refused += 1
        return 0.01, RateLimited("too fast")


def _estimate(cluster: Cluster) -> float:
    return float(cluster.redis.hget(cluster.keys.lane("sim:fast"), "requests_est") or 0)


def test_estimates_come_back_when_redis_has_lost_everything(real_redis: Redis) -> None:
    provider = Hidden()
    workers, lanes = [FakeWorker("w1", 500)], {"sim:fast": {"requests_per_minute": None}}
    cluster = provider.cluster = Cluster(real_redis, provider=provider, workers=workers, lanes=lanes)
    cluster.submit(20_000)
    cluster.run_for(60)
    assert abs(_estimate(cluster) / PER_MINUTE - 1) < 0.05

    real_redis.flushall()
    cluster.run_for(2)
    assert 0.85 * PER_MINUTE < _estimate(cluster) < 0.95 * PER_MINUTE

    lost_at_ms, refused = cluster.now_ms, provider.refused
    cluster.submit(20_000)
    cluster.run_for(10)
    begun = [start for start in cluster.starts if start.at_ms >= lost_at_ms]
    assert 0 < len(begun) < 0.8 * PER_MINUTE / 6, "it ramps up, and starts with no burst"
    assert provider.refused == refused


def test_a_parked_lane_stays_parked_when_redis_has_lost_everything(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, workers=[FakeWorker("w1", 10)])
    cluster.submit(10)
    cluster.run_for(10)
    real_redis.hset(cluster.keys.lane("sim:fast"), "parked", "no quota left")
    cluster.run_for(10)

    real_redis.flushall()
    cluster.run_for(2)

    assert cluster.lanes.view("sim:fast").parked == "no quota left"


def test_state_of_a_lane_that_redis_kept_is_not_overwritten(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, workers=[FakeWorker("w1", 10)])
    cluster.submit(10)
    cluster.run_for(10)
    real_redis.hset(cluster.keys.lane("sim:fast"), "requests_est", 77)
    real_redis.delete(cluster.keys.leader)
    cluster.run_for(2)

    assert _estimate(cluster) == 77
