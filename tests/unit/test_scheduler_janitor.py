"""Sweeping: index entries go with their runs, the others stay; a tick takes a turn of it."""

from __future__ import annotations

import random

import pytest
from redis import Redis

from fairlane.core.clock import ManualClock
from fairlane.model.run import RunRef
from fairlane.store.keys import Keys
from fairlane.store.write.runs.archive_stub import ArchiveStubs
from fairlane.store.write.runs.inbox import Inbox
from fairlane_scheduler.state.backlog import Backlog
from fairlane_scheduler.upkeep import janitor as sweeping
from fairlane_scheduler.upkeep.janitor import EVERY_MS, TURN_MS, Janitor

KEYS = Keys("test")
PAGE_MS = 5


class SlowInbox(Inbox):
    """Each page takes time, and is counted."""

    def __init__(self, redis: Redis, clock: ManualClock) -> None:
        super().__init__(redis, KEYS)
        self._clock, self.pages = clock, 0

    def forget_expired(self, team: str, first: int, count: int) -> tuple[int, int]:
        self._page()
        return super().forget_expired(team, first, count)

    def tidy(self, cursor: int) -> int:
        self._page()
        return super().tidy(cursor)

    def _page(self) -> None:
        self.pages += 1
        self._clock.advance(PAGE_MS / 1000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def inbox(fake_redis: Redis, clock: ManualClock) -> SlowInbox:
    return SlowInbox(fake_redis, clock)


@pytest.fixture
def janitor(inbox: SlowInbox, clock: ManualClock, fake_redis: Redis) -> Janitor:
    return Janitor(inbox, clock, Backlog(), ArchiveStubs(fake_redis, KEYS))


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

    janitor.tick()

    assert left(fake_redis, "search") == ["r2"]
    assert left(fake_redis, "ads") == []


def test_between_sweeps_nothing_is_asked(
    fake_redis: Redis, janitor: Janitor, inbox: SlowInbox, clock: ManualClock
) -> None:
    began_ms = clock.monotonic_ms()
    janitor.tick()
    index(fake_redis, "search", {"r1": False})
    asked = inbox.pages

    clock.advance((began_ms + EVERY_MS - 1 - clock.monotonic_ms()) / 1000)
    janitor.tick()
    assert inbox.pages == asked

    clock.advance(0.001)
    janitor.tick()
    assert left(fake_redis, "search") == []


def test_old_runs_that_last_do_not_hide_the_ones_behind_them(
    fake_redis: Redis, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "AT_ONCE", 3)
    runs = {f"old{n}": True for n in range(7)} | {f"gone{n}": False for n in range(8)} | {"new": True}
    index(fake_redis, "search", runs)

    for _ in range(2):
        janitor.tick()

    assert left(fake_redis, "search") == [f"old{n}" for n in range(7)] + ["new"]


@pytest.mark.parametrize("seed", range(5))
def test_a_tick_takes_a_turn_and_a_sweep_reaches_everything(
    fake_redis: Redis,
    janitor: Janitor,
    inbox: SlowInbox,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    monkeypatch.setattr(sweeping, "AT_ONCE", 4)
    rng = random.Random(seed)
    teams = {f"t{n}": {f"r{i:02}": rng.random() < 0.5 for i in range(rng.randrange(40))} for n in range(20)}
    for team, runs in teams.items():
        index(fake_redis, team, runs)
    kept = {team: [run for run, there in runs.items() if there] for team, runs in teams.items()}

    ticks = 0
    while {team: left(fake_redis, team) for team in teams} != kept:
        began_ms, asked = clock.monotonic_ms(), inbox.pages
        janitor.tick()
        assert clock.monotonic_ms() - began_ms <= TURN_MS + PAGE_MS
        assert inbox.pages > asked, "no tick is without progress"
        ticks += 1
    assert ticks > 4


def test_runs_that_have_not_ended_are_active_again_where_redis_has_lost_that(
    fake_redis: Redis, janitor: Janitor
) -> None:
    """A scheduler that begins to lead after the loss knows them from the index alone."""
    index(fake_redis, "search", {"ended": True, "runs": True, "expired": False})
    fake_redis.hset(KEYS.state(RunRef("search", "ended")), "state", "completed")
    fake_redis.hset(KEYS.state(RunRef("search", "runs")), "state", "running")

    janitor.tick()

    assert fake_redis.smembers(KEYS.active) == {b"search/runs"}
