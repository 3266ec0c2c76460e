"""A lane nobody knows starts slowly, grows on successes while its rate holds jobs back, saves nothing."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.model.job import Attempt, Signal
from fairlane.model.run import RunRef
from tests.support.deployment import Deployment
from tests.support.hidden_limit import Bucket, HiddenLimit

START_PER_MINUTE, BURST_MS = 600, 250
HOUR_MS = 3_600_000


def _rate(d: Deployment) -> float:
    return float(d.lane_state().get("requests_est") or START_PER_MINUTE)


def _held_back(d: Deployment, jobs: int = 1000, **limits: float) -> tuple[RunRef, list[Attempt]]:
    """A lane whose rate holds jobs back, and what is in flight on it."""
    ref = d.unknown_lane(jobs=jobs, **limits)
    attempts = d.start(ref, 2)
    assert d.ask(ref).reason == "requests"
    return ref, attempts


def test_an_unknown_lane_starts_with_a_quarter_of_a_second_of_a_guess(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=100)
    grant = d.ask(ref)
    assert (len(grant.permits), grant.reason) == (START_PER_MINUTE / 60 * BURST_MS // 1000, "requests")
    for _ in range(100):
        d.advance(grant.wait_ms)
        grant = d.ask(ref)
    # Without a single answer it has not become faster.
    assert d.lane_state()["granted"] == "100"
    assert d.now_ms - int(d.lane_state()["known_ms"]) >= 9700


def test_permits_of_an_unconfigured_limit_accumulate_briefly(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref, _ = _held_back(d)
    assert d.ask(ref).gather_ms <= 50


def test_each_success_lets_one_more_be_in_flight(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    _, (first, second) = _held_back(d)
    d.advance(500)
    d.finish(first)
    # One more call each half second.
    assert _rate(d) == START_PER_MINUTE + 120
    d.finish(second)
    assert _rate(d) == START_PER_MINUTE + 240


def test_one_success_never_adds_more_than_half(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    _, (first, _) = _held_back(d)
    d.advance(1)
    d.finish(first)
    assert _rate(d) == 1.5 * START_PER_MINUTE


@pytest.mark.parametrize("signal", ["answered", "overloaded", "broken", "none"])
def test_only_a_success_raises_the_rate(real_redis: Redis, signal: Signal) -> None:
    d = Deployment(real_redis)
    _, (first, _) = _held_back(d)
    d.advance(300)
    d.defer(first, signal=signal)
    assert _rate(d) == START_PER_MINUTE


@pytest.mark.parametrize("why", ["idle", "window", "slots", "paused", "gap"])
def test_the_rate_does_not_grow_while_something_else_limits_jobs(real_redis: Redis, why: str) -> None:
    d = Deployment(real_redis)
    ref, (first, second) = _held_back(d, jobs=3 if why == "idle" else 100)
    more = {"window": {"max_concurrency": 1}, "gap": {"min_gap_ms": 5000}}
    if why in more:
        d.lanes.limit("sim:fast", more[why])
    if why == "paused":
        d.lanes.pause("sim:fast")
    d.advance(1000)
    assert d.ask(ref, room=0 if why == "slots" else 10).reason == ("" if why == "idle" else why)
    for attempt in (first, second):
        d.finish(attempt)
    assert _rate(d) == START_PER_MINUTE


@pytest.mark.parametrize("learned", [False, True])
def test_an_idle_hour_keeps_the_rate_and_allows_a_burst_of_a_quarter_second(
    real_redis: Redis, learned: bool
) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=40)
    if learned:
        HiddenLimit(d, ref, Bucket(600)).run(60_000)
    else:
        for attempt in d.start(ref, 2):
            d.finish(attempt)
    while d.redis.llen(d.keys.fresh(ref, "sim:fast")):
        d.pass_through(ref)
        d.advance(1000)
    before = d.lane_state()
    for _ in range(60):
        d.advance(HOUR_MS // 60)
        assert not d.ask(ref).permits
    after = d.lane_state()
    for name in ("requests_est", "requests_var", "requests_age_ms", "epoch", "window"):
        assert after.get(name) == before.get(name), name
    again = d.queued_lane(jobs=500, run="r2", requests_per_minute=None)
    assert len(d.take(again)) <= max(1, _rate(d) * 1.2 / 60 * BURST_MS / 1000)


def test_an_idle_hour_allows_an_operators_burst_and_no_more(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=500, requests_per_minute=600, burst_seconds=3.35)
    d.take(ref, 1)
    d.advance(HOUR_MS)
    assert len(d.take(ref)) == 29


def test_above_the_estimate_only_a_success_of_this_epoch_raises_the_rate(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=5000)
    old, first = d.start(ref, 2)
    d.ask(ref)
    d.advance(20)
    d.defer(first, signal="limited")
    estimate = _rate(d)
    late: list[Attempt] = []
    start_ms, granted = d.now_ms, 0
    while d.now_ms < start_ms + 120_000:
        grant = d.ask(ref)
        granted += len(grant.permits)
        late += [Attempt(ref.run, ref.team, p.job, p.number, "sim:fast") for p in grant.permits]
        if granted == 10:
            # A success of the epoch before the refusal proves nothing.
            d.finish(old)
        d.advance(max(1, grant.wait_ms))
    # The estimate may have been corrected once, by what was let through; it is what bounds the rate.
    bound = max(estimate, _rate(d))
    assert granted <= bound * (d.now_ms - start_ms) / 60_000 + 3
    # One success of now, and it is tried.
    assert d.claim(late[-1]) is not None
    d.finish(late[-1])
    age = float(d.lane_state()["requests_age_ms"])
    for _ in range(60):
        d.advance(1000)
        d.ask(ref)
    assert float(d.lane_state()["requests_age_ms"]) > age


def test_no_faster_than_a_stated_rate_however_often_calls_succeed(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=3000, requests_per_minute=300)
    world = HiddenLimit(d, ref, Bucket(10**9, 10**9), latency_ms=lambda n: 100)
    world.run(60_000)
    assert 295 <= world.admitted() <= 305
    assert "requests_est" not in d.lane_state()
