"""A team whose calls alone meet 429s, as its model has no quota, neither slows nor blocks a lane."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.run import RunRef
from tests.support.deployment import LEASE_MS, Deployment
from tests.support.lane_calls import LANE, ask, runs_of
from tests.support.redis import emptied

WAIT_MS = 60_000


def at_an_unknown_limit(d: Deployment, *teams: str, tokens: int = 10) -> list[RunRef]:
    """A run of each team, with jobs queued on a lane that must detect its rate."""
    return runs_of(d, *teams, tokens=tokens, requests_per_minute=None)


def refuse(d: Deployment, ref: RunRef, count: int = 5, wait_ms: int | None = None) -> None:
    """So many calls of a run that meet a 429 one after another; the last one asks to wait."""
    for n in range(count):
        taken: list[Attempt] = []
        for _ in range(1000):
            if taken := ask(d, [ref])[1]:
                break
            d.advance(100)
        d.defer(taken[0], signal="limited", retry_after_ms=wait_ms if n == count - 1 else None)


def lane(d: Deployment) -> dict[str, str]:
    return d.lane_state(LANE)


def acquitted(d: Deployment, wait_ms: int | None = None) -> list[RunRef]:
    """Runs of a team whose calls alone met 429s, and of another, whose call was answered after that."""
    flood, victim = at_an_unknown_limit(d, "flood", "victim")
    refuse(d, flood, wait_ms=wait_ms)
    (trial,) = ask(d, [flood, victim], most=3)[1]
    assert trial.team == "victim"
    d.advance(100)
    d.finish(trial)
    return [flood, victim]


@pytest.mark.parametrize("wait_ms", [None, WAIT_MS])
def test_one_call_of_another_team_tests_the_lane_at_once(real_redis: Redis, wait_ms: int | None) -> None:
    d = Deployment(real_redis)
    flood, victim, third = at_an_unknown_limit(d, "flood", "victim", "third")
    refuse(d, flood, wait_ms=wait_ms)
    assert not ask(d, [flood])[1]
    grant, attempts = ask(d, [flood, victim, third], most=5)
    assert [attempt.team for attempt in attempts] == ["victim"]
    assert grant.suspected or grant.reason == "blocked", "the scheduler asks when a team arrives"
    assert not ask(d, [third])[1], "one at a time"


def test_a_single_429_blocks_the_lane_for_every_team(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = at_an_unknown_limit(d, "flood", "victim")
    refuse(d, flood, count=1, wait_ms=WAIT_MS)
    assert not ask(d, [flood, victim])[1], "whoever meets one may be at the lane's limit"


@pytest.mark.parametrize("wait_ms", [None, WAIT_MS])
def test_an_answered_test_restores_the_lanes_estimates(real_redis: Redis, wait_ms: int | None) -> None:
    d = Deployment(real_redis)
    _, victim = acquitted(d, wait_ms)
    learned = {"requests_est", "requests_age_ms", "requests_by_header", "shut", "sign", "refusals", "window"}
    learned |= {"floor", "epoch"}
    assert not learned & lane(d).keys()
    d.advance(500)
    assert len(ask(d, [victim], most=9)[1]) >= 2, "as on a lane that no 429 has met"


def test_the_rejected_team_makes_one_call_at_a_time_at_growing_intervals(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = acquitted(d)
    waits = []
    for _ in range(8):
        began_ms = d.now_ms
        while not (taken := ask(d, [flood], most=5)[1]):
            d.advance(250)
        waits.append(d.now_ms - began_ms)
        assert len(taken) == 1
        assert not ask(d, [flood], most=5)[1]
        before = {
            name: text for name, text in lane(d).items() if name.endswith(("_est", "blocked_ms", "sign"))
        }
        d.defer(taken[0], signal="limited", retry_after_ms=5000)
        assert before == {name: text for name, text in lane(d).items() if name in before}
        assert ask(d, [victim])[1], "its 429s block nobody"
    assert waits == [1000, 5000, 5000, 8000, 16000, 32000, 60000, 60000]


def test_the_rejected_team_waits_as_long_as_retry_after_says(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, _ = acquitted(d, WAIT_MS)
    d.advance(WAIT_MS - 200)
    assert not ask(d, [flood])[1]
    d.advance(100)
    assert ask(d, [flood])[1]


def test_an_answer_to_the_rejected_team_ends_its_wait(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, _ = acquitted(d)
    d.advance(1000)
    (first,) = ask(d, [flood])[1]
    d.finish(first)
    d.advance(1000)
    assert len(ask(d, [flood], most=5)[1]) > 1


def test_answered_runs_of_the_rejected_team_continue(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim, _ = at_an_unknown_limit(d, "flood", "victim", "flood2")
    other = d.submit(team="flood", run="other", rows=100)
    d.feed(other, 100, LANE)
    (answered,) = ask(d, [other])[1]
    d.finish(answered)
    refuse(d, flood)
    (trial,) = ask(d, [victim])[1]
    d.advance(100)
    d.finish(trial)
    assert lane(d)["refused_teams"].startswith("flood:")
    d.advance(500)
    assert [attempt.run for attempt in ask(d, [flood, other])[1]] == ["other"]


def test_a_429_of_another_team_blocks_the_lane_for_every_team(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim, third = at_an_unknown_limit(d, "flood", "victim", "third")
    refuse(d, flood)
    (trial,) = ask(d, [victim])[1]
    d.defer(trial, signal="limited")
    assert not ask(d, [third])[1], "one more 429 for an episode"
    refuse(d, flood, count=1)
    assert not ask(d, [third])[1], "nobody was answered since"


def test_an_answer_to_the_team_refutes_the_suspicion(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = at_an_unknown_limit(d, "flood", "victim")
    (early,) = ask(d, [flood])[1]
    d.advance(100)
    refuse(d, flood)
    (trial,) = ask(d, [victim])[1]
    d.finish(trial)
    assert not lane(d).get("refused_teams"), "a call of the team is still in flight"
    d.finish(early)
    assert lane(d)["suspect"] == ""
    assert lane(d)["requests_est"]


def test_a_cancelled_call_of_the_team_is_not_awaited_to_judge_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = at_an_unknown_limit(d, "flood", "victim")
    other = d.submit(team="flood", run="other", rows=1)
    d.feed(other, 1, LANE)
    assert ask(d, [other])[1]
    d.advance(100)
    refuse(d, flood)
    (trial,) = ask(d, [victim])[1]
    d.cancel(other)
    d.finish(trial)
    assert lane(d)["refused_teams"].startswith("flood:")


def test_a_429_of_a_call_from_before_the_team_was_held_prolongs_no_wait(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = at_an_unknown_limit(d, "flood", "victim")
    refuse(d, flood)
    while not (early := ask(d, [flood])[1]):
        d.advance(100)
    d.finish(ask(d, [victim])[1][0])
    held = lane(d)["refused_teams"]
    assert held.startswith("flood:")
    d.defer(early[0], signal="limited", retry_after_ms=WAIT_MS)
    assert lane(d)["refused_teams"] == held


def test_of_many_teams_that_are_held_the_first_is_dropped(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.redis.hset(d.keys.lane(LANE), "refused_teams", ",".join(f"t{n}:1:5:0" for n in range(8)))
    acquitted(d)
    teams = [each.partition(":")[0] for each in lane(d)["refused_teams"].split(",")]
    assert teams == [*(f"t{n}" for n in range(1, 8)), "flood"]


def test_a_restored_estimate_is_measured_from_then_on(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim = at_an_unknown_limit(d, "flood", "victim")
    d.redis.hset(d.keys.lane(LANE), mapping={"requests_est": "600", "requests_open": "0"})
    refuse(d, flood)
    (trial,) = ask(d, [victim])[1]
    d.finish(trial)
    state = lane(d)
    assert (state["requests_est"], state["requests_open_n"]) == ("600", state["granted"])
    assert int(state["requests_open"]) == int(state["granted"]) - int(state["seen_limited"])


def test_answers_to_smaller_calls_prove_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane(LANE, requests_per_minute=None)
    (large,) = at_an_unknown_limit(d, "large", tokens=1000)
    (small,) = at_an_unknown_limit(d, "small", tokens=10)
    refuse(d, large)
    for _ in range(10):
        (trial,) = ask(d, [small])[1]
        d.finish(trial)
    assert not lane(d).get("refused_teams")


def test_a_trial_that_is_cancelled_or_lost_is_followed_by_another(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim, third = at_an_unknown_limit(d, "flood", "victim", "third")
    refuse(d, flood, wait_ms=WAIT_MS)
    assert ask(d, [victim])[1]
    d.cancel(victim)
    (trial,) = ask(d, [third])[1]
    d.advance(LEASE_MS + 1)
    assert d.recover(trial) == 1
    assert len(ask(d, [third])[1]) == 1


def test_a_trial_waits_for_another_teams_retry_after(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, victim, third = at_an_unknown_limit(d, "flood", "victim", "third")
    (answered,) = ask(d, [third])[1]
    d.finish(answered)
    d.advance(1000)
    taken = ask(d, [flood], most=2)[1]
    assert len(taken) == 2
    d.advance(200)
    (other,) = ask(d, [third])[1]
    d.defer(other, signal="limited", retry_after_ms=WAIT_MS)
    for attempt in taken:
        d.defer(attempt, signal="limited", retry_after_ms=1)
    assert lane(d)["suspect"] == "/flood"
    assert not ask(d, [victim])[1]
    d.advance(WAIT_MS)
    assert ask(d, [victim])[1]


def test_a_resumed_lane_forgets_which_team_met_429s(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    flood, _ = acquitted(d, WAIT_MS)
    d.lanes.resume(LANE, d.now_ms)
    d.advance(1000)
    assert ask(d, [flood])[1]


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["flood", "victim"]), st.booleans()), min_size=5, max_size=40))
def test_an_answered_team_never_waits_while_only_another_team_meets_429s(
    real_redis: Redis, steps: list[tuple[str, bool]]
) -> None:
    """After two 429s of the flood, its calls meet more that name a minute, and the victim's are answered, in
    any order and overlap.
    """
    d = Deployment(emptied(real_redis))
    refs = dict(zip(("flood", "victim"), at_an_unknown_limit(d, "flood", "victim"), strict=True))
    refuse(d, refs["flood"], count=2)
    held: list[Attempt] = []

    def end(attempt: Attempt) -> None:
        if attempt.team == "flood":
            d.defer(attempt, signal="limited", retry_after_ms=WAIT_MS)
        else:
            d.finish(attempt)

    for team, ends in steps:
        held += ask(d, [refs["flood"], refs[team]] if team == "victim" else [refs["flood"]])[1]
        d.advance(200)
        if ends and held:
            end(held.pop(0))
    for attempt in held:
        end(attempt)
    d.advance(200)
    assert "victim" in [attempt.team for attempt in ask(d, [refs["flood"], refs["victim"]])[1]]
