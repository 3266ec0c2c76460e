"""A run's own bounds are kept to whatever is asked, in any order of starts and ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.decision import Defer
from fairlane.model.ending import Completion, ReadyJob
from fairlane.model.job import Attempt, Feedback, JobState, Signal
from fairlane.model.results import TaskResult
from fairlane.model.run import RunRef
from fairlane.model.tokens import Estimate, Usage
from fairlane.store.write.budgets import Budgets
from fairlane.store.write.permits import Grant, Offer
from tests.support.deployment import Deployment, entry

TASKS, JUDGES = "sim:fast", "sim:judge"
DONE = TaskResult(JobState.SUCCEEDED, "x").to_json()
ANY = {"bounded": 1}


def submitted(d: Deployment, rows: int, bounds: dict[str, float], judges: int = 0) -> RunRef:
    """A run with these bounds, all of it queued."""
    d.lane(TASKS)
    d.lane(JUDGES)
    ref = d.submit(rows=rows, judges=(JUDGES,) * judges)
    d.redis.hset(d.keys.state(ref), mapping=ANY | bounds)
    d.feed(ref, rows, TASKS)
    return ref


def ask(d: Deployment, ref: RunRef, lane: str = TASKS, count: int = 100, ahead: int = 0) -> Grant:
    grant = d.lanes.grant(
        lane,
        d.epoch,
        [Offer(ref, count, ahead)],
        room=1000,
        max_in_flight=1000,
        lease_ms=60_000,
        now_ms=d.now_ms,
    )
    assert grant is not None
    return grant


def started(d: Deployment, ref: RunRef, grant: Grant, lane: str = TASKS) -> list[Attempt]:
    attempts = [Attempt(ref.run, ref.team, permit.job, permit.number, lane) for permit in grant.permits]
    for attempt in attempts:
        d.attempts.claim(attempt, "w1", 60_000, d.now_ms).run(d.redis)
    return attempts


def end(d: Deployment, attempt: Attempt, usage: Usage | None = None, judges: int = 0) -> None:
    follow = [ReadyJob(entry(attempt.job + step, 10, step), JUDGES) for step in range(1, judges + 1)]
    feedback = Feedback("ok", usage or Usage())
    call = d.attempts.finish(
        attempt, "w1", feedback, Completion(JobState.SUCCEEDED, DONE, tuple(follow)), d.now_ms
    )
    assert call.run(d.redis) is not None


def put_back(d: Deployment, attempt: Attempt) -> None:
    assert d.attempts.defer(attempt, "w1", Defer(Feedback("none")), now_ms=d.now_ms).run(d.redis) is not None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(most=st.integers(1, 6), acts=st.lists(st.sampled_from(["ask", "end", "defer"]), max_size=30))
def test_never_more_in_flight_than_max_concurrent_and_never_fewer_without_need(
    real_redis: Redis, most: int, acts: list[str]
) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    ref = submitted(d, 40, {"max_concurrent": most})
    running: list[Attempt] = []
    for act in acts:
        if act == "ask":
            grant = ask(d, ref)
            running += started(d, ref, grant)
            assert len(running) == most or not grant.queued[0]
        elif running:
            attempt = running.pop(0)
            end(d, attempt) if act == "end" else put_back(d, attempt)
        assert len(running) <= most
        assert int(d.redis.hget(d.keys.state(ref), "in_flight") or 0) == len(running)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ahead=st.integers(1, 5), acts=st.lists(st.sampled_from(["task", "end", "judge"]), max_size=40))
def test_items_under_way_are_never_more_than_ahead(real_redis: Redis, ahead: int, acts: list[str]) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    ref = submitted(d, 30, {}, judges=2)
    tasks: list[Attempt] = []
    pending: dict[int, int] = {}
    for act in acts:
        if act == "task":
            grant = ask(d, ref, ahead=ahead)
            tasks += started(d, ref, grant)
            assert len(tasks) + len(pending) == ahead or not grant.queued[0]
        elif act == "end" and tasks:
            attempt = tasks.pop(0)
            end(d, attempt, judges=2)
            pending[attempt.job // 3] = 2
        elif act == "judge" and pending:
            for attempt in started(d, ref, ask(d, ref, JUDGES, 1, ahead), JUDGES):
                end(d, attempt)
                pending[attempt.job // 3] -= 1
            pending = {item: left for item, left in pending.items() if left}
        assert len(tasks) + len(pending) <= ahead


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    gap=st.floats(20, 400),
    waits=st.lists(st.integers(0, 300), min_size=1, max_size=40),
)
def test_starts_keep_to_the_pace_and_its_slack(real_redis: Redis, gap: float, waits: list[int]) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    ref = submitted(d, 200, {"task_gap_ms": gap})
    starts: list[int] = []
    for wait in waits:
        d.clock.advance(wait / 1000)
        grant = ask(d, ref)
        starts += [d.now_ms] * len(grant.permits)
        (kept,) = grant.delayed
        assert (kept.bound, kept.until_ms > d.now_ms) == ("task_rate", True)
    for first, moment in enumerate(starts):
        for last in range(first, len(starts)):
            assert last - first <= (starts[last] - moment + 100) / gap + 1e-6


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    budget=st.integers(30, 400),
    uses=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), min_size=1, max_size=30),
)
def test_use_and_reservations_never_exceed_the_budget(
    real_redis: Redis, budget: int, uses: list[tuple[int, int]]
) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    ref = submitted(d, 60, {"budget_tokens": budget})
    used = 0
    for wanted, (input_used, output_used) in enumerate(uses):
        running = started(d, ref, ask(d, ref, count=1 + wanted % 3))
        held = sum(_held(d, attempt) for attempt in running)
        assert used + held <= budget
        for attempt in running:
            # A call uses no more than was reserved: its parameters bound the answer.
            most = _held(d, attempt)
            usage = Usage(min(input_used, most), min(output_used, max(0, most - input_used)))
            used += usage.total or 0
            end(d, attempt, usage)
        assert used <= budget
        assert round(float(d.redis.hget(d.keys.state(ref), "tokens") or 0)) == used


def _held(d: Deployment, attempt: Attempt) -> int:
    return int(json.loads(d.redis.hget(d.keys.leased, attempt.id) or "{}")["held"][0])


def test_a_delayed_run_delays_no_other(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = submitted(d, 5, {"max_concurrent": 1})
    other = d.submit(run="r2", rows=5)
    d.feed(other, 5, TASKS)
    grant = d.lanes.grant(
        TASKS,
        d.epoch,
        [Offer(ref, 3), Offer(other, 3)],
        room=99,
        max_in_flight=99,
        lease_ms=9999,
        now_ms=d.now_ms,
    )
    assert grant is not None
    assert [permit.offer for permit in grant.permits] == [0, 1, 1, 1]
    assert [(kept.offer, kept.bound) for kept in grant.delayed] == [(0, "max_concurrent")]


def test_the_deployments_cap_as_it_was_at_admission_holds_over_all_lanes(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = submitted(d, 5, {"cap": 2})
    first = started(d, ref, ask(d, ref))
    assert len(first) == 2
    assert [kept.bound for kept in ask(d, ref).delayed] == ["cap"]
    end(d, first[0])
    assert TASKS.encode() in d.redis.smembers(d.keys.dirty), "the lane is to be looked at again"
    assert len(ask(d, ref).permits) == 1


def test_lanes_that_wait_for_a_bound_are_woken_when_an_attempt_ends(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = submitted(d, 5, {"max_concurrent": 1})
    (running,) = started(d, ref, ask(d, ref))
    assert ask(d, ref).permits == []
    d.redis.delete(d.keys.dirty)
    put_back(d, running)
    assert TASKS.encode() in d.redis.smembers(d.keys.dirty)


def test_a_run_without_bounds_has_none_of_their_fields(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(requests_per_minute=0)
    grant = ask(d, ref, count=3)
    assert (len(grant.permits), list(grant.delayed)) == (3, [])
    assert not d.redis.hexists(d.keys.state(ref), "tasks_in_flight")


def test_a_budget_reserves_the_most_that_a_prompt_can_have(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    lane = d.lane(TASKS)
    ref = d.submit(rows=200)
    d.redis.hset(d.keys.state(ref), mapping=ANY | {"budget_tokens": 10_000})
    entries = {lane: [entry(job, Estimate(92, 16, most_input=1100)) for job in range(200)]}
    assert d.runs.feed(ref, d.epoch, 0, 200, entries, [], d.now_ms) == 1
    used = 0
    while running := started(d, ref, ask(d, ref)):
        for attempt in running:
            end(d, attempt, Usage(345, 16))
            used += 361
    assert 10_000 - 1116 < used <= 10_000


def test_a_prompt_beyond_its_bound_raises_the_bound_of_the_next(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    lane = d.lane(TASKS)
    ref = d.submit(rows=20)
    d.redis.hset(d.keys.state(ref), mapping=ANY | {"budget_tokens": 1000})
    entries = {lane: [entry(job, Estimate(10, 10, most_input=100)) for job in range(20)]}
    assert d.runs.feed(ref, d.epoch, 0, 20, entries, [], d.now_ms) == 1
    (first,) = started(d, ref, ask(d, ref, count=1))
    end(d, first, Usage(300, 10))
    assert len(started(d, ref, ask(d, ref))) == 2, "690 are left, and 310 may be used by each"


@dataclass(frozen=True, slots=True)
class End:
    """One way in which a call ends, and whether its job is called again.

    ``counts`` is what budgets count for the tokens ``reserved`` and ``reported``.
    """

    signal: Signal
    counts: Callable[[int, int], int]
    again: bool = True
    reports: bool = False
    sent: bool = True
    handle: str | None = None


def nothing(reserved: int, reported: int) -> int:
    return 0


def all_reserved(reserved: int, reported: int) -> int:
    return reserved


def as_reported(reserved: int, reported: int) -> int:
    return reported


ENDS = (
    End("ok", as_reported, again=False, reports=True),
    End("ok", all_reserved, again=False),
    End("answered", nothing, again=False),  # rejected: the request itself was wrong
    End("answered", as_reported, reports=True),  # an answer without the requested form
    End("answered", nothing),  # a parameter is not supported
    End("none", nothing, again=False, sent=False),  # a request that cannot be written
    End("limited", nothing),
    End("limited", nothing, again=False),
    End("overloaded", nothing),
    End("server_error", nothing),
    End("refused", nothing),
    End("absent", nothing),
    End("broken", all_reserved),  # the answer was lost
    End("broken", all_reserved, again=False),
    End("broken", nothing, sent=False),  # no connection could be opened
    End("broken", nothing, again=False, sent=False),
    End("unsent", nothing, sent=False),
    End("none", nothing, sent=False),
    End("none", all_reserved),  # its worker stopped while it was called
    End("none", nothing, handle="h:1"),  # the next attempt resumes the same call
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ends=st.lists(
        st.tuples(st.sampled_from(ENDS), st.integers(0, 20), st.integers(1, 3)), min_size=1, max_size=25
    )
)
def test_a_run_and_its_team_count_the_same_use(real_redis: Redis, ends: list[tuple[End, int, int]]) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    ref = submitted(d, 200, {"budget_tokens": 10_000})
    Budgets(d.redis, d.keys).set(ref.team, "day", {"tokens": 100_000})
    counted = 0
    for how, reported, calls in ends:
        d.advance(60_000)
        open_lane(d)
        attempts = started(d, ref, ask(d, ref, count=calls))
        assert len(attempts) == calls
        for attempt in attempts:
            reserved = _held(d, attempt)
            usage = Usage(reported, reported) if how.reports else Usage()
            feedback = Feedback(how.signal, usage, sent=how.sent)
            if how.again:
                call = d.attempts.defer(attempt, "w1", Defer(feedback), handle=how.handle, now_ms=d.now_ms)
            else:
                call = d.attempts.finish(attempt, "w1", feedback, Completion(JobState.FAILED, DONE), d.now_ms)
            assert call.run(d.redis) is not None
            counted += how.counts(reserved, 2 * reported)
        (team,) = Budgets(d.redis, d.keys).of([ref.team], d.now_ms)
        assert round(float(d.redis.hget(d.keys.state(ref), "tokens") or 0)) == counted
        assert team.used == counted


def open_lane(d: Deployment) -> None:
    """Whatever the lane has learned, it grants what it is asked for."""
    kept = ("inflight", "epoch")
    fields = [field for field in d.lane_state(TASKS) if field not in kept]
    if fields:
        d.redis.hdel(d.keys.lane(TASKS), *fields)
