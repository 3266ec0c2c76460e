"""Calls of unlike latency at a provider that queues none: no window by latency holds the lane."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.outcome import Success
from fairlane.model.tokens import Usage
from tests.benchmarks.zoo import keeper
from tests.benchmarks.zoo.provider import ADMITTED
from tests.benchmarks.zoo.world import AxisLimit, Latency, Signals, Work
from tests.support.plain_world import plain_world
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker

LANE = "sim:fast"
HORIZON_S = 20.0


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    yield
    keeper.close()


def test_a_lane_uses_what_true_headers_show_where_calls_take_one_second_or_four() -> None:
    """Its 429s name tokens of output, and block it while only slow calls are left to end."""
    world = plain_world(
        seed=72232,
        limits=(
            AxisLimit("input", 1_296_715, "sliding", 1.0),
            AxisLimit("output", 1_762_227, "bucket", 0.134),
        ),
        latency=Latency("bimodal", 1.185, 0.734),
        signals=Signals("anthropic", "true", wait_form="seconds", names="axis"),
        work=Work(105, 288.7, 0.349, None, 1443),
        one_way_ms=17.4,
        horizon_s=HORIZON_S,
    )
    course = keeper.course_at(world)
    admitted = sum(each.verdict == ADMITTED and each.at_ms < 1000 * HORIZON_S for each in course.arrivals)
    assert admitted >= 0.45 * len(course.best.times_ms)


@pytest.mark.parametrize("seed", [1, 8])
def test_calls_that_end_while_a_lane_is_blocked_do_not_look_like_queueing(
    real_redis: Redis, seed: int
) -> None:
    """Quick calls end first, so those that end during a block are the slow ones of a lane that has grown."""
    rng = random.Random(seed)

    def provider(_attempt: Attempt) -> tuple[float, Success]:
        if seed % 2:
            seconds = 0.4 * (10 if rng.random() < 0.1 else 1) * rng.uniform(0.8, 1.2)
        else:
            seconds = rng.lognormvariate(-0.7, 0.8)
        return seconds, Success("yes", Usage(10, 5))

    cluster = Cluster(real_redis, provider=provider, workers=[FakeWorker("w1", 30)], lanes={LANE: {}})
    cluster.submit(6000)
    for _ in range(6):
        cluster.run_for(rng.uniform(0.5, 2.0))
        until_ms = cluster.now_ms + rng.randrange(500, 2500)
        cluster.redis.hset(cluster.keys.lane(LANE), "blocked_ms", until_ms)
        cluster.workers[0].slots = int(cluster.workers[0].slots * rng.uniform(1, 1.5))
        cluster.beat(cluster.workers[0], changed=True)
        cluster.run_for((until_ms - cluster.now_ms) / 1000)
        lane = cluster.redis.hgetall(cluster.keys.lane(LANE))
        assert not lane.get(b"window")
        assert not lane.get(b"search_by")
