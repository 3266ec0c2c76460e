"""A wait that a rejected call was told is its job's. It is the lane's until calls during it are answered."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt, Feedback
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from tests.support.deployment import Deployment
from tests.support.hidden_limit import HiddenLimit, hints
from tests.support.redis import emptied

SECOND_MS, MINUTE_MS = 1000, 60_000
FREE = 3
some = settings(
    max_examples=20, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def _answered_lane(d: Deployment, jobs: int = 100) -> RunRef:
    ref = d.queued_lane(jobs=jobs)
    d.finish(d.start(ref)[0])
    return ref


def _few(d: Deployment, ref: RunRef, most: int) -> list[Attempt]:
    """As many calls as the lane lets start, at most so many."""
    taken = d.take(ref, most)
    for attempt in taken:
        assert d.claim(attempt) is not None
    return taken


def _answer_tries(d: Deployment, ref: RunRef, tries: int, signal: Any = "limited") -> None:
    for _ in range(tries):
        d.defer(d.start(ref)[0], signal=signal, retry_after_ms=5 * SECOND_MS)
        d.advance(SECOND_MS)
        d.finish(d.start(ref)[0])
        d.advance(5 * SECOND_MS)


@pytest.mark.parametrize("signal", ["limited", "overloaded"])
def test_a_single_call_tries_a_named_wait_and_its_answer_ends_it(real_redis: Redis, signal: Any) -> None:
    d = Deployment(real_redis)
    ref = _answered_lane(d)
    d.defer(d.start(ref)[0], signal=signal, retry_after_ms=20 * SECOND_MS)
    assert d.ask(ref).wait_ms == SECOND_MS
    d.advance(SECOND_MS)
    tries = _few(d, ref, 10)
    assert len(tries) == 1
    assert d.ask(ref).reason == "blocked"
    d.advance(200)
    d.finish(tries[0])
    d.advance(100)
    assert len(d.ask(ref).permits) > 1


@pytest.mark.parametrize("signal", ["limited", "overloaded"])
def test_a_try_that_is_rejected_teaches_the_lane_nothing_else(real_redis: Redis, signal: Any) -> None:
    d = Deployment(real_redis)
    ref = _answered_lane(d)
    d.defer(d.start(ref)[0], signal=signal, retry_after_ms=5 * SECOND_MS)
    before = d.lane_state()
    d.advance(SECOND_MS)
    d.defer(d.start(ref)[0], signal=signal, retry_after_ms=4 * SECOND_MS)
    after = d.lane_state()
    for field in ("requests_est", "refusals", "shut", "epoch", "window"):
        assert after.get(field) == before.get(field)
    assert d.ask(ref).reason == "blocked"


@pytest.mark.parametrize("signal", ["limited", "overloaded"])
def test_once_calls_during_waits_are_answered_a_wait_delays_only_its_job(
    real_redis: Redis, signal: Any
) -> None:
    d = Deployment(real_redis)
    ref = _answered_lane(d)
    _answer_tries(d, ref, 2, signal)
    assert d.promote() == 2
    rejected = d.start(ref)[0]
    d.defer(rejected, signal=signal, retry_after_ms=9 * SECOND_MS)
    d.advance(2 * SECOND_MS)
    others = _few(d, ref, 2)
    assert others
    assert rejected.job not in {each.job for each in others}
    assert d.next_due_ms() == d.now_ms + 7 * SECOND_MS


def test_waits_delay_the_lane_again_after_consecutive_rejections(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _answered_lane(d)
    _answer_tries(d, ref, 4)
    for _ in range(20):
        if not (started := _few(d, ref, 1)):
            break
        d.defer(started[0], signal="limited", retry_after_ms=10 * MINUTE_MS)
        d.advance(6 * SECOND_MS)
    grant = d.ask(ref)
    assert grant.reason == "blocked"
    assert float(d.lane_state()["blocked_ms"]) >= d.now_ms + 5 * MINUTE_MS
    assert len(_few(d, ref, 10)) <= 1


def test_the_time_between_tries_doubles_and_after_three_they_wait_for_other_calls(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _answered_lane(d)
    d.defer(d.start(ref)[0], signal="limited", retry_after_ms=10 * MINUTE_MS)
    began_ms, tried_ms = d.now_ms, []
    while (grant := d.ask(ref, count=1)).wait_ms < MINUTE_MS:
        for permit in grant.permits:
            tried_ms.append(d.now_ms - began_ms)
            attempt = Attempt(ref.run, ref.team, permit.job, permit.number, "sim:fast")
            assert d.claim(attempt)
            d.defer(attempt, signal="limited", retry_after_ms=10 * MINUTE_MS)
        d.advance(grant.wait_ms)
    assert tried_ms == [1000, 2000, 5000]


def test_a_limit_that_headers_show_used_up_is_not_tried(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _answered_lane(d)
    shown = hints(requests=(60, 0, 9000))
    feedback = Feedback("limited", Usage(), 9 * SECOND_MS, "", shown)
    assert d.report(d.start(ref)[0], feedback, done=False) is not None
    assert d.ask(ref).wait_ms >= 9 * SECOND_MS


@pytest.mark.parametrize(("exhausted", "wait_ms"), [("tokens", 9 * SECOND_MS), ("requests", SECOND_MS)])
def test_a_named_limit_is_not_tried_unless_it_is_the_one_that_any_429_may_name(
    real_redis: Redis, exhausted: Any, wait_ms: int
) -> None:
    d = Deployment(real_redis)
    ref = _answered_lane(d)
    feedback = Feedback("limited", Usage(), 9 * SECOND_MS, "", hints(exhausted=exhausted))
    assert d.report(d.start(ref)[0], feedback, done=False) is not None
    assert d.ask(ref).wait_ms == wait_ms


class Shuts:
    """Admits some calls, then none for a time that each call during it prolongs."""

    def __init__(self, calls: int, shut_ms: int, penalty: float) -> None:
        self.calls, self.shut_ms, self.penalty = calls, shut_ms, penalty
        self.left, self.until_ms, self.during = calls, 0, 0

    def admit(self, now_ms: int, in_flight: int) -> bool:
        if now_ms < self.until_ms:
            self.during += 1
            self.until_ms += round(self.penalty * self.shut_ms)
            return False
        if self.left == 0:
            self.left, self.until_ms = self.calls, now_ms + self.shut_ms
            return False
        self.left -= 1
        return True

    def wait_ms(self, now_ms: int) -> int:
        return max(1, self.until_ms - now_ms)


@some
@given(
    calls=st.integers(5, 60),
    shut_ms=st.integers(2 * SECOND_MS, MINUTE_MS),
    penalty=st.sampled_from([0.0, 0.1, 1.0]),
    rpm=st.sampled_from([None, 0, 600]),
    seed=st.integers(0, 1000),
)
@pytest.mark.slow(seconds=30)
def test_a_provider_that_shuts_the_lane_is_hardly_called_meanwhile(
    real_redis: Redis, calls: int, shut_ms: int, penalty: float, rpm: int | None, seed: int
) -> None:
    """Calls that were in flight when it shut aside, few try it, and ever fewer."""
    d, limit, rng = Deployment(emptied(real_redis)), Shuts(calls, shut_ms, penalty), random.Random(seed)
    ref = d.queued_lane(jobs=4000, requests_per_minute=rpm, max_concurrency=1)

    def announced(now_ms: int, admitted: bool) -> dict[str, Any]:
        return {} if admitted else {"retry_after_ms": limit.wait_ms(now_ms)}

    world = HiddenLimit(
        d, ref, limit, latency_ms=lambda n: rng.randrange(50, 400), refusal_ms=lambda: 5, announced=announced
    )
    world.run(20 * MINUTE_MS)
    assert world.admitted() > 0
    assert limit.during <= FREE + 1 + math.log2(len(world.calls) + 1)
