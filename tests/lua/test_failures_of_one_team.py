"""Failures of one team's calls, which may be of its own making, keep no other team from a lane."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt, JobState, Signal
from fairlane.model.run import RunRef
from tests.support.deployment import LEASE_MS, Deployment
from tests.support.lane_calls import LANE, ask, runs_of
from tests.support.redis import emptied

APART_MS, OPEN_MS = 1000, 1000


def fail(d: Deployment, ref: RunRef, count: int = 5, signal: Signal = "server_error") -> None:
    """So many calls of a run that start apart and fail."""
    attempts = []
    for _ in range(count):
        attempts += ask(d, [ref])[1]
        d.advance(APART_MS)
    assert len(attempts) == count
    for attempt in attempts:
        d.defer(attempt, signal=signal, cost="attempt")


def circuit(d: Deployment) -> str:
    return d.lanes.view(LANE).circuit


@pytest.mark.parametrize("signal", ["broken", "server_error", "overloaded"])
def test_another_teams_call_goes_out_at_once_and_closes_the_circuit(
    real_redis: Redis, signal: Signal
) -> None:
    d = Deployment(real_redis)
    flood, victim = runs_of(d, "flood", "victim")
    fail(d, flood, signal=signal)
    d.advance(OPEN_MS - 100)  # an overload blocks the whole lane for a moment
    assert circuit(d) == "open"
    assert ask(d, [flood])[0].reason == "circuit", "the team itself waits"

    _, attempts = ask(d, [flood, victim], most=3)
    assert [attempt.team for attempt in attempts] == ["victim"]
    assert circuit(d) == "half-open"
    assert ask(d, [flood, victim])[0].reason == "probing", "one call at a time"
    d.finish(attempts[0])
    assert circuit(d) == "closed"
    d.advance(1000)
    assert ask(d, [victim])[1]


def test_a_call_that_fails_for_another_team_too_shuts_the_lane_for_all(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim, third = runs_of(d, "flood", "victim", "third")
    fail(d, flood)
    (probe,) = ask(d, [flood, victim])[1]
    d.defer(probe, signal="broken", cost="attempt")
    assert circuit(d) == "open"
    for ref in (flood, victim, third):
        grant, attempts = ask(d, [ref])
        assert (attempts, grant.reason) == ([], "circuit")
    d.advance(2 * OPEN_MS)
    assert len(ask(d, [flood, victim, third])[1]) == 1, "as ever, one probe for all"


def test_the_probe_of_a_cancelled_run_shuts_no_lane_that_answers_others(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = runs_of(d, "flood", "victim")
    fail(d, flood)
    d.advance(OPEN_MS)
    assert len(ask(d, [flood])[1]) == 1, "its probe is in flight"
    (trial,) = ask(d, [flood, victim])[1]
    d.finish(trial)
    assert circuit(d) == "closed"
    assert d.cancel(flood) > 0
    assert circuit(d) == "closed"


def test_failures_of_several_teams_open_it_as_those_of_one_do(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim, third = runs_of(d, "flood", "victim", "third")
    attempts = []
    for ref in (flood, victim, flood, victim, flood):
        attempts += ask(d, [ref])[1]
        d.advance(APART_MS)
    for attempt in attempts:
        d.defer(attempt, signal="broken", cost="attempt")
    assert circuit(d) == "open"
    assert ask(d, [third])[0].reason == "circuit"


def test_calls_that_fail_after_it_has_opened_are_remembered(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim, third = runs_of(d, "flood", "victim", "third")
    late = ask(d, [victim])[1]
    fail(d, flood)
    d.defer(late[0], signal="broken", cost="attempt")
    assert circuit(d) == "open"
    assert ask(d, [third])[0].reason == "circuit", "it failed for two teams"


def test_the_next_probe_is_another_teams_if_one_waits(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = runs_of(d, "flood", "victim")
    fail(d, flood)
    d.advance(OPEN_MS)
    assert [attempt.team for attempt in ask(d, [flood, victim])[1]] == ["victim"]


def test_without_other_teams_the_failing_team_gets_its_probe_in_time(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    (flood,) = runs_of(d, "flood")
    fail(d, flood)
    d.advance(OPEN_MS)
    assert [attempt.team for attempt in ask(d, [flood])[1]] == ["flood"]


def test_a_run_that_may_not_start_yet_leaves_the_circuit_as_it_is(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = runs_of(d, "flood", "victim")
    fail(d, flood)
    real_redis.hset(d.keys.state(victim), mapping={"bounded": 1, "max_concurrent": 1, "in_flight": 1})
    grant, attempts = ask(d, [flood, victim])
    assert (attempts, grant.reason) == ([], "circuit")
    assert grant.at_ms > d.now_ms


def test_a_doubt_that_one_team_raised_delays_only_that_team(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = runs_of(d, "flood", "victim")
    (first,) = ask(d, [flood])[1]
    d.advance(50)
    d.defer(first, signal="broken", cost="attempt")
    assert [attempt.team for attempt in ask(d, [flood])[1]] == ["flood"]
    assert ask(d, [flood])[0].reason == "doubt"
    assert [attempt.team for attempt in ask(d, [flood, victim], most=9)[1]] == ["victim"] * 5
    assert ask(d, [victim])[0].reason == "doubt", "they may fail, too"


def _acquitted(
    d: Deployment, *, names: tuple[str, str] = ("flood", "victim"), jobs: int = 100
) -> list[RunRef]:
    """Runs of a team whose calls alone failed, and of another, whose call was answered after that."""
    flood, victim = runs_of(d, *names, jobs=jobs)
    fail(d, flood)
    (trial,) = ask(d, [flood, victim])[1]
    d.advance(10)
    d.finish(trial)
    return [flood, victim]


def test_a_lane_that_answers_another_team_needs_neither_ramp_nor_empty_buckets(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    _, victim = _acquitted(d)
    assert len(ask(d, [victim], most=50)[1]) == 50


@pytest.mark.parametrize("names", [("flood", "victim"), ("007", "1e3"), ("0x10", "inf")])
def test_the_failing_team_makes_one_call_at_a_time_and_one_for_each_answer_to_others(
    real_redis: Redis, names: tuple[str, str]
) -> None:
    d = Deployment(real_redis)
    flood, victim = _acquitted(d, names=names)
    (first,) = ask(d, [flood], most=5)[1]
    grant, attempts = ask(d, [flood], most=5)
    assert (attempts, [each.bound for each in grant.delayed]) == ([], ["circuit"])
    d.advance(20)
    d.defer(first, signal="server_error", cost="unproven")
    assert circuit(d) == "closed"
    assert not ask(d, [flood])[1], "nobody was answered since"

    (other,) = ask(d, [victim])[1]
    d.dirty()
    d.finish(other)
    assert LANE in d.dirty(), "the team is asked again"
    assert len(ask(d, [flood], most=5)[1]) == 1


def test_failures_of_a_shut_out_team_cost_its_jobs_attempts(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = _acquitted(d, jobs=8)
    seen = []
    for _ in range(20):
        taken = ask(d, [flood])[1]
        if not taken:
            break
        reported = d.defer(taken[0], signal="server_error", cost="unproven", max_attempts=3)
        assert reported is not None
        if reported.exhausted:
            seen.append(taken[0].job)
            d.finish(taken[0], signal="server_error", state=JobState.FAILED)
        for other in ask(d, [victim])[1]:
            d.finish(other)
    assert seen, "they use up attempts"


def test_a_shut_out_team_waits_until_its_call_has_ended(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, _ = _acquitted(d)
    grant, attempts = ask(d, [flood], most=2)
    assert len(attempts) == 1
    assert [(each.bound, each.until_ms) for each in grant.delayed] == [("circuit", 0)]


def test_an_answer_to_the_shut_out_team_readmits_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, _ = _acquitted(d)
    (first,) = ask(d, [flood])[1]
    d.finish(first)
    assert len(ask(d, [flood], most=50)[1]) == 50


def test_of_many_teams_that_are_shut_out_the_first_is_dropped(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.redis.hset(d.keys.lane(LANE), "shut_teams", ",".join(f"t{n}:1:5" for n in range(8)))
    _acquitted(d)
    teams = [each.partition(":")[0] for each in d.lane_state(LANE)["shut_teams"].split(",")]
    assert teams == [*(f"t{n}" for n in range(1, 8)), "flood"]


def test_without_answers_to_others_its_next_failure_opens_the_circuit(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = _acquitted(d)
    (first,) = ask(d, [flood])[1]
    d.defer(first, signal="broken", cost="unproven")
    grant = ask(d, [flood])[0]
    assert [each.until_ms for each in grant.delayed] == [d.now_ms + OPEN_MS]
    d.advance(OPEN_MS)
    (second,) = ask(d, [flood])[1]
    d.defer(second, signal="broken", cost="unproven")
    assert circuit(d) == "open"
    assert ask(d, [flood])[0].reason == "circuit"
    assert len(ask(d, [victim], most=9)[1]) == 1, (
        "a call of another team shows again whether the lane answers"
    )


def test_a_probe_of_the_team_that_hangs_keeps_no_other_team_waiting(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim, third = runs_of(d, "flood", "victim", "third")
    fail(d, flood)
    d.advance(OPEN_MS)
    (hanging,) = ask(d, [flood])[1]
    (trial,) = ask(d, [victim, third], most=5)[1]
    assert ask(d, [third])[0].reason == "probing", "one trial at a time"
    d.finish(trial)
    assert len(ask(d, [victim], most=50)[1]) == 50
    d.advance(60_000)
    d.defer(hanging, signal="broken", cost="unproven")
    assert circuit(d) == "closed"


def test_another_teams_trial_waits_out_retry_after(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = runs_of(d, "flood", "victim")
    fail(d, flood, count=4)
    (last,) = ask(d, [flood])[1]
    d.defer(last, signal="server_error", cost="unproven", retry_after_ms=3000)
    assert circuit(d) == "open"
    grant, attempts = ask(d, [victim])
    assert (attempts, grant.reason, grant.wait_ms) == ([], "blocked", 3000)


def test_overloads_of_a_team_that_is_shut_out_block_nobody(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = _acquitted(d)
    (first,) = ask(d, [flood])[1]
    d.defer(first, signal="overloaded")
    assert ask(d, [victim])[1]


def test_a_block_by_overloads_of_one_team_does_not_hold_another(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = runs_of(d, "flood", "victim")
    for _ in range(3):
        (attempt,) = ask(d, [flood])[1]
        d.defer(attempt, signal="overloaded")
        d.advance(400)
    (attempt,) = ask(d, [flood])[1]
    d.defer(attempt, signal="overloaded")
    assert ask(d, [flood])[0].reason == "blocked"
    (first,) = ask(d, [flood, victim])[1]
    d.advance(10)
    d.finish(first)
    assert len(ask(d, [flood, victim], most=5)[1]) == 10, "the lane is not overloaded"


def test_retry_after_of_an_overload_delays_every_team(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = runs_of(d, "flood", "victim")
    (attempt,) = ask(d, [flood])[1]
    d.defer(attempt, signal="overloaded", retry_after_ms=60)
    grant, attempts = ask(d, [victim])
    assert (attempts, grant.reason) == ([], "blocked")
    d.advance(60)
    assert ask(d, [victim])[1]


def test_a_trial_that_is_cancelled_or_lost_is_followed_by_another(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim, third = runs_of(d, "flood", "victim", "third")
    fail(d, flood)
    ask(d, [victim])
    d.cancel(victim)
    (trial,) = ask(d, [third])[1]
    d.advance(LEASE_MS + 1)
    assert d.recover(trial) == 1
    assert len(ask(d, [third])[1]) == 1


def test_a_resumed_lane_shuts_nobody_out(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, _ = _acquitted(d)
    d.lanes.resume(LANE, d.now_ms)
    assert len(ask(d, [flood], most=50)[1]) == 50


def test_a_resumed_lane_forgets_retry_after(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = runs_of(d, "flood", "victim")
    (attempt,) = ask(d, [flood])[1]
    d.defer(attempt, signal="overloaded", retry_after_ms=60_000)
    d.lanes.resume(LANE, d.now_ms)
    d.advance(15_000)  # its ramp
    fail(d, flood)
    assert ask(d, [victim])[1]


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), st.booleans()), min_size=5, max_size=60))
def test_an_outage_meets_few_calls_whichever_teams_call_into_it(
    real_redis: Redis, steps: list[tuple[str, bool]]
) -> None:
    """Nobody is answered; calls end in any order. Besides what is in flight, a team costs one call."""
    d = Deployment(emptied(real_redis))
    d.lane(LANE, max_concurrency=10)
    refs = dict(zip(("one", "two", "three"), runs_of(d, "one", "two", "three"), strict=True))
    held: list[Attempt] = []
    after_open = 0
    for team, ends in steps:
        opened = circuit(d) != "closed"
        taken = ask(d, [refs[team]], most=3)[1]
        after_open += len(taken) if opened else 0
        held += taken
        d.advance(60)
        if ends and held:
            d.defer(held.pop(0), signal="broken", cost="unproven")
    assert after_open <= 2, "a trial of another team, and at most one probe in 60 × 60 ms"


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["flood", "victim"]), st.booleans()), max_size=25))
def test_while_one_team_alone_fails_the_other_waits_for_one_call_at_most(
    real_redis: Redis, steps: list[tuple[str, bool]]
) -> None:
    """The flood's calls fail and the victim's are answered, in any order and overlap."""
    d = Deployment(emptied(real_redis))
    refs = dict(zip(("flood", "victim"), runs_of(d, "flood", "victim"), strict=True))
    held: list[Attempt] = []
    for team, ends in steps:
        both = [refs["flood"], refs["victim"]] if team == "victim" else [refs["flood"]]
        held += ask(d, both)[1]
        d.advance(APART_MS)
        if ends and held:
            attempt = held.pop(0)
            if attempt.team == "flood":
                d.defer(attempt, signal="broken", cost="attempt")
            else:
                d.finish(attempt, state=JobState.SUCCEEDED)
    for attempt in held:
        if attempt.team == "flood":
            d.defer(attempt, signal="broken", cost="attempt")
        else:
            d.finish(attempt, state=JobState.SUCCEEDED)
    d.advance(APART_MS)
    taken = ask(d, [refs["flood"], refs["victim"]])[1]
    assert "victim" in [attempt.team for attempt in taken]


def _guests_that_end_in_429s(d: Deployment, refs: list[RunRef]) -> None:
    """Two failures of the first run's calls, then as many calls of the second's as may start, all 429s."""
    flood, victim = refs
    fail(d, flood, count=2)
    guests = ask(d, [victim], most=20)[1]
    assert guests
    for attempt in guests:
        d.defer(attempt, signal="none")
    d.advance(60_000)


def test_in_a_doubt_a_team_may_try_again_after_inconclusive_calls(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    refs = runs_of(d, "flood", "victim")
    _guests_that_end_in_429s(d, refs)
    assert ask(d, [refs[1]])[1], "nothing is in flight, so nobody would wake the lane"


def test_in_a_doubt_the_failing_team_calls_again_once_others_have(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    refs = flood, victim = runs_of(d, "flood", "victim")
    fail(d, flood, count=2)
    assert len(ask(d, [victim], most=20)[1]) == 5
    d.advance(APART_MS)
    assert [attempt.team for attempt in ask(d, refs)[1]] == ["flood"]


ends = st.sampled_from(["none", "none", "broken", "server_error", "overloaded"])


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fails=st.integers(1, 4),
    signals=st.tuples(ends, ends, ends),
    steps=st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=8, max_size=40),
)
def test_a_lane_without_calls_in_flight_starts_one_or_says_when(
    real_redis: Redis, fails: int, signals: tuple[Signal, ...], steps: list[tuple[int, bool]]
) -> None:
    """Nobody is answered: a team's calls fail, or say nothing of the lane as they end, in any overlap."""
    d = Deployment(emptied(real_redis))
    refs = runs_of(d, "flood", "victim", "third")
    fail(d, refs[0], fails)
    held: list[Attempt] = []
    signal_of = dict(zip(("flood", "victim", "third"), signals, strict=True))
    for team, ended in steps:
        held += ask(d, [refs[team]], most=2)[1]
        d.advance(60)
        if ended and held:
            attempt = held.pop(0)
            d.defer(attempt, signal=signal_of[attempt.team], cost="attempt")
    for attempt in held:
        d.defer(attempt, signal=signal_of[attempt.team], cost="attempt")
    d.advance(60_000)
    for asked in (*([ref] for ref in refs), refs):
        grant, attempts = ask(d, asked)
        assert attempts or grant.at_ms, grant
        for attempt in attempts:
            d.defer(attempt, signal="none")
