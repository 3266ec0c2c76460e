"""429s that a lower rate does not end: whoever knew its limit returns to it, whoever searches does not."""

from __future__ import annotations

import pytest
from redis import Redis

from tests.support.deployment import Deployment
from tests.support.hidden_limit import Bucket, HiddenLimit

MINUTE_MS = 60_000


@pytest.mark.parametrize("latency_ms", [300, 15_000])
def test_a_lane_that_searches_a_slow_limit_does_not_start_over(real_redis: Redis, latency_ms: int) -> None:
    d = Deployment(real_redis)
    lane = HiddenLimit(d, d.unknown_lane(jobs=1000), Bucket(4, 10), latency_ms=lambda in_flight: latency_ms)
    lane.run(MINUTE_MS)
    for _ in range(14):
        lane.run(MINUTE_MS)
        assert lane.state("requests_est") <= 5 * 4
