"""How large calls are, and how large they might be, does not change how a limit of tokens is found."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.tokens import Estimate
from tests.support.deployment import Deployment
from tests.support.hidden_limit import Bucket, Call, HiddenLimit, hints
from tests.support.redis import emptied

MINUTE_MS = 60_000


def _world(
    redis: Redis, bucket: Bucket, *, size: int, expected: int, mean_ms: int, waits: bool, seed: int = 1
) -> HiddenLimit:
    """A bucket of calls that take `size` tokens each and should take `expected`; its 429s name tokens."""
    d, rng = Deployment(emptied(redis)), random.Random(seed)
    ref = d.queued_lane(jobs=3000, tokens=Estimate(0, expected), requests_per_minute=None)

    def announced(now_ms: int, admitted: bool) -> dict[str, object]:
        if admitted:
            return {}
        wait_ms = max(1, int((1 - bucket.level) * MINUTE_MS / bucket.per_minute))
        return {"hints": hints(exhausted="tokens")} | ({"retry_after_ms": wait_ms} if waits else {})

    return HiddenLimit(
        d,
        ref,
        bucket,
        latency_ms=lambda _: int(mean_ms * rng.uniform(0.4, 1.8)),
        announced=announced,
        tokens_of=lambda _: size,
    )


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(rate=63, depth=1, mean_ms=5089, waits=False, seed=0)
@example(rate=128, depth=2, mean_ms=6723, waits=True, seed=177)
@example(rate=158, depth=3, mean_ms=5021, waits=False, seed=107)
@given(
    rate=st.integers(6, 200),
    depth=st.integers(1, 6),
    mean_ms=st.integers(100, 10_000),
    waits=st.booleans(),
    seed=st.integers(0, 1000),
)
@pytest.mark.slow(seconds=15)
def test_scaling_every_call_and_limit_changes_no_decision(
    real_redis: Redis, rate: int, depth: int, mean_ms: int, waits: bool, seed: int
) -> None:
    def calls(size: int) -> list[Call]:
        bucket = Bucket(rate, depth)
        world = _world(real_redis, bucket, size=size, expected=size, mean_ms=mean_ms, waits=waits, seed=seed)
        world.run(4 * MINUTE_MS)
        return world.calls

    small, large = calls(20_000), calls(1_000_000)
    if small != large:
        # A pace is rounded to thousandths of a token a minute. Over minutes that moves a call by 1 ms, and
        # all calls behind it; the larger the calls, the less.
        first, same = next(pair for pair in zip(small, large, strict=False) if pair[0] != pair[1])
        assert abs(first.at_ms - same.at_ms) == 1
        assert calls(4_000_000) == large


@pytest.mark.parametrize("often", [1, 4, 20])
@pytest.mark.parametrize(
    ("rate", "depth", "mean_ms", "waits"),
    [(120, 3, 300, False), (120, 3, 3000, True), (12, 1, 3000, False), (12, 2, 10_000, True)],
)
@pytest.mark.slow(seconds=8)
def test_calls_that_might_take_far_more_than_they_do_do_not_hide_the_limit(
    real_redis: Redis, rate: int, depth: int, mean_ms: int, waits: bool, often: int
) -> None:
    admitted = admitted_late = refused_late = 0
    for seed in range(1, 7 if rate < 100 else 3):
        world = _world(
            real_redis,
            Bucket(rate, depth),
            size=300,
            expected=300 * often,
            mean_ms=mean_ms,
            waits=waits,
            seed=seed,
        )
        world.run(4 * MINUTE_MS)
        last = world.d.now_ms
        world.run(3 * MINUTE_MS)
        assert world.admitted() >= 0.75 * 7 * rate
        admitted += world.admitted()
        admitted_late += world.admitted(last)
        refused_late += world.refused(last)
    assert admitted >= 0.85 * 7 * rate * seed
    assert refused_late <= 0.08 * admitted_late
