"""Sweeping: index entries go with their runs, the others stay, however many there are."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.model.run import RunRef
from fairlane.store.keys import Keys
from fairlane.store.write.runs.inbox import Inbox
from fairlane_scheduler.upkeep import janitor as sweeping
from fairlane_scheduler.upkeep.janitor import EVERY_MS, Janitor

KEYS = Keys("test")


@pytest.fixture
def janitor(fake_redis: Redis) -> Janitor:
    return Janitor(Inbox(fake_redis, KEYS))


def index(redis: Redis, team: str, runs: dict[str, bool]) -> None:
    """Index entries of a team's runs, oldest first; true where the run is still there."""
    redis.sadd(KEYS.teams, team)
    for age, (run, there) in enumerate(runs.items()):
        redis.zadd(KEYS.runs(team), {run: age})
        if there:
            redis.hset(KEYS.state(RunRef(team, run)), "state", "running")


def left(redis: Redis, team: str) -> list[str]:
    return [run.decode() for run in redis.zrange(KEYS.runs(team), 0, -1)]


def test_entries_of_runs_that_are_gone_are_swept_for_every_team(fake_redis: Redis, janitor: Janitor) -> None:
    index(fake_redis, "search", {"r1": False, "r2": True, "r3": False})
    index(fake_redis, "ads", {"r1": False})

    assert janitor.tick(0) == EVERY_MS

    assert left(fake_redis, "search") == ["r2"]
    assert left(fake_redis, "ads") == []


def test_between_sweeps_nothing_is_asked(fake_redis: Redis, janitor: Janitor) -> None:
    janitor.tick(1000)
    index(fake_redis, "search", {"r1": False})

    assert janitor.tick(1000 + EVERY_MS - 1) == 1
    assert left(fake_redis, "search") == ["r1"]

    janitor.tick(1000 + EVERY_MS)
    assert left(fake_redis, "search") == []


def test_old_runs_that_last_do_not_hide_the_ones_behind_them(
    fake_redis: Redis, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "AT_ONCE", 3)
    runs = {f"old{n}": True for n in range(7)} | {f"gone{n}": False for n in range(8)} | {"new": True}
    index(fake_redis, "search", runs)

    janitor.tick(0)

    assert left(fake_redis, "search") == [f"old{n}" for n in range(7)] + ["new"]


def test_one_sweep_looks_at_a_bounded_number_of_runs(
    fake_redis: Redis, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "AT_ONCE", 2)
    index(fake_redis, "search", {f"gone{n:02}": False for n in range(50)})

    janitor.tick(0)

    assert len(left(fake_redis, "search")) == 50 - 2 * sweeping.MOST_PAGES
