"""Each part of a leader's tick does a bounded amount of work, and the ticks together do all of it."""

from __future__ import annotations

import json

import pytest

from fairlane.model.ending import OUT_OF_BUDGET
from fairlane.model.run import RunState
from fairlane.store.rejections import ENOUGH_REFUSALS, REJECTED
from fairlane.store.run_queries import RunStates
from fairlane.store.write.runs.uncalled_jobs import UncalledJobs
from fairlane.store.write.workers import WorkerInfo
from fairlane_scheduler.intake.receiver import TICK_MS
from fairlane_scheduler.state.backlog import REFUSED
from fairlane_scheduler.upkeep import deadlines, outages, recoverer
from fairlane_scheduler.upkeep import uncalled as failing
from fairlane_scheduler.upkeep.deadlines import EarlyEnds
from fairlane_scheduler.upkeep.outages import Outages
from fairlane_scheduler.upkeep.uncalled import Refusals, Uncalled
from tests.support.scheduler_parts import LEASE_MS, WORKER_TIMEOUT_MS, Parts


def uncalled(parts: Parts) -> Uncalled:
    return Uncalled(UncalledJobs(parts.redis, parts.keys), parts.backlog, parts.loader)


def keep_leading(parts: Parts) -> None:
    parts.redis.hset(parts.keys.leader, "until_ms", parts.now_ms + 60_000)


def test_an_outage_of_many_runs_fails_a_bounded_number_of_jobs_in_a_tick(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "AT_ONCE", 3)
    runs = [parts.admit(5, run=f"r{n}", bounds={"max_outage": 1}) for n in range(3)]
    parts.feed_all()
    fields = {"circuit": "open", "down_ms": parts.now_ms, "open_ms": parts.now_ms + 3_600_000}
    parts.redis.hset(parts.keys.lane("sim:fast"), mapping=fields)
    parts.clock.advance(10)
    keep_leading(parts)
    watch, left = Outages(parts.lanes, parts.backlog, uncalled(parts)), [15]
    while left[-1]:
        more = watch.tick(parts.moment())
        left.append(sum(len(parts.queued(run.ref, "sim:fast")) for run in runs))
        assert more or not left[-1]
    assert left == [15, 12, 9, 6, 3, 0]


def test_no_jobs_are_read_where_none_are_asked_for(parts: Parts) -> None:
    run = parts.admit(5)
    parts.feed_all()
    jobs = UncalledJobs(parts.redis, parts.keys)
    assert [len(jobs.first_queued(run.ref, "sim:fast", most)) for most in (-1, 0, 1, 2)] == [0, 0, 1, 2]


@pytest.mark.parametrize("of_budget", [False, True])
def test_many_runs_that_end_early_at_once_end_some_a_tick(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, of_budget: bool
) -> None:
    monkeypatch.setattr(deadlines, "ENDED_AT_ONCE", 3)
    bounds = {} if of_budget else {"max_duration": 1}
    runs = [parts.admit(1, run=f"r{n}", bounds=bounds) for n in range(8)]
    parts.clock.advance(2)
    keep_leading(parts)
    ends = EarlyEnds(parts.runs, parts.backlog, parts.loader, parts.registry.names)
    spent, left = {run.ref: OUT_OF_BUDGET for run in runs} if of_budget else {}, [8]
    while left[-1]:
        wait_ms = ends.tick(spent, parts.moment())
        spent = {}
        left.append(sum(parts.state(run.ref)["state"] == RunState.RUNNING for run in runs))
        assert wait_ms == (0 if left[-1] else None)
    assert left == [8, 5, 2, 0]


def test_the_leases_of_lost_workers_come_back_some_a_tick(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recoverer, "AT_ONCE", 4)
    run = parts.admit(10)
    parts.feed_all()
    for worker in ("w1", "w2"):
        held = parts.permits(run.ref, 5)
        for attempt in held:
            parts.attempts.claim(attempt, worker, 10 * LEASE_MS, parts.now_ms).run(parts.redis)
        info = WorkerInfo(worker, 10, ("sim:fast",), "0", 1, "host", 0)
        ids = [attempt.id for attempt in held]
        parts.workers.beat(worker, info, ids, 10 * LEASE_MS, changed=False, now_ms=parts.now_ms).run(
            parts.redis
        )
    parts.clock.advance(WORKER_TIMEOUT_MS / 1000 + 1)
    keep_leading(parts)
    left = [parts.leases.count()]
    while left[-1]:
        parts.recoverer.tick(parts.moment())
        left.append(parts.leases.count())
    assert left == [10, 6, 2, 0]
    assert parts.workers.beats(parts.redis) == []


def test_runs_that_refusals_hold_are_logged_some_a_tick(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failing, "AT_ONCE", 3)
    runs = [parts.admit(1, run=f"r{n}", bounds={"on_refusal": "hold"}) for n in range(8)]
    parts.feed_all()
    rejected = json.dumps({"count": ENOUGH_REFUSALS, "refusal": "404 gone", "words": "gone"})
    for run in runs:
        parts.redis.hset(parts.keys.state(run.ref), f"{REJECTED}0:sim:fast", rejected)
        parts.backlog.throttle("sim:fast", run.ref, None, REFUSED)
    watch = Refusals(RunStates(parts.redis, parts.keys), parts.backlog, uncalled(parts))
    held = [0]
    while held[-1] < 8:
        assert watch.tick(parts.moment())
        held.append(sum(bool(run.held_on) for run in runs))
    assert held == [0, 3, 6, 8]
    assert not watch.tick(parts.moment())


def test_a_team_that_waits_for_a_child_is_served_after_a_tick_whose_time_was_up(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    ads, _ = (parts.upload(parts.spec(1, team=team), [{"q": 1}]) for team in ("ads", "search"))
    parts.receiver._awaited_ms["ads"] = parts.clock.monotonic_ms() + 400
    serve = parts.receiver._serve

    def slowly(team: str, moment: object) -> bool:
        parts.clock.advance(TICK_MS / 1000)
        return serve(team, moment)  # type: ignore[arg-type]

    monkeypatch.setattr(parts.receiver, "_serve", slowly)
    assert parts.receiver.tick(["ads", "search"], parts.moment()) == 0
    parts.clock.advance(0.4)
    for _ in range(3):
        parts.receiver.tick([], parts.moment())
    assert parts.state(ads)["state"] == RunState.RUNNING


def test_relief_of_a_full_redis_serves_all_teams_in_turn(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    teams = [f"t{n}" for n in range(10)]
    refs = [parts.upload(parts.spec(1, team=team), [{"q": 1}]) for team in teams]
    parts.receiver.tick(None, parts.moment())
    for ref in refs:
        parts.outbox.cancel(ref)
    served, serve = list[str](), parts.receiver._serve

    def slowly(team: str, moment: object) -> bool:
        served.append(team)
        parts.clock.advance(TICK_MS / 3000)
        return serve(team, moment)  # type: ignore[arg-type]

    monkeypatch.setattr(parts.receiver, "_serve", slowly)
    for _ in range(4):
        before = len(served)
        parts.receiver.relieve(parts.moment())
        assert len(served) - before <= 4
    assert set(served) == set(teams)
    assert all(parts.state(ref)["state"] == RunState.CANCELLED for ref in refs)
