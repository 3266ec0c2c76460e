"""What dies is started again, after pauses that grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.core.clock import ManualClock
from fairlane.core.errors import LocalStackError
from fairlane.local.keeper import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, STEADY_AFTER_MS, Keeper
from fairlane.local.stack import Death


class MortalStack:
    """Stands in for a stack whose children die on command."""

    def __init__(self) -> None:
        self.dead: list[Death] = []
        self.restarted: list[str] = []
        self.refuses = False

    def die(self, name: str) -> None:
        self.dead.append(Death(name, -9, Path("x.log")))

    def poll(self) -> list[Death]:
        dead, self.dead = self.dead, []
        return dead

    def restart(self, name: str) -> None:
        if self.refuses:
            raise LocalStackError(name, "does not come up")
        self.restarted.append(name)


@pytest.fixture
def stack() -> MortalStack:
    return MortalStack()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def news() -> list[str]:
    return []


@pytest.fixture
def keeper(stack: MortalStack, clock: ManualClock, news: list[str]) -> Keeper:
    return Keeper(stack, clock, news.append)


def seconds_until_restart(keeper: Keeper, stack: MortalStack, clock: ManualClock) -> float:
    """Let the child die and count the seconds until it is back, in steps of a quarter."""
    stack.die("worker-1")
    before = len(stack.restarted)
    keeper.tick()
    waited = 0.0
    while len(stack.restarted) == before:
        clock.advance(0.25)
        waited += 0.25
        keeper.tick()
    return waited


def test_a_death_is_reported_and_answered_after_a_short_pause(
    keeper: Keeper, stack: MortalStack, clock: ManualClock, news: list[str]
) -> None:
    stack.die("worker-1")
    assert not keeper.tick()
    assert news == ["worker-1 was killed by SIGKILL (see x.log); starting it again in 0.5 s"]
    clock.advance(FIRST_PAUSE_MS / 1000)
    assert keeper.tick()
    assert stack.restarted == ["worker-1"]


def test_nothing_is_restarted_twice(keeper: Keeper, stack: MortalStack, clock: ManualClock) -> None:
    stack.die("worker-1")
    for _ in range(10):
        keeper.tick()
        clock.advance(1)
    assert stack.restarted == ["worker-1"]


def test_the_pause_doubles_up_to_its_bound(keeper: Keeper, stack: MortalStack, clock: ManualClock) -> None:
    pauses = [seconds_until_restart(keeper, stack, clock) for _ in range(9)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert pauses[-1] * 1000 == LONGEST_PAUSE_MS


def test_after_running_steadily_the_pause_is_short_again(
    keeper: Keeper, stack: MortalStack, clock: ManualClock
) -> None:
    for _ in range(4):
        seconds_until_restart(keeper, stack, clock)
    clock.advance(STEADY_AFTER_MS / 1000)
    assert seconds_until_restart(keeper, stack, clock) == FIRST_PAUSE_MS / 1000


def test_children_have_pauses_of_their_own(keeper: Keeper, stack: MortalStack, clock: ManualClock) -> None:
    for _ in range(4):
        seconds_until_restart(keeper, stack, clock)
    stack.die("scheduler-1")
    keeper.tick()
    clock.advance(FIRST_PAUSE_MS / 1000)
    keeper.tick()
    assert stack.restarted[-1] == "scheduler-1"


def test_a_restart_that_fails_is_tried_again_later(
    keeper: Keeper, stack: MortalStack, clock: ManualClock, news: list[str]
) -> None:
    stack.refuses = True
    stack.die("redis")
    keeper.tick()
    clock.advance(0.5)
    keeper.tick()
    assert news[-1] == "redis: does not come up; trying again in 1 s"
    stack.refuses = False
    clock.advance(1)
    keeper.tick()
    assert stack.restarted == ["redis"]
