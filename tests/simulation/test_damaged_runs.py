"""A key of another type that belongs to one run stops that run alone, until it is deleted."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from redis import Redis
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from fairlane.model.outcome import Outcome, ServerError, Success
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from fairlane.store.read import mistyped as room
from fairlane.store.read.lost_parts import incomplete_runs
from tests.support.scheduling import Cluster, assert_complete
from tests.support.stand_ins import FakeWorker

PARTS = [*room.OF_RUN, "hot", "fresh"]
ENDED = "completed"


def answer(attempt: object) -> tuple[float, Outcome]:
    job, number = getattr(attempt, "job", 0), getattr(attempt, "number", 0)
    if job % 3 == 1 and number == 1:
        return 0.2, ServerError("busy", 500)
    return 0.4, Success("yes", Usage(10, 5))


class World:
    """Two teams' runs on one lane with few slots. A worker leaves alone what it could not report."""

    def __init__(self, redis: Redis) -> None:
        self.cluster = Cluster(redis, provider=answer, workers=[FakeWorker("w1", 4)])
        self.redis, self.keys = redis, self.cluster.keys
        self.stopped = list[ResponseError]()
        scheduler = self.cluster.processes[0].scheduler
        tick = scheduler.tick

        def watched(teams: Collection[str] | None = None) -> int:
            try:
                return tick(teams)
            except ResponseError as error:
                self.stopped.append(error)
                scheduler.store_came_back()
                return 100

        scheduler.__dict__["tick"] = watched

    def run_for(self, seconds: float) -> None:
        until_ms = self.cluster.now_ms + seconds * 1000
        while self.cluster.now_ms < until_ms:
            try:
                self.cluster.run_for(0.5)
            except ResponseError:
                self.cluster.workers[0].calls.clear()

    def state(self, ref: RunRef) -> str:
        """Empty where Redis has none."""
        return (self.redis.hget(self.keys.state(ref), "state") or b"").decode()

    def damage(self, ref: RunRef, part: str) -> str:
        make = getattr(self.keys, part)
        key: str = make(ref, "sim:fast") if part in ("hot", "fresh") else make(ref)
        wanted = {**room.OF_RUN, "hot": "list", "fresh": "list"}[part]
        self.redis.delete(key)
        self.redis.rpush(key, "x") if wanted == "string" else self.redis.set(key, "x")
        return key


@pytest.mark.parametrize("new_leader", [False, True])
@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_run_does_not_stop_other_teams_runs(real_redis: Redis, part: str, new_leader: bool) -> None:
    world = World(real_redis)
    damaged = world.cluster.submit(30, team="search", judges=["sim:judge"])
    world.run_for(0.7)
    key = world.damage(damaged, part)
    if new_leader:
        world.cluster.processes[0].scheduler.store_came_back()
    with capture_logs() as logs:
        other = world.cluster.submit(20, team="ads", judges=["sim:judge"])
        world.run_for(60)
    assert world.stopped == []
    assert world.state(other) == ENDED
    assert int(real_redis.hget(world.keys.lane("sim:fast"), "inflight") or 0) == 0
    said = [line["error"] for line in logs if line["event"] == "run_damaged"]
    assert len(said) <= 1
    assert all(f"redis-cli DEL '{key}'" in each for each in said)
    real_redis.delete(key)
    world.run_for(120)
    assert world.state(damaged) in (ENDED, "") or incomplete_runs(real_redis, world.keys)


def test_requests_for_a_damaged_run_wait_in_order_and_delay_no_others(real_redis: Redis) -> None:
    world = World(real_redis)
    damaged = world.cluster.submit(30, team="search")
    world.run_for(0.3)
    key = world.damage(damaged, "jobs")
    world.run_for(2)
    world.cluster.outbox.cancel(damaged)
    world.cluster.outbox.pause(damaged, "ann")
    others = [world.cluster.submit(20, team=team) for team in ("ads", "search")]
    world.run_for(30)
    assert ([world.state(other) for other in others], world.stopped) == ([ENDED, ENDED], [])
    real_redis.delete(key)
    world.run_for(5)
    assert world.state(damaged) == "cancelled"
    assert not world.cluster.outbox.waiting("search")
    for other in others:
        assert_complete(world.cluster, other)
