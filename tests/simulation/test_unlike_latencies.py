"""Calls of unlike latency on one lane."""

from __future__ import annotations

from redis import Redis

from fairlane.model.outcome import Success
from fairlane.model.tokens import Usage
from tests.support.scheduling import Cluster


def test_models_of_unlike_speed_on_one_lane_do_not_look_like_queueing(real_redis: Redis) -> None:
    """A fast team is alone at first; then two come whose models take five and twenty times as long."""
    per_s = 30
    seconds = {"quick": 0.1, "usual": 0.5, "slow": 2.0}
    cluster = Cluster(
        real_redis,
        lanes={"sim:fast": {"requests_per_minute": per_s * 60, "burst_seconds": 1.0}},
        provider=lambda attempt: (seconds[attempt.team], Success("yes", Usage(5, 5))),
    )
    cluster.submit(3000, team="quick")
    cluster.run_for(20)
    for team in ("usual", "slow"):
        cluster.submit(3000, team=team)
    began = len(cluster.starts)
    cluster.run_for(60)
    assert len(cluster.starts) - began >= 0.97 * per_s * 60
    assert float(cluster.redis.hget(cluster.keys.lane("sim:fast"), "search_window") or 0) == 0
