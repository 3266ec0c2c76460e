"""Calls keep the lane's rate and burst where they reach the provider, however late they are."""

from __future__ import annotations

import random
from heapq import heappop, heappush
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.decision import unsent
from fairlane.model.job import Attempt, Feedback
from fairlane.model.tokens import Estimate, Usage
from tests.support.deployment import Deployment
from tests.support.redis import emptied

ASK_MS, PLAYED_MS, TOKENS = 10, 6_000, Estimate(20, 30)
JITTER_MS, LEAST_GOOD_MS = 50, 50


def _play(d: Deployment, ref: object, seed: int, paused_ms: int, slow_workers: int) -> list[int]:
    """When calls reach the provider, of a lane asked every 10 ms. Some of four workers stop now and then, for
    up to ``paused_ms``: what they hold is claimed, or sent, when they continue.
    """
    rng, order = random.Random(seed), count()
    free_ms = [0, 0, 0, 0]
    events: list[tuple[int, int, str, Attempt, int]] = []
    arrived: list[int] = []
    end_ms = d.now_ms + PLAYED_MS

    def later(at_ms: int, what: str, attempt: Attempt, worker: int) -> None:
        heappush(events, (max(at_ms, free_ms[worker]), next(order), what, attempt, worker))

    next_ask = d.now_ms
    while next_ask < end_ms:
        if not events or events[0][0] > next_ask:
            d.advance(max(0, next_ask - d.now_ms))
            for attempt in d.take(ref):  # type: ignore[arg-type]
                worker = rng.randrange(4)
                later(d.now_ms + rng.randint(1, JITTER_MS), "claim", attempt, worker)
            if rng.random() < 0.005 and paused_ms:
                for worker in range(slow_workers):
                    free_ms[worker] = d.now_ms + rng.randint(0, paused_ms)
            next_ask += ASK_MS
            continue
        at_ms, _, what, attempt, worker = heappop(events)
        d.advance(max(0, at_ms - d.now_ms))
        if at_ms < free_ms[worker]:
            later(at_ms, what, attempt, worker)
        elif what == "claim":
            claim = d.claim(attempt, f"w{worker}")
            assert claim is not None
            if claim.sendable:
                free_at_ms = d.now_ms + claim.hold_ms
                later(free_at_ms + rng.randint(0, 20), f"send {free_at_ms + claim.good_ms}", attempt, worker)
            else:
                assert d.report(attempt, unsent().feedback, done=False, worker=f"w{worker}") is not None
        elif what.startswith("send"):
            in_time = d.now_ms <= int(what.split()[1])
            if in_time:
                arrived.append(d.now_ms)
            feedback = Feedback("ok", Usage(20, 30)) if in_time else unsent().feedback
            assert d.report(attempt, feedback, done=in_time, worker=f"w{worker}") is not None
    return arrived


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=set(Phase) - {Phase.explain},
)
@given(
    per_second=st.sampled_from([0.5, 3, 10, 40]),
    burst_seconds=st.sampled_from([0.05, 0.4, 1.0, 3.0]),
    tokens=st.booleans(),
    seed=st.integers(0, 10**6),
    paused_ms=st.sampled_from([0, 300, 2_000, 10_000]),
    slow_workers=st.integers(1, 4),
)
@pytest.mark.slow
def test_arrivals_keep_rate_and_burst_whatever_delays_permits(
    real_redis: Redis,
    per_second: float,
    burst_seconds: float,
    tokens: bool,
    seed: int,
    paused_ms: int,
    slow_workers: int,
) -> None:
    d = Deployment(emptied(real_redis))
    limit = (
        {"tokens_per_minute": per_second * 60 * 50, "requests_per_minute": 0}
        if tokens
        else {"requests_per_minute": per_second * 60}
    )
    ref = d.queued_lane(jobs=1000, tokens=TOKENS, burst_seconds=burst_seconds, exact=True, **limit)

    arrived = _play(d, ref, seed, paused_ms, slow_workers)

    good_ms = max(LEAST_GOOD_MS, min(400, burst_seconds * 250))
    jitter_ms = min(JITTER_MS, burst_seconds * 250)
    held = not tokens and per_second * (1000 * burst_seconds - jitter_ms - good_ms) < 1000
    least = 1 + per_second * (good_ms if held else jitter_ms + good_ms) / 1000
    burst = max(per_second * burst_seconds, least)
    if burst_seconds < 4 * LEAST_GOOD_MS / 1000 and not held:
        burst += per_second * LEAST_GOOD_MS / 1000
    for first, start_ms in enumerate(arrived):
        for number, at_ms in enumerate(arrived[first:], 1):
            assert number <= per_second * (at_ms - start_ms) / 1000 + burst + 1e-6
    if not paused_ms:
        assert len(arrived) >= 0.9 * per_second * (PLAYED_MS - 200) / 1000 - 1


@pytest.mark.parametrize("seed", range(6))
def test_unsent_permits_of_a_late_worker_allow_no_second_burst(real_redis: Redis, seed: int) -> None:
    """Its claims and their ends travel for 150 ms each way: no call leaves in time until it recovers."""
    d, rng, order = Deployment(real_redis), random.Random(seed), count()
    per_second, burst_seconds, way_ms, late_until_ms = 15, 0.5, 150, 2_000
    ref = d.queued_lane(
        jobs=1000, requests_per_minute=60 * per_second, burst_seconds=burst_seconds, exact=True
    )
    events: list[tuple[int, int, str, Attempt]] = []
    claimed: list[int] = []
    began_ms = d.now_ms
    for now_ms in range(began_ms, began_ms + 5_000, ASK_MS):
        while events and events[0][0] <= now_ms:
            at_ms, _, what, attempt = heappop(events)
            d.advance(max(0, at_ms - d.now_ms))
            if what == "report":
                assert d.report(attempt, unsent().feedback, done=False) is not None
                continue
            claim = d.claim(attempt)
            assert claim is not None
            if not claim.sendable:
                assert d.report(attempt, unsent().feedback, done=False) is not None
            elif what == "late":
                heappush(events, (d.now_ms + 2 * way_ms, next(order), "report", attempt))
            else:
                claimed.append(d.now_ms)
                assert d.report(attempt, Feedback("ok", Usage(5, 5)), done=True) is not None
        d.advance(now_ms - d.now_ms)
        is_late = now_ms - began_ms < late_until_ms
        idle = is_late and now_ms - began_ms > late_until_ms // 2  # nobody else claims for a while
        for attempt in d.take(ref):
            late = is_late and (idle or rng.random() < 0.6)
            heappush(
                events, (now_ms + (way_ms if late else 1), next(order), "late" if late else "claim", attempt)
            )
    depth = per_second * (burst_seconds - burst_seconds / 4)
    for first, start_ms in enumerate(claimed):
        for number, at_ms in enumerate(claimed[first:], 1):
            assert number <= per_second * (at_ms - start_ms) / 1000 + depth + 1e-6


def test_accumulated_permits_are_sent_no_faster_than_the_burst_and_cost_no_attempt(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100, requests_per_minute=600, burst_seconds=1.0)
    piled: list[Attempt] = []
    for _ in range(50):
        piled += d.take(ref)
        d.advance(100)
    assert len(piled) > 50
    sent = [attempt for attempt in piled if (claim := d.claim(attempt)) and claim.sendable]
    assert 7 <= len(sent) <= 10
    for attempt in piled:
        if attempt not in sent:
            assert d.report(attempt, unsent().feedback, done=False) is not None
    d.advance(5000)
    again = d.take(ref)
    claims = [d.claim(attempt) for attempt in again]
    assert all(claim and claim.attempts == 0 for claim in claims)


def test_a_claim_sent_again_has_the_same_reply_and_one_charge(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=10, requests_per_minute=6, burst_seconds=1.0)
    (attempt,) = d.take(ref)
    call = d.attempts.claim(attempt, "w1", 15_000, d.now_ms)
    first, again = call.run(real_redis), call.run(real_redis)
    assert first == again
    d.advance(10_030)
    (following,) = d.take(ref)
    claim = d.claim(following)
    assert claim is not None
    assert claim.sendable


def test_permits_returned_late_are_not_granted_again_at_once(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=200, requests_per_minute=600, burst_seconds=1.0)
    piled: list[Attempt] = []
    for _ in range(50):
        piled += d.take(ref)
        d.advance(100)
    granted = sent = 0
    for _ in range(500):
        for attempt in piled:
            claim = d.claim(attempt)
            assert claim is not None
            sent += claim.sendable
            feedback = Feedback("ok", Usage(5, 5)) if claim.sendable else unsent().feedback
            assert d.report(attempt, feedback, done=claim.sendable) is not None
        d.advance(10)
        piled = d.take(ref)
        granted += len(piled)
    assert sent >= 50
    assert granted <= 60


def test_a_lowered_limit_holds_for_permits_that_were_granted_before_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=200, requests_per_minute=1200, burst_seconds=1.0, exact=True)
    piled: list[Attempt] = []
    for _ in range(30):
        piled += d.take(ref)
        d.advance(50)
    assert len(piled) >= 20
    d.advance(3_000)
    d.lanes.limit("sim:fast", {"requests_per_minute": 180}, d.now_ms)
    sent = [attempt for attempt in piled if (claim := d.claim(attempt)) and claim.sendable]
    assert 1 <= len(sent) <= 3


def test_a_permit_of_a_limit_that_is_gone_may_be_sent_at_any_time(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2, requests_per_minute=60)
    (first,) = d.take(ref)
    d.lanes.limit("sim:fast", {"requests_per_minute": 0}, d.now_ms)
    d.take(ref)
    claim = d.claim(first)
    assert claim is not None
    assert (claim.sendable, claim.good_ms) == (True, 0)
