"""Dispatching: lanes are asked when they are due, what is granted is handed over, slots are kept."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from redis import Redis
from structlog.testing import capture_logs

from fairlane.model.ending import Completion
from fairlane.model.job import Feedback, JobState
from fairlane.model.run import Bounds, RunRef, RunState
from fairlane.model.tokens import Usage
from fairlane.store.write.leader import NotLeader
from fairlane.store.write.registry import TeamRecord
from fairlane.store.write.workers import Beat, WorkerInfo
from fairlane_scheduler.dispatch.dispatcher import AGAIN_MS, BROKER_AWAY_MS
from tests.support.scheduler_parts import Parts


def staffed(redis: Redis, slots: int, *lanes: str, **bounds: float) -> Parts:
    """A scheduler that knows one worker."""
    parts = Parts(redis, **bounds)
    staff(parts, slots, *lanes or ("sim:fast", "sim:slow"))
    return parts


def staff(parts: Parts, slots: int, *lanes: str) -> None:
    parts.capacity.update([Beat("w", 0, WorkerInfo("w", slots, lanes, "0", 1, "h", 0))])


def tick(parts: Parts) -> int | None:
    return parts.dispatcher.tick(parts.moment())


def test_a_lane_without_limits_is_emptied_into_the_free_slots(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 50, reserved_slots_percent=0)
    parts.admit(100)
    parts.feed_all()

    assert tick(parts) is None

    assert [attempt.job for attempt in parts.mailbox.collect()] == list(range(50))


def test_a_request_asks_for_twice_as_many_as_were_granted_up_to_a_bound(
    fake_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = staffed(fake_redis, 2000)
    for n in range(6):
        parts.admit(100, run=f"r{n}")
    parts.feed_all()
    asked, grant = list[int](), parts.lanes.grant

    def noted(lane: str, epoch: int, offers: Any, **more: Any) -> Any:
        asked.append(sum(offer.most for offer in offers))
        return grant(lane, epoch, offers, **more)

    monkeypatch.setattr(parts.lanes, "grant", noted)
    tick(parts)
    assert asked == [24, 56, 120, 200, 200]


def test_a_lane_waits_for_its_rate_and_says_when_to_ask(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 50)
    parts.admit(10)
    parts.feed_all()
    parts.lanes.limit("sim:fast", {"requests_per_minute": 60})

    assert tick(parts) == 1021
    assert len(parts.mailbox.collect()) == 1
    assert tick(parts) == 1021
    assert parts.mailbox.collect() == []

    parts.clock.advance(1.021)
    tick(parts)
    assert len(parts.mailbox.collect()) == 1


def test_a_fast_lane_is_not_asked_for_every_single_permit(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 1000)
    parts.admit(5000)
    parts.feed_all()
    parts.lanes.limit("sim:fast", {"requests_per_minute": 60_000, "burst_seconds": 0.11})
    tick(parts)

    assert AGAIN_MS <= (tick(parts) or 0) <= 12


def test_permits_gather_longer_for_a_run_that_waits_alone(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 1000)
    parts.admit(500, run="a")
    parts.feed_all()
    parts.lanes.limit("sim:fast", {"requests_per_minute": 1200})
    tick(parts)
    parts.mailbox.collect()

    assert tick(parts) == 250

    parts.clock.advance(0.25)
    assert tick(parts) == 250
    assert len(parts.mailbox.collect()) == 5


def test_a_run_that_comes_waits_no_longer_than_if_nothing_had_gathered_for_another(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 1000)
    parts.admit(500, run="a")
    parts.feed_all()
    parts.lanes.limit("sim:fast", {"requests_per_minute": 1200})
    tick(parts)
    parts.mailbox.collect()
    parts.clock.advance(0.05)
    parts.admit(10, run="b", team="other")
    parts.feed_all()

    assert tick(parts) == 50

    assert "b" in [attempt.run for attempt in parts.mailbox.collect()]


def test_the_last_permits_of_a_run_gather_no_longer_than_it_has_jobs(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 1000)
    parts.admit(3, run="a")
    parts.feed_all()
    parts.lanes.limit("sim:fast", {"requests_per_minute": 1200, "burst_seconds": 0.05})
    tick(parts)
    assert len(parts.mailbox.collect()) == 1

    parts.clock.advance(0.053)
    tick(parts)
    assert len(parts.mailbox.collect()) == 1
    assert tick(parts) == 53


def test_a_woken_lane_is_asked_at_once(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 50)
    parts.registry.ensure("sim:fast")
    parts.lanes.pause("sim:fast")
    parts.admit(3)
    parts.feed_all()
    assert tick(parts) is None
    parts.lanes.resume("sim:fast", parts.now_ms)
    assert tick(parts) is None
    assert parts.mailbox.collect() == []

    parts.dispatcher.wake("sim:fast")
    tick(parts)

    assert len(parts.mailbox.collect()) == 3


def test_waking_all_asks_every_lane_again(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 0)
    parts.admit(1, run="a", model="sim:fast")
    parts.admit(1, run="b", model="sim:slow")
    parts.feed_all()
    assert tick(parts) is None
    staff(parts, 5, "sim:fast", "sim:slow")

    parts.dispatcher.wake_all()
    tick(parts)

    assert {attempt.lane for attempt in parts.mailbox.collect()} == {"sim:fast", "sim:slow"}


def test_what_is_fed_to_an_empty_lane_starts_without_being_woken(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 50)
    parts.admit(1, run="a")
    parts.feed_all()
    tick(parts)
    parts.admit(1, run="b")
    parts.feed_all()

    tick(parts)

    assert len(parts.mailbox.collect()) == 2


def test_slots_are_counted_over_all_lanes_of_a_worker(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 7)
    parts.admit(5, run="a", model="sim:fast")
    parts.admit(5, run="b", model="sim:slow")
    parts.feed_all()

    tick(parts)

    assert len(parts.mailbox.collect()) == 7


def test_lanes_that_wait_for_slots_are_counted_in_one_step(
    fake_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = [f"sim:{n}" for n in range(20)]
    parts = staffed(fake_redis, 1, *lanes)
    for lane in lanes:
        parts.admit(5, run=lane.replace(":", "-"), model=lane)
    parts.feed_all()
    tick(parts)
    asked, counted = list[str](), list[int]()
    grant, await_slots = parts.lanes.grant, parts.lanes.await_slots
    monkeypatch.setattr(
        parts.lanes, "grant", lambda lane, *a, **k: asked.append(lane) or grant(lane, *a, **k)
    )
    monkeypatch.setattr(
        parts.lanes, "await_slots", lambda some, of: counted.append(len(some)) or await_slots(some, of)
    )

    parts.dispatcher.wake_all()

    assert tick(parts) is None
    assert (asked, counted) == ([], [20])
    assert fake_redis.scard(parts.keys.starved) == 20


def test_a_slot_that_becomes_free_while_lanes_are_asked_is_not_missed(
    fake_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call may end after the lane was last counted and before the lane is among those that are woken."""
    parts = staffed(fake_redis, 3)
    parts.admit(9)
    parts.feed_all()
    tick(parts)
    (first, *_) = parts.mailbox.collect()
    await_slots = parts.lanes.await_slots

    def ends_first(*args: Any) -> dict[str, int]:
        monkeypatch.setattr(parts.lanes, "await_slots", await_slots)
        parts.attempts.claim(first, "w", 15_000, parts.now_ms).run(fake_redis)
        done, feedback = '{"s":"succeeded","o":"x"}', Feedback("ok", Usage(1, 1))
        parts.attempts.finish(first, "w", feedback, Completion(JobState.SUCCEEDED, done), parts.now_ms).run(
            fake_redis
        )
        return await_slots(*args)

    monkeypatch.setattr(parts.lanes, "await_slots", ends_first)
    parts.dispatcher.wake_all()

    assert tick(parts) == 0
    tick(parts)
    assert len(parts.mailbox.collect()) == 1


def test_the_lane_that_uses_the_fewest_slots_is_asked_first(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 10)
    parts.admit(30, run="a", model="sim:fast")
    parts.feed_all()
    tick(parts)
    parts.mailbox.collect()
    parts.admit(30, run="b", model="sim:slow")
    parts.feed_all()
    staff(parts, 14, "sim:fast", "sim:slow")

    parts.dispatcher.wake_all()
    tick(parts)

    assert [attempt.lane for attempt in parts.mailbox.collect()] == ["sim:slow"] * 4


def test_a_new_term_counts_what_another_leader_has_granted(fake_redis: Redis) -> None:
    before = staffed(fake_redis, 10)
    before.admit(8, run="a", model="sim:slow")
    before.feed_all()
    tick(before)
    heir = staffed(fake_redis, 10)
    heir.admit(30, run="b", model="sim:fast")
    heir.feed_all()

    heir.dispatcher.begin_term(heir.lanes.names())
    tick(heir)

    assert len(heir.mailbox.collect()) == 2


def test_a_deposed_leader_cannot_grant(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 10)
    parts.admit(5)
    parts.feed_all()
    moment = parts.moment()
    parts.depose()

    with pytest.raises(NotLeader):
        parts.dispatcher.tick(moment)

    assert parts.mailbox.collect() == []


def test_what_was_granted_is_sent_even_if_the_next_lane_fails(
    fake_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = staffed(fake_redis, 50)
    parts.admit(2, run="a", model="sim:fast")
    parts.admit(2, run="b", model="sim:slow")
    parts.feed_all()
    grant = parts.lanes.grant
    monkeypatch.setattr(
        parts.lanes, "grant", lambda lane, *a, **k: None if lane == "sim:slow" else grant(lane, *a, **k)
    )

    with pytest.raises(NotLeader):
        tick(parts)

    assert [attempt.lane for attempt in parts.mailbox.collect()] == ["sim:fast"] * 2


def test_while_the_broker_is_away_nothing_is_granted(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 50)
    parts.admit(2)
    parts.feed_all()
    parts.mailbox.reachable = False

    assert tick(parts) == BROKER_AWAY_MS
    assert parts.leases.count() == 0

    parts.mailbox.reachable = True
    tick(parts)
    assert len(parts.mailbox.collect()) == 2


def test_with_nothing_queued_nobody_is_asked(fake_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = staffed(fake_redis, 50)
    monkeypatch.setattr(parts.lanes, "grant", None)
    parts.mailbox.reachable = False

    assert tick(parts) is None


def test_the_global_cap_holds_over_lanes(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 50, max_in_flight=6)
    parts.admit(5, run="a", model="sim:fast")
    parts.admit(5, run="b", model="sim:slow")
    parts.feed_all()

    tick(parts)

    assert len(parts.mailbox.collect()) == 6


def test_each_permit_is_reported_to_the_log(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 2)
    run = parts.admit(5)
    parts.feed_all()

    with capture_logs() as logs:
        tick(parts)

    lines = [line for line in logs if line["event"] == "acquired"]
    fields = {"run": run.ref.run, "team": "search", "lane": "sim:fast", "attempt": 1}
    assert [line["job"] for line in lines] == [0, 1]
    assert all(line.items() >= fields.items() for line in lines)
    assert [(line["active_slots"], line["queue_depth"]) for line in lines] == [(2, 3), (2, 3)]


def test_a_team_that_was_made_while_running_has_its_weight(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 80, reserved_slots_percent=0)
    parts.team_shares.update({"large": TeamRecord(weight=3.0)})
    for team in ("large", "small"):
        parts.admit(1000, run=f"of-{team}", team=team)
    parts.feed_all()

    tick(parts)

    granted = Counter(attempt.team for attempt in parts.mailbox.collect())
    assert granted == {"large": 60, "small": 20}


def begun(parts: Parts, **run: object) -> int:
    """Tasks of a run with a judge that start before anything ends."""
    parts.admit(200, judges=["sim:judge"], **run)
    parts.feed_all()
    tick(parts)
    return len(parts.mailbox.collect())


def test_tasks_run_ahead_by_twice_the_slots_of_the_judges_lane(fake_redis: Redis) -> None:
    parts = Parts(fake_redis)
    tasks, judges = (
        WorkerInfo("w", 100, ("sim:fast",), "0", 1, "h", 0),
        WorkerInfo("j", 2, ("sim:judge",), "0", 1, "h", 0),
    )
    parts.capacity.update([Beat("w", 0, tasks), Beat("j", 0, judges)])

    assert begun(parts) == 4


def test_tasks_run_ahead_by_twice_the_calls_at_once_of_the_judges_lane(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 100, "sim:fast", "sim:judge")
    parts.lanes.limit("sim:judge", {"max_concurrency": 3})
    parts.admit(1, run="r0", model="sim:judge")
    parts.feed_all()
    tick(parts)
    parts.mailbox.collect()

    assert begun(parts) == 6


def test_a_judges_lane_that_nobody_serves_yet_counts_the_slots_of_all_workers(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 30, "sim:fast", reserved_slots_percent=0)
    parts.capacity.update(
        [Beat(name, 0, WorkerInfo(name, 30, ("sim:fast",), "0", 1, "h", 0)) for name in ("v", "w")]
    )

    assert begun(parts) == 60
    assert parts.capacity.serving("sim:judge") == 60


def test_a_run_says_itself_how_far_its_tasks_run_ahead(fake_redis: Redis) -> None:
    assert begun(staffed(fake_redis, 2, "sim:fast", "sim:judge"), bounds={"ahead": 1}) == 1


@pytest.mark.parametrize("arrives", ["before", "after"])
def test_a_team_whose_turn_is_late_is_offered_a_call_while_those_of_another_fail(
    fake_redis: Redis, arrives: str
) -> None:
    """Calls that fail cost little, so their team is due for many before another has its turn."""
    parts = staffed(fake_redis, 50)
    victim = parts.admit(2, run="v", team="victim")
    flood = parts.admit(100, run="f", team="flood")
    for run, share in ((victim, 1e6), (flood, 1e-9)):
        parts.dispatcher._turn("sim:fast").shares.charge(run.ref, share)
    if arrives == "before":
        parts.feed_all()
    else:
        parts.feeder.tick(parts.moment())
        parts.backlog.lane("sim:fast").throttle(victim.ref, None)
    open_ms = parts.moment().server_ms + 60_000
    opened = {"circuit": "open", "open_ms": open_ms, "fail_team": "/flood", "first_n": 1, "granted": 9}
    fake_redis.hset(parts.keys.lane("sim:fast"), mapping=opened)
    tick(parts)
    if arrives == "after":
        assert parts.mailbox.collect() == []
        parts.backlog.unthrottle("sim:fast")
        tick(parts)
    assert [attempt.team for attempt in parts.mailbox.collect()] == ["victim"]


def test_a_run_whose_next_call_exceeds_its_budget_is_to_end_once_none_is_in_flight(fake_redis: Redis) -> None:
    parts = staffed(fake_redis, 50)
    parts.admit(3, run="poor", bounds=Bounds(budget_tokens=1))
    parts.admit(3, run="busy", bounds=Bounds(budget_tokens=1500))
    parts.admit(3, run="paused")
    parts.feed_all()
    parts.runs.pause(RunRef("search", "paused"), "me", parts.leader.epoch, parts.now_ms)

    tick(parts)

    assert [attempt.run for attempt in parts.mailbox.collect()] == ["busy"]
    (ended,) = parts.dispatcher.take_out_of_budget().items()
    assert (ended[0].run, ended[1].state) == ("poor", RunState.STOPPED)
    assert re.fullmatch(
        r"the next call would exceed its budget: it may use [\d,]+ tokens, and 1 are left; "
        "continue it with a larger budget_tokens or a smaller max_tokens",
        ended[1].reason,
    )
