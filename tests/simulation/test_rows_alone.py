"""A row that its provider never serves, in virtual time: it holds up no other row, and it ends."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt, JobState
from fairlane.model.outcome import (
    InvalidResponse,
    NetworkFailure,
    Outcome,
    Overloaded,
    RateLimited,
    ServerError,
    Success,
    TimedOut,
)
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker

LANE, ROWS, BAD, LATENCY_S = "sim:fast", 400, 7, 0.2
MOST_REJECTED_S = 1200.0
"""Some ten rejections, the longest back-offs between them, and until the lane knows whose they are."""

MOST_DOWN_S = 180.0
"""A minute for which nobody was answered, the wait between two probes then, and the last calls."""

FAILURES: dict[str, tuple[float, Outcome]] = {
    "503": (0.005, Overloaded("the model is overloaded", 503)),
    "slow 503": (2.0, Overloaded("the model is overloaded", 503)),
    "429": (0.005, RateLimited("too many requests")),
    "429 that names a wait": (0.005, RateLimited("too many requests", retry_after_ms=1000)),
    "slow 429": (2.0, RateLimited("too many requests")),
    "500": (2.0, ServerError("internal error", 500)),
    "fast 500": (0.005, ServerError("internal error", 500)),
    "cut connection": (2.0, NetworkFailure("connection reset")),
    "garbage": (LATENCY_S, InvalidResponse("no JSON", "")),
    "hang": (20.0, TimedOut("no answer within 20 s", deadline_ms=20_000)),
}

LIMITS: dict[str, tuple[Callable[[], dict[str, float | None]], float]] = {
    "no limit": (dict, 4.0),
    "an unknown limit": (lambda: {"requests_per_minute": None}, 4.0),
    "20 a second": (lambda: {"requests_per_minute": 1200}, 20.0),
    "10 at once": (lambda: {"max_concurrency": 10}, 8.0),
}
"""Limits of the lane, and in how many seconds the other rows are answered without the bad one, at most."""


def cluster_with(
    redis: Redis, limit: dict[str, float | None], failure: tuple[float, Outcome], bad: set[int]
) -> Cluster:
    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        return failure if attempt.job in bad else (LATENCY_S, Success("yes", Usage(10, 5)))

    return Cluster(redis, provider=provider, workers=[FakeWorker("w1", 100)], lanes={LANE: limit})


def count(cluster: Cluster, ref: RunRef, field: str) -> int:
    return int(cluster.redis.hget(cluster.keys.state(ref), field) or 0)


def run_until(cluster: Cluster, done: Callable[[], bool], limit_s: float) -> float:
    """Virtual seconds until ``done``."""
    began_ms = cluster.now_ms
    while not done():
        assert cluster.now_ms - began_ms < 1000 * limit_s, "it takes too long"
        cluster.run_for(1)
    return (cluster.now_ms - began_ms) / 1000


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_row_that_always_fails_hardly_delays_the_others(
    real_redis: Redis, failure: str, limit: str
) -> None:
    """They may take twice as long, and ten seconds, while the lane finds out whose the rejections are."""
    limits, usual_s = LIMITS[limit]
    cluster = cluster_with(real_redis, limits(), FAILURES[failure], {BAD})
    ref = cluster.submit(ROWS)
    run_until(cluster, lambda: count(cluster, ref, "n:succeeded") == ROWS - 1, 2 * usual_s + 10)


@pytest.mark.parametrize("failure", ["500", "cut connection", "garbage", "hang"])
def test_a_row_that_always_fails_ends_soon_after_the_others(real_redis: Redis, failure: str) -> None:
    cluster = cluster_with(real_redis, {}, FAILURES[failure], {BAD})
    ref = cluster.submit(ROWS)
    cluster.run_until_finished(ref, limit_s=MOST_DOWN_S)
    assert {job for job, result in cluster.results(ref).items() if result.state is JobState.FAILED} == {BAD}


@pytest.mark.parametrize(
    ("failure", "limit", "every"),
    [
        (failure, limit, (3, 10)[(row + column) % 2])
        for row, failure in enumerate(["500", "fast 500", "cut connection", "garbage"])
        for column, limit in enumerate(["no limit", "an unknown limit", "20 a second"])
    ],
)
def test_many_rows_that_no_server_can_answer_hold_up_no_other_and_end(
    real_redis: Redis, every: int, failure: str, limit: str
) -> None:
    limits, usual_s = LIMITS[limit]
    cluster = cluster_with(real_redis, limits(), FAILURES[failure], set(range(0, ROWS, every)))
    ref = cluster.submit(ROWS)
    good = ROWS - len(range(0, ROWS, every))
    run_until(cluster, lambda: count(cluster, ref, "n:succeeded") == good, 3 * usual_s + 20)
    cluster.run_until_finished(ref, limit_s=MOST_DOWN_S)
    assert count(cluster, ref, "n:failed") == ROWS - good


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("failure", ["503", "429"])
def test_a_tenth_of_the_rows_that_is_always_rejected_holds_up_no_other(
    real_redis: Redis, failure: str, limit: str
) -> None:
    limits, usual_s = LIMITS[limit]
    cluster = cluster_with(real_redis, limits(), FAILURES[failure], set(range(0, ROWS, 10)))
    ref = cluster.submit(ROWS)
    good = ROWS - ROWS // 10
    run_until(cluster, lambda: count(cluster, ref, "n:succeeded") == good, 2 * usual_s + 40)


@pytest.mark.parametrize(("failure", "limit"), list(zip(["503", "429"] * 2, LIMITS, strict=True)))
def test_a_third_of_the_rows_that_is_always_rejected_holds_up_no_other_and_ends(
    real_redis: Redis, failure: str, limit: str
) -> None:
    """At first the lane takes the rejections for its own limit, and stands for a while after each."""
    limits, usual_s = LIMITS[limit]
    cluster = cluster_with(real_redis, limits(), FAILURES[failure], set(range(0, ROWS, 3)))
    ref = cluster.submit(ROWS)
    good = ROWS - len(range(0, ROWS, 3))
    run_until(cluster, lambda: count(cluster, ref, "n:succeeded") == good, 2 * usual_s + 200)
    cluster.run_until_finished(ref, limit_s=MOST_REJECTED_S)
    assert count(cluster, ref, "n:failed") == ROWS - good


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rate=st.floats(0.5, 30),
    depth=st.floats(1, 60),
    chance=st.sampled_from([0.0, 0.0, 0.1, 0.3, 0.6]),
    failure=st.sampled_from(["429", "429 that names a wait", "503"]),
    limit=st.sampled_from(sorted(LIMITS)),
    seed=st.integers(0, 1000),
)
@pytest.mark.slow(seconds=20)
def test_rejections_by_a_limit_and_by_chance_end_no_row(
    real_redis: Redis, rate: float, depth: float, chance: float, failure: str, limit: str, seed: int
) -> None:
    real_redis.flushall()
    rng, level, at_ms = random.Random(seed), depth, 0

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        nonlocal level, at_ms
        level, at_ms = min(depth, level + (cluster.now_ms - at_ms) * rate / 1000), cluster.now_ms
        if level < 1 or rng.random() < chance:
            return FAILURES[failure]
        level -= 1
        return LATENCY_S, Success("yes", Usage(10, 5))

    cluster = cluster_with(real_redis, LIMITS[limit][0](), FAILURES[failure], set())
    cluster.provider = provider
    ref = cluster.submit(60)
    cluster.run_for(600)
    assert count(cluster, ref, "n:failed") == 0


@pytest.mark.parametrize("down_s", [20, 120, 300])
@pytest.mark.parametrize("failure", ["500", "cut connection", "garbage", "hang"])
def test_an_outage_among_rows_that_fail_by_chance_costs_nobody_an_attempt(
    real_redis: Redis, failure: str, down_s: int
) -> None:
    """A twentieth of the calls fail once before it; it begins while others have not been called yet."""
    cluster = cluster_with(real_redis, {"requests_per_minute": 1200}, FAILURES[failure], set())
    began_ms, met = cluster.now_ms, set[int]()

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        if 10_000 <= cluster.now_ms - began_ms < 10_000 + 1000 * down_s:
            return FAILURES[failure]
        if attempt.job % 20 == 0 and attempt.job not in met:
            met.add(attempt.job)
            return FAILURES["500"]
        return LATENCY_S, Success("yes", Usage(10, 5))

    cluster.provider = provider
    ref = cluster.submit(ROWS)
    cluster.run_until_finished(ref, limit_s=down_s * 1.5 + 120)
    assert count(cluster, ref, "n:failed") == 0


@pytest.mark.parametrize("failure", ["503", "429", "429 that names a wait"])
def test_a_rejected_row_ends_while_others_go_on(real_redis: Redis, failure: str) -> None:
    """And is called ever more rarely: as often as its longest back-off allows."""
    cluster = cluster_with(real_redis, {"requests_per_minute": 120}, FAILURES[failure], {BAD})
    ref, began_ms = cluster.submit(20_000), cluster.now_ms
    run_until(cluster, lambda: count(cluster, ref, "n:failed") == 1, 4 * 3600)
    error = str(cluster.results(ref)[BAD].error)
    assert error.endswith("of them while its lane answered others: " + FAILURES[failure][1].message), error
    assert cluster.now_ms - began_ms < 1000 * MOST_REJECTED_S
    assert count(cluster, ref, "n:succeeded") >= 0.9 * 2 * (cluster.now_ms - began_ms) / 1000
