"""Slots that are reserved for teams which hold few: calls of one team that hang stop no other team."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis import Redis

from fairlane.model.ending import Completion
from fairlane.model.job import Attempt, Feedback, JobState
from fairlane.model.tokens import Usage
from fairlane.store.write.workers import Beat, WorkerInfo
from tests.support.redis import emptied
from tests.support.scheduler_parts import Parts

LANES = ("sim:fast", "sim:slow")
DONE = '{"s":"succeeded","o":"x"}'


class Calls:
    """A scheduler with one worker, and the calls that it has let start."""

    def __init__(self, redis: Redis, slots: int = 40, **bounds: Any) -> None:
        self.parts = Parts(redis, **bounds)
        self.parts.capacity.update([Beat("w", 0, WorkerInfo("w", slots, LANES, "0", 1, "h", 0))])
        self.redis, self.slots = redis, slots
        self.running: list[Attempt] = []
        self.runs = 0

    def held(self) -> Counter[str]:
        return Counter(attempt.team for attempt in self.running)

    def submit(self, team: str, jobs: int, lane: str = "sim:fast") -> None:
        self.runs += 1
        self.parts.admit(jobs, run=f"r{self.runs}", team=team, model=lane)
        self.parts.feed_all()

    def tick(self) -> list[Attempt]:
        """Wake lanes, and serve them until none is to be asked at once; returns what started."""
        for lane in self.parts.wakeups.take(self.parts.leader.epoch).lanes:
            self.parts.dispatcher.wake(lane)
        started: list[Attempt] = []
        for _ in range(20):
            wait_ms = self.parts.dispatcher.tick(self.parts.moment())
            started += self.parts.mailbox.collect()
            if wait_ms is None:
                self.running += started
                return started
        raise AssertionError("the dispatcher asks again and again")

    def end(self, attempt: Attempt) -> None:
        self.running.remove(attempt)
        parts = self.parts
        parts.attempts.claim(attempt, "w", 15_000, parts.now_ms).run(self.redis)
        feedback = Feedback("ok", Usage(1, 1))
        parts.attempts.finish(attempt, "w", feedback, Completion(JobState.SUCCEEDED, DONE), parts.now_ms).run(
            self.redis
        )


def test_calls_of_one_team_that_hang_leave_slots_to_another(fake_redis: Redis) -> None:
    calls = Calls(fake_redis)
    calls.submit("greedy", 100)

    assert len(calls.tick()) == 38
    assert calls.tick() == []

    calls.submit("victim", 5)
    assert [attempt.team for attempt in calls.tick()] == ["victim"] * 2

    for _ in range(3):
        calls.end(next(attempt for attempt in calls.running if attempt.team == "victim"))
        assert [attempt.team for attempt in calls.tick()] == ["victim"]


def test_another_lane_of_the_same_workers_has_reserved_slots_too(fake_redis: Redis) -> None:
    calls = Calls(fake_redis)
    calls.submit("greedy", 100)
    calls.tick()

    calls.submit("greedy", 5, "sim:slow")
    calls.submit("victim", 5, "sim:slow")

    assert [attempt.team for attempt in calls.tick()] == ["victim"] * 2


def test_calls_in_flight_over_all_lanes_are_reserved_in_the_same_way(fake_redis: Redis) -> None:
    calls = Calls(fake_redis, slots=500, max_in_flight=60)
    calls.submit("greedy", 100)
    assert len(calls.tick()) == 57

    calls.submit("victim", 5)

    assert [attempt.team for attempt in calls.tick()] == ["victim"] * 3
    for _ in range(2):
        calls.end(calls.running[-1])
        assert [attempt.team for attempt in calls.tick()] == ["victim"]


def test_too_few_slots_for_a_whole_one_reserve_none(fake_redis: Redis) -> None:
    calls = Calls(fake_redis, slots=19)
    calls.submit("greedy", 100)

    assert len(calls.tick()) == 19


def test_the_operator_says_how_many_are_reserved(fake_redis: Redis) -> None:
    calls = Calls(fake_redis, reserved_slots_percent=25)
    calls.submit("greedy", 100)

    assert len(calls.tick()) == 30


def test_a_team_becomes_small_although_its_call_ends_while_lanes_are_asked(
    fake_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its call ends after teams were counted, and before the lane is among those that are woken."""
    calls = Calls(fake_redis)
    calls.submit("greedy", 100)
    calls.tick()
    calls.submit("victim", 2, "sim:slow")
    assert len(calls.tick()) == 2
    calls.submit("victim", 9)
    assert calls.tick() == []
    await_slots = calls.parts.lanes.await_slots

    def ends_first(*args: Any) -> dict[str, int]:
        monkeypatch.setattr(calls.parts.lanes, "await_slots", await_slots)
        fake_redis.delete(calls.parts.keys.starved)  # as after an end that has woken the lane for this tick
        calls.end(next(attempt for attempt in calls.running if attempt.team == "victim"))
        return await_slots(*args)

    monkeypatch.setattr(calls.parts.lanes, "await_slots", ends_first)
    calls.parts.dispatcher.wake_all()

    assert [attempt.team for attempt in calls.tick()] == ["victim"]


class ReservedSlots(RuleBasedStateMachine):
    """Teams submit on two lanes, calls end or hang in any order, and workers come and go."""

    def __init__(self, redis: Redis) -> None:
        super().__init__()
        self.calls = Calls(emptied(redis), slots=40, max_in_flight=60)

    @property
    def reserved(self) -> int:
        return min(self.calls.slots, 60) * 5 // 100

    @rule(team=st.sampled_from(["a", "b", "c"]), jobs=st.integers(1, 60), lane=st.sampled_from(LANES))
    def submit(self, team: str, jobs: int, lane: str) -> None:
        self.calls.submit(team, jobs, lane)
        self._tick()

    @rule(data=st.data(), count=st.integers(1, 10))
    @precondition(lambda self: self.calls.running)
    def end(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.calls.running))):
            self.calls.end(self.calls.running[data.draw(st.integers(0, len(self.calls.running) - 1))])
        self._tick()

    @rule(slots=st.sampled_from([20, 40, 100]))
    def rescale(self, slots: int) -> None:
        self.calls.slots = slots
        self.calls.parts.capacity.update([Beat("w", 0, WorkerInfo("w", slots, LANES, "0", 1, "h", 0))])
        self.calls.parts.dispatcher.wake_all()
        self._tick()

    def _tick(self) -> None:
        held, free = self.calls.held(), self._free()
        for attempt in self.calls.tick():
            assert free > self.reserved or held[attempt.team] < self.reserved
            held[attempt.team], free = held[attempt.team] + 1, free - 1

    def _free(self) -> int:
        return min(self.calls.slots, 60) - len(self.calls.running)

    @invariant()
    def no_slot_is_free_for_a_team_that_waits(self) -> None:
        waiting = {team for lane in LANES for team in self.calls.parts.backlog.lane(lane).by_team}
        held, free = self.calls.held(), self._free()
        if waiting:
            assert free <= self.reserved
        if free > 0:
            assert all(held[team] >= self.reserved for team in waiting)


@pytest.mark.slow
def test_reserved_slots_go_to_small_teams_alone_and_no_slot_is_kept_from_them(real_redis: Redis) -> None:
    settings = hypothesis_settings(max_examples=30, stateful_step_count=25, deadline=None)
    run_state_machine_as_test(lambda: ReservedSlots(real_redis), settings=settings)
