"""LLM tokens are reserved when an attempt starts and trued up when it ends: none appear, none are lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.job import Attempt
from fairlane.store.attempts import Signal
from fairlane.store.keys import RunRef
from tests.support.deployment import Deployment
from tests.support.redis import emptied

UNIT = 60_000_000
SPREAD_MS = 100
NOT_CHARGED = {"limited", "overloaded"}

# Neither parks the lane nor counts towards its circuit: both would empty the bucket.
signals: st.SearchStrategy[Signal] = st.sampled_from(
    ["ok", "ok", "answered", "limited", "overloaded", "none"]
)
acts = st.lists(
    st.tuples(
        st.integers(0, 3000), st.integers(0, 5), signals, st.none() | st.integers(0, 300), st.booleans()
    ),
    min_size=5,
    max_size=30,
)


class Reference:
    """The provider's bucket, in Python: each charge at its time, its amount known when its call is over."""

    def __init__(self, per_minute: int, burst_seconds: float, now_ms: int) -> None:
        self.pace = per_minute * 1000
        self.full = max(UNIT, self.pace * (round(burst_seconds * 1000) - SPREAD_MS))
        self.start_ms = now_ms
        self.charges: list[tuple[int, int]] = []

    def charge(self, tokens: int, now_ms: int) -> int:
        """Charge an estimate; returns what `correct` takes."""
        self.charges.append((now_ms, tokens))
        return len(self.charges) - 1

    def correct(self, number: int, tokens: int) -> None:
        self.charges[number] = (self.charges[number][0], tokens)

    def level(self, now_ms: int) -> int:
        """The level that all charges so far have left, had their amounts been known at once."""
        level, at_ms = self.full, self.start_ms
        for time_ms, tokens in self.charges:
            level = min(self.full, level + (time_ms - at_ms) * self.pace) - tokens * UNIT
            at_ms = time_ms
        return min(self.full, level + (now_ms - at_ms) * self.pace)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    per_minute=st.sampled_from([60, 600, 6_000, 600_000]),
    burst=st.sampled_from([0.1, 1.0, 5.0]),
    sizes=st.lists(st.integers(0, 250), min_size=20, max_size=20),
    acts=acts,
)
def test_the_level_is_never_above_that_of_a_bucket_that_knew_every_amount_at_once(
    real_redis: Redis, per_minute: int, burst: float, sizes: list[int], acts: list[Any]
) -> None:
    d = Deployment(emptied(real_redis))
    ref = _sized_jobs(d, sizes, requests_per_minute=0, tokens_per_minute=per_minute, burst_seconds=burst)
    bucket = Reference(per_minute, burst, d.now_ms)
    flying: list[tuple[Attempt, int, int]] = []
    exceeded = False
    for wait_ms, ended, signal, used, finish in acts:
        d.advance(wait_ms)
        before = bucket.level(d.now_ms)
        for permit in d.ask(ref).permits:
            attempt = Attempt(ref.run, ref.team, permit.job, permit.number, "sim:fast")
            charged = json.loads(d.redis.hget(d.keys.leased, attempt.id) or b"{}")["charged"]
            assert charged <= permit.tokens
            assert before >= min(charged * UNIT, bucket.full)
            flying.append((attempt, bucket.charge(charged, d.now_ms), charged))
            before = bucket.level(d.now_ms)
        for attempt, number, charged in flying[:ended]:
            d.claim(attempt)
            end = d.finish if finish else d.defer
            assert end(attempt, signal=signal, used=used) is not None
            unsaid = 0 if signal == "answered" else charged
            actual = 0 if signal in NOT_CHARGED else unsaid if used is None else used
            exceeded = exceeded or actual > charged
            bucket.correct(number, actual)
        del flying[:ended]
        state = d.lane_state()
        level, exact = int(state["token_level"]), bucket.level(int(state["token_ms"]))
        assert level == exact if not exceeded else level <= exact


@pytest.mark.parametrize("used", [10, 50, 90])
def test_the_charge_learns_what_calls_hardly_ever_exceed(real_redis: Redis, used: int) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(d, [100] * 2000, requests_per_minute=0, tokens_per_minute=600_000)
    for _ in range(1900):
        d.finish(d.start(ref)[0], used=used)
        d.advance(20)
    share = float(d.lane_state()["token_share"])
    assert used / 100 - 0.01 <= share <= used / 100 + 0.06


@pytest.mark.parametrize(
    ("signal", "used", "back"),
    [("refused", None, 80), ("broken", None, 0), ("broken", 30, 50), ("ok", 30, 50), ("ok", 100, -20)],
)
def test_what_comes_back_is_what_the_provider_does_not_charge(
    real_redis: Redis, signal: Signal, used: int | None, back: int
) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(d, [80], requests_per_minute=0, tokens_per_minute=6000, burst_seconds=1.0)
    attempt = d.start(ref)[0]
    d.defer(attempt, signal=signal, used=used)
    assert int(d.lane_state()["token_level"]) == (90 - 80 + back) * UNIT


def test_a_job_larger_than_the_bucket_starts_when_it_is_full_and_leaves_a_debt(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(d, [500, 10], tokens_per_minute=6000, burst_seconds=1.0)
    grant = d.ask(ref)
    assert [permit.tokens for permit in grant.permits] == [500]
    # 90 fit in; 410 are owed, and 10 more are wanted, at 100 a second.
    assert (grant.reason, grant.wait_ms) == ("tokens", 4200)
    d.advance(4199)
    assert not d.ask(ref).permits
    d.advance(1)
    assert len(d.ask(ref).permits) == 1


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    per_minute=st.floats(0.5, 10**7) | st.sampled_from([600, 60_000, 1234.567]),
    burst=st.sampled_from([0.1, 1.0, 30.0]),
    sizes=st.lists(st.integers(1, 5000), min_size=3, max_size=8),
)
def test_the_time_told_is_the_first_at_which_there_are_tokens(
    real_redis: Redis, per_minute: float, burst: float, sizes: list[int]
) -> None:
    d = Deployment(emptied(real_redis))
    ref = _sized_jobs(d, sizes, tokens_per_minute=per_minute, burst_seconds=burst)
    grant = d.ask(ref)
    while grant.reason:
        assert grant.reason == "tokens"
        d.advance(grant.wait_ms - 1)
        assert not d.ask(ref).permits
        d.advance(1)
        grant = d.ask(ref)
        assert grant.permits


def test_a_refund_wakes_whoever_waits_for_tokens(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(d, [90, 90], tokens_per_minute=6000, burst_seconds=1.0)
    first = d.start(ref)[0]
    assert d.ask(ref).reason == "tokens"
    d.dirty()
    d.finish(first, used=40)
    assert "sim:fast" in d.dirty()
    d.advance(400)
    assert len(d.ask(ref).permits) == 1


def test_what_was_never_reserved_is_never_refunded(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(d, [1000, 90], burst_seconds=1.0)
    first = d.start(ref)[0]
    d.lanes.limit("sim:fast", {"tokens_per_minute": 6000})
    d.take(ref)
    level = d.lane_state()["token_level"]
    assert level == "0"
    d.finish(first, used=0)
    assert d.lane_state()["token_level"] == level


@pytest.mark.parametrize("signal", ["ok", "limited"])
def test_a_probe_that_is_answered_does_not_forgive_a_debt(real_redis: Redis, signal: Signal) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(d, [500, 500, 10], tokens_per_minute=6000, burst_seconds=1.0)
    d.defer(d.start(ref)[0], signal="refused", reason="quota", delay_ms=10**6)
    d.advance(10_000)
    d.lanes.resume("sim:fast", d.now_ms)
    probe = d.start(ref)[0]
    d.defer(probe, signal=signal, used=1000, delay_ms=10**6)
    owed = 0 if signal == "limited" else -(1000 - 90) * UNIT
    assert int(d.lane_state()["token_level"]) == owed


def test_draining_empties_both_buckets_but_forgives_no_debt(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(d, [5] * 50, requests_per_minute=600, tokens_per_minute=60_000)
    d.lanes.drain("sim:fast", d.now_ms)
    assert d.ask(ref).reason == "requests"
    assert (d.lane_state()["request_level"], d.lane_state()["token_level"]) == ("0", "0")
    d.redis.hset(d.keys.lane("sim:fast"), "token_level", str(-1000 * UNIT))
    d.lanes.drain("sim:fast", d.now_ms)
    assert d.lane_state()["token_level"] == str(-1000 * UNIT)


def _sized_jobs(d: Deployment, sizes: list[int], **limits: float) -> RunRef:
    """A lane with these limits and a run whose jobs need so many tokens, queued on it."""
    lane = d.lane("sim:fast", **limits)
    ref = d.submit(rows=len(sizes))
    entries = {lane: [f"{job}:{size}" for job, size in enumerate(sizes)]}
    assert d.runs.feed(ref, d.epoch, 0, len(sizes), entries, [], d.now_ms) == 1
    return ref
