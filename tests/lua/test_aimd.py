"""A rate that nobody has stated is learned: one cut an epoch, growth where it is the rate that holds back."""

from __future__ import annotations

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

COOL_DOWN_MS = 5000
FLOOR, CEILING = 1.0, 600_000.0


def _rate(d: Deployment) -> float | None:
    return d.lanes.view("sim:fast").learned_per_minute


def _cut_lane(d: Deployment, jobs: int = 300, admitted: int = 20) -> RunRef:
    """A lane that admitted some attempts in a second and was cut once."""
    ref = d.queued_lane(jobs=jobs)
    burst = d.start(ref, admitted)
    d.advance(1000)
    reported = d.defer(burst[0], signal="limited", retry_after_ms=1)
    assert reported is not None
    assert reported.news == "cut"
    return ref


def _next(d: Deployment, ref: RunRef) -> Attempt:
    """The next attempt of a lane, as soon as it grants one."""
    for _ in range(10):
        grant = d.ask(ref, count=1)
        if grant.permits:
            permit = grant.permits[0]
            attempt = Attempt(ref.run, ref.team, permit.job, permit.number, "sim:fast")
            d.claim(attempt)
            # The lane is asked for more than it has: the rate is what holds jobs back.
            d.ask(ref, room=10**6)
            return attempt
        assert grant.at_ms, grant.reason
        d.advance(grant.wait_ms)
    raise AssertionError(f"the lane stays shut: {grant.reason}")


def test_fifty_429s_of_one_burst_are_one_cut(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    burst = d.start(ref, 50)
    news = []
    for attempt in burst:
        d.advance(200)
        reported = d.defer(attempt, signal="limited")
        news.append(reported and reported.news)
    assert news == ["cut"] + [""] * 49
    assert d.lane_state()["epoch"] == "1"


def test_the_first_cut_halves_what_was_admitted_lately(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    _cut_lane(d, admitted=20)
    assert _rate(d) == pytest.approx(20 * 60 / 2)


def test_the_first_cut_does_not_forget_what_was_admitted_just_before_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=500)
    for _ in range(41):
        attempts = d.start(ref, 10)
        d.advance(100)
    d.defer(attempts[0], signal="limited")
    # A hundred a second were admitted; the count starts again every two seconds, in mid-flight.
    assert _rate(d) == pytest.approx(6000 / 2, rel=0.1)


def test_a_quiet_hour_does_not_make_a_burst_look_slow(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=500)
    d.start(ref, 10)
    d.advance(3_600_000)
    burst = d.start(ref, 100)
    d.advance(1000)
    d.defer(burst[0], signal="limited")
    assert _rate(d) == pytest.approx(6000 / 2)


def test_a_cut_needs_an_attempt_of_the_present_epoch(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    old = d.start(ref, 50)
    d.defer(old[0], signal="limited", retry_after_ms=1)
    rate = _rate(d)
    d.advance(10 * COOL_DOWN_MS)
    d.defer(old[1], signal="limited", retry_after_ms=1)
    assert _rate(d) == rate
    d.advance(1)
    fresh = _next(d, ref)
    reported = d.defer(fresh, signal="limited", retry_after_ms=1)
    assert reported is not None
    assert (reported.news, _rate(d)) == ("cut", (rate or 0) / 2)


def test_a_cut_waits_for_the_cool_down_and_retry_after_does_not_prolong_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _cut_lane(d)
    cut_ms = d.now_ms
    rate = _rate(d)
    d.advance(1)
    while d.now_ms < cut_ms + COOL_DOWN_MS - 500:
        d.defer(_next(d, ref), signal="limited", retry_after_ms=400)
        assert _rate(d) == rate
    d.advance(500)
    d.defer(_next(d, ref), signal="limited", retry_after_ms=400)
    assert _rate(d) == pytest.approx((rate or 0) / 2)


def test_nothing_bursts_after_a_cut(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _cut_lane(d)
    d.advance(1)
    assert not d.ask(ref).permits
    d.advance(499)
    assert len(d.ask(ref).permits) == 5


def test_a_success_adds_one_over_the_rate_while_the_rate_holds_jobs_back(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _cut_lane(d)
    attempt = _next(d, ref)
    before = _rate(d) or 0
    per_second = before / 60
    d.finish(attempt)
    assert _rate(d) == pytest.approx(60 * (per_second + 1 / per_second))


@pytest.mark.parametrize("rate", [1, 5, 30, 60, 119])
def test_a_slow_lane_never_grows_by_more_than_a_quarter_at_once(real_redis: Redis, rate: float) -> None:
    d = Deployment(real_redis)
    ref = _cut_lane(d)
    d.redis.hset(d.keys.lane("sim:fast"), "requests_rate", rate)
    d.finish(_next(d, ref))
    assert _rate(d) == pytest.approx(1.25 * rate)


def test_growth_ends_at_the_ceiling(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _cut_lane(d)
    attempt = _next(d, ref)
    d.redis.hset(d.keys.lane("sim:fast"), "requests_rate", CEILING)
    d.finish(attempt)
    assert _rate(d) == CEILING


@pytest.mark.parametrize("why", ["idle", "window", "slots", "paused"])
def test_nothing_grows_where_something_else_holds_jobs_back(real_redis: Redis, why: str) -> None:
    d = Deployment(real_redis)
    ref = _cut_lane(d, jobs=21 if why == "idle" else 300)
    attempt = _next(d, ref)
    before = _rate(d)
    if why == "window":
        d.lanes.limit("sim:fast", {"max_concurrency": 1})
    if why == "paused":
        d.lanes.pause("sim:fast")
    d.advance(100_000 if why == "idle" else 0)
    while d.ask(ref, room=0 if why == "slots" else 10).permits:
        d.advance(100_000)
    assert d.lanes.view("sim:fast").reason == ("" if why == "idle" else why)
    d.finish(attempt)
    assert _rate(d) == before


def test_a_success_of_an_earlier_epoch_teaches_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    first, second = d.start(ref, 2)
    d.defer(first, signal="limited", retry_after_ms=1)
    d.advance(1)
    _next(d, ref)
    before = _rate(d)
    d.finish(second)
    assert _rate(d) == before


@pytest.mark.parametrize("signal", ["answered", "overloaded", "broken", "none"])
def test_only_a_success_grows_and_only_a_429_cuts(real_redis: Redis, signal: Signal) -> None:
    d = Deployment(real_redis)
    ref = _cut_lane(d)
    d.advance(2 * COOL_DOWN_MS)
    attempt = _next(d, ref)
    before = _rate(d)
    d.defer(attempt, signal=signal)
    assert _rate(d) == before


@pytest.mark.parametrize("stated", [0, 600])
def test_a_stated_rate_is_never_cut_nor_grown(real_redis: Redis, stated: float) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100, requests_per_minute=stated)
    for signal in ("limited", "limited", "ok"):
        attempt = _next(d, ref)
        reported = d.defer(attempt, signal=signal, retry_after_ms=1)
        assert reported is not None
        assert reported.news in ("", "blocked")
        d.advance(2 * COOL_DOWN_MS)
    assert _rate(d) is None
    assert "epoch" not in d.lane_state()


def test_no_cut_goes_below_the_floor(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _cut_lane(d, admitted=1)
    for _ in range(10):
        d.advance(COOL_DOWN_MS)
        d.defer(_next(d, ref), signal="limited", retry_after_ms=1)
    assert _rate(d) == FLOOR


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    acts=st.lists(
        st.tuples(
            st.integers(0, 3000),
            st.integers(0, 5),
            st.sampled_from(["ok", "ok", "ok", "limited", "overloaded"]),
            st.none() | st.integers(1, 3000),
        ),
        max_size=40,
    )
)
def test_whatever_is_reported_the_rate_stays_in_bounds_and_is_cut_once_an_epoch(
    real_redis: Redis, acts: list[Any]
) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=2000)
    flying: list[tuple[Attempt, int]] = []
    epoch, cut_ms = 0, -COOL_DOWN_MS
    for wait_ms, ended, signal, retry_after_ms in acts:
        d.advance(wait_ms)
        flying += [(attempt, epoch) for attempt in d.take(ref, 20)]
        for attempt, started_in in flying[:ended]:
            d.claim(attempt)
            before, saturated = _rate(d), d.lanes.view("sim:fast").reason == "requests"
            reported = d.defer(attempt, signal=signal, retry_after_ms=retry_after_ms)
            assert reported is not None
            after = _rate(d)
            if reported.news == "cut":
                assert signal == "limited"
                assert started_in == epoch
                assert d.now_ms >= cut_ms + COOL_DOWN_MS
                epoch, cut_ms = epoch + 1, d.now_ms
                assert after == pytest.approx(max(FLOOR, before / 2)) if before else after
            elif after != before:
                assert before is not None
                assert after is not None
                assert before < after <= before * 1.25 + 1e-9
                assert saturated
                assert (signal, started_in) == ("ok", epoch)
            assert after is None or FLOOR <= after <= CEILING
            assert int(d.lane_state().get("epoch", 0)) == epoch
        del flying[:ended]
