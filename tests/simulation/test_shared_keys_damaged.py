"""A key of another type that all share is made anew; a lane's limits or a team's budget stop that alone."""

from __future__ import annotations

import pytest
from redis import Redis
from structlog.testing import capture_logs

from fairlane.model.run import RunRef
from fairlane.store.read import mistyped as room
from fairlane.store.write.budgets import Budgets
from fairlane_scheduler.service import SHARED_KEYS_MS
from tests.simulation.test_damaged_runs import ENDED, World

LANE, TEAM = "sim:fast", "search"
NOT_MET = ("limits", "reserved_shares")  # the second one only where teams have reserved shares
REBUILT = [*room.OF_DEPLOYMENT, *(name for name in room.OF_LANE if name not in NOT_MET), "runs", "headroom"]


def damage(world: World, name: str) -> str:
    wanted = {**room.OF_DEPLOYMENT, **room.OF_LANE, **room.OF_TEAM, "headroom": "list"}[name]
    made = getattr(world.keys, name)
    key: str = made
    if name in room.OF_LANE:
        key = made(LANE)
    elif name in room.OF_TEAM:
        key = made(TEAM)
    elif name == "headroom":
        key = made(LANE, "tokens")
    world.redis.delete(key)
    world.redis.rpush(key, "x") if wanted == "string" else world.redis.set(key, "x")
    return key


def ended(world: World, *refs: RunRef, within_s: int = 90) -> bool:
    """Let time pass until these runs have ended."""
    for _ in range(within_s):
        if all(world.state(ref) == ENDED for ref in refs):
            return True
        world.run_for(1)
    return False


@pytest.mark.parametrize("name", REBUILT)
def test_what_can_be_rebuilt_is_deleted_and_named(real_redis: Redis, name: str) -> None:
    world = World(real_redis)
    world.cluster.lanes.limit(LANE, {"tokens_per_minute": 100_000})
    first = world.cluster.submit(8, team=TEAM)
    world.run_for(0.7)
    key = damage(world, name)
    if name in ("leader", "clock", "scopes"):
        world.cluster.processes[0].scheduler.store_came_back()
    with capture_logs() as logs:
        world.cluster.clock.advance(1)
        world.cluster.processes[0].scheduler.tick()
        world.run_for(1)
        other = world.cluster.submit(5, team=TEAM if name == "runs" else "ads")
        assert ended(world, first, other)
        world.run_for(SHARED_KEYS_MS / 1000)
    assert world.stopped == []
    assert room.mistyped(real_redis, world.keys) == []
    assert [line["key"] for line in logs if line["event"] == "key_discarded"] == [key]


def test_a_lane_whose_limits_are_gone_alone_is_paused_with_those_of_the_configuration(
    real_redis: Redis,
) -> None:
    world = World(real_redis)
    first = world.cluster.submit(8, team=TEAM)
    other = world.cluster.submit(5, team="ads", model="sim:other")
    world.run_for(0.7)
    key = damage(world, "limits")
    with capture_logs() as logs:
        assert ended(world, other)
        world.run_for(5)
    assert [line["key"] for line in logs if line["event"] == "key_discarded"] == [key]
    assert (world.state(first), world.stopped) == ("running", [])
    assert world.cluster.lanes.view(LANE).paused
    world.cluster.lanes.resume(LANE, world.cluster.now_ms)
    assert ended(world, first)


def test_a_team_whose_budget_is_gone_alone_waits_and_loses_no_output(real_redis: Redis) -> None:
    world = World(real_redis)
    Budgets(real_redis, world.keys).set(TEAM, "day", {"requests": 1000})
    first = world.cluster.submit(8, team=TEAM)
    world.run_for(0.7)
    key = damage(world, "budget")
    with capture_logs() as logs:
        other = world.cluster.submit(5, team="ads")
        later = world.cluster.submit(5, team=TEAM)
        assert ended(world, other)
        world.run_for(5)
    said = [line["error"] for line in logs if line["event"] == "run_damaged"]
    assert len(said) == 2
    assert all(f"redis-cli DEL '{key}'" in each for each in said)
    assert (world.state(first), world.stopped) == ("running", [])
    assert not world.cluster.simulated.late
    real_redis.delete(key)
    assert ended(world, first, later)
    assert len(world.cluster.started(ref=first)) <= 8 + 4
