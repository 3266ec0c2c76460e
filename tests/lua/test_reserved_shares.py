"""What a lane keeps for a team nobody else takes, and no team takes more than its most, at any moment."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.store.write.permits import Grant, Offer, ReservedShare
from tests.support.deployment import Deployment, attempts_of

LANE = "sim:fast"
TEAMS = ("ads", "search", "shop")
JOBS = 3000
BURST_S = 1.0  # as in lib/team/share_minutes.lua
SLACK = 2.0  # calls: the one that leaves a debt, and a part of one that was earned


class Sharing:
    """Teams that each have a run with more jobs than a test needs, on one lane."""

    def __init__(self, redis: Redis, parts: dict[str, ReservedShare], **limits: float) -> None:
        self.d = Deployment(redis)
        self.parts = parts
        self.d.lane(LANE, **({"burst_seconds": 1.266, "exact": True} | limits))
        self.refs = {team: self.d.submit(team, f"of-{team}", JOBS) for team in TEAMS}
        for ref in self.refs.values():
            self.d.feed(ref, JOBS)
        self.flying: list[Attempt] = []
        self.had: Counter[str] = Counter()

    def ask(self, *teams: str, most: int = 100) -> Grant:
        """Offer so many permits to each team in turn."""
        offers = [Offer(self.refs[team], most) for team in teams]
        grant = self.d.ask(offers, shares=self.parts)
        taken = attempts_of(grant, offers, LANE)
        self.flying += taken
        self.had.update(attempt.team for attempt in taken)
        return grant

    def end(self, count: int = 1) -> None:
        for attempt in self.flying[:count]:
            self.d.claim(attempt)
            self.d.finish(attempt)
        del self.flying[:count]

    def in_flight(self, team: str) -> int:
        return sum(attempt.team == team for attempt in self.flying)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    most=st.floats(0.02, 0.9),
    rate=st.sampled_from([30, 600, 6000]),
    steps=st.lists(st.tuples(st.sampled_from(TEAMS), st.integers(1, 3000)), min_size=5, max_size=40),
)
@pytest.mark.slow
def test_no_team_takes_more_of_a_rate_than_its_maximum(
    real_redis: Redis, most: float, rate: int, steps: list[tuple[str, int]]
) -> None:
    real_redis.flushdb()
    sharing = Sharing(real_redis, {"ads": ReservedShare(0, most)}, requests_per_minute=rate)
    began = sharing.d.now_ms
    for team, wait_ms in steps:
        sharing.ask(team)
        sharing.d.advance(wait_ms)
        elapsed = (sharing.d.now_ms - began) / 1000
        assert sharing.had["ads"] <= most * rate / 60 * (elapsed + BURST_S) + SLACK


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    own=st.floats(0.05, 0.95),
    rate=st.sampled_from([60, 600, 6000]),
    waits=st.lists(st.integers(1, 2000), min_size=5, max_size=40),
)
@pytest.mark.slow
def test_a_share_reserved_for_an_idle_team_stays_unused(
    real_redis: Redis, own: float, rate: int, waits: list[int]
) -> None:
    real_redis.flushdb()
    sharing = Sharing(real_redis, {"ads": ReservedShare(own, 1)}, requests_per_minute=rate)
    began = sharing.d.now_ms
    for wait_ms in waits:
        sharing.ask("search", "shop")
        sharing.d.advance(wait_ms)
        elapsed = (sharing.d.now_ms - began) / 1000
        assert sharing.had.total() <= (1 - own) * rate / 60 * (elapsed + BURST_S) + SLACK


@pytest.mark.slow
def test_a_team_gets_its_reserved_share_while_others_wait_for_more(real_redis: Redis) -> None:
    sharing = Sharing(real_redis, {"ads": ReservedShare(0.4, 1)}, requests_per_minute=600)
    for _ in range(600):
        sharing.ask("search", "shop")
        sharing.ask("search", "ads")  # last, and yet
        sharing.d.advance(100)
    assert sharing.had["ads"] == pytest.approx(0.4 * 600, rel=0.03)
    assert sharing.had["search"] + sharing.had["shop"] == pytest.approx(0.6 * 600, rel=0.03)


def test_a_lone_team_that_lends_nothing_gets_the_lent_part_too(real_redis: Redis) -> None:
    sharing = Sharing(real_redis, {"ads": ReservedShare(0.4, 1)}, requests_per_minute=600)
    for _ in range(600):
        sharing.ask("ads")
        sharing.d.advance(100)
    assert sharing.had["ads"] == pytest.approx(600, rel=0.03)


def test_the_reply_has_the_time_of_the_next_possible_start(real_redis: Redis) -> None:
    sharing = Sharing(real_redis, {"ads": ReservedShare(0.5, 1)}, requests_per_minute=60, burst_seconds=1.5)
    grants = [sharing.ask("search") for _ in range(3)]
    assert grants[-1].reason == "reserved"
    sharing.d.advance(grants[-1].wait_ms - 1)
    assert sharing.ask("search").permits == []
    sharing.d.advance(1)
    assert len(sharing.ask("search").permits) == 1


def test_a_team_above_its_maximum_share_is_delayed_and_the_others_start(real_redis: Redis) -> None:
    sharing = Sharing(real_redis, {"ads": ReservedShare(0, 0.1)}, requests_per_minute=600)
    sharing.d.advance(5000)
    grant = sharing.ask("ads", "search", most=3)
    (kept,) = grant.delayed
    assert (kept.offer, kept.bound) == (0, "team_share")
    assert sharing.had["search"] == 3
    sharing.d.advance(kept.until_ms - sharing.d.now_ms)
    assert len(sharing.ask("ads", most=1).permits) == 1


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    own=st.floats(0, 0.9),
    most=st.floats(0.05, 0.9),
    window=st.integers(1, 20),
    steps=st.lists(st.tuples(st.sampled_from(TEAMS), st.integers(0, 6)), min_size=5, max_size=40),
)
@pytest.mark.slow
def test_reserved_calls_stay_free_and_no_team_exceeds_its_maximum(
    real_redis: Redis, own: float, most: float, window: int, steps: list[tuple[str, int]]
) -> None:
    real_redis.flushdb()
    parts = {"ads": ReservedShare(own, 1), "shop": ReservedShare(0, most)}
    sharing = Sharing(real_redis, parts, requests_per_minute=0, max_concurrency=window)
    kept = int(own * window + 1e-6)
    for team, ended in steps:
        sharing.ask(team)
        others = len(sharing.flying) - sharing.in_flight("ads")
        assert len(sharing.flying) <= window
        assert others <= window - kept or kept == 0
        assert sharing.in_flight("shop") <= max(1, int(most * window + 1e-6))
        sharing.end(ended)


@pytest.mark.slow
def test_in_a_window_too_small_for_the_shares_every_team_can_still_start(real_redis: Redis) -> None:
    parts = {team: ReservedShare(1 / 3, 1 / 3) for team in TEAMS}
    sharing = Sharing(real_redis, parts, requests_per_minute=600, max_concurrency=1)
    for _ in range(600):
        sharing.ask(*TEAMS, most=1)
        sharing.end()
        sharing.d.advance(100)
    assert all(sharing.had[team] == pytest.approx(200, rel=0.05) for team in TEAMS)


def test_a_call_that_ends_wakes_the_lane_for_a_team_at_its_maximum(real_redis: Redis) -> None:
    parts = {"ads": ReservedShare(0, 0.5)}
    sharing = Sharing(real_redis, parts, requests_per_minute=0, max_concurrency=4)
    sharing.ask("ads")
    assert sharing.in_flight("ads") == 2
    sharing.d.redis.delete(sharing.d.keys.dirty)
    sharing.end()
    assert sharing.d.redis.smembers(sharing.d.keys.dirty) == {LANE.encode()}


def test_the_final_use_of_calls_counts(real_redis: Redis) -> None:
    sharing = Sharing(
        real_redis, {"ads": ReservedShare(0, 0.1)}, requests_per_minute=0, tokens_per_minute=600_000
    )
    began, rounds = sharing.d.now_ms, 0
    while rounds < 400:
        rounds += 1
        sharing.ask("ads", most=1)
        for attempt in sharing.flying:
            sharing.d.claim(attempt)
            sharing.d.finish(attempt, used=1000)  # of an estimate of 10
        sharing.flying.clear()
        sharing.d.advance(100)
    minutes = (sharing.d.now_ms - began) / 60_000
    assert sharing.had["ads"] * 1000 <= 0.1 * 600_000 * minutes * 1.1 + 3000


def test_state_of_unused_shares_expires(real_redis: Redis) -> None:
    sharing = Sharing(real_redis, {"ads": ReservedShare(0.1, 0.5)}, requests_per_minute=600)
    sharing.ask("ads", "search")
    assert 0 < sharing.d.redis.pttl(sharing.d.keys.reserved_shares(LANE)) <= 2 * 3_600_000
    sharing.end(len(sharing.flying))
    assert not sharing.d.redis.exists(sharing.d.keys.in_flight(LANE))
