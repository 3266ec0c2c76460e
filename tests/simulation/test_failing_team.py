"""A team whose calls always fail on a lane that it shares, in virtual time: others hardly notice it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from fairlane.model.job import Attempt, JobState
from fairlane.model.outcome import NetworkFailure, Outcome, Overloaded, RateLimited, ServerError, Success
from fairlane.model.tokens import Usage
from tests.support.outages import probes_within
from tests.support.scheduling import Cluster, assert_complete
from tests.support.stand_ins import FakeWorker

LANE, TIMES, LATENCY_S, RUNS = "sim:fast", 2.0, 1.0, 3
THRESHOLD, SLOTS = 5, 50

FAILURES: dict[str, tuple[float, Outcome]] = {
    "errors at once": (0.005, ServerError("broken", 500)),
    "overloads": (0.005, Overloaded("busy", 503)),
    "slow time-outs": (8.0, NetworkFailure("cut off")),
    "429s": (0.005, RateLimited("too many")),
    "429s that name a wait": (0.005, RateLimited("too many", retry_after_ms=1000)),
    "slow 429s": (3.0, RateLimited("too many")),
}


def played(redis: Redis, limit: dict[str, float | None], failing: tuple[float, Outcome] | None) -> Cluster:
    redis.flushall()

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        if attempt.team == "flood" and failing is not None:
            return failing
        return LATENCY_S, Success("yes", Usage(10, 5))

    cluster = Cluster(redis, provider=provider, workers=[FakeWorker("w1", 100)], lanes={LANE: limit})
    if failing is not None:
        cluster.submit(2000, team="flood")
    cluster.run_for(20)
    return cluster


def victims_s(cluster: Cluster, jobs: int) -> float:
    ref = cluster.submit(jobs, team="victim")
    took_s = cluster.run_until_finished(ref, limit_s=900)
    assert_complete(cluster, ref, JobState.SUCCEEDED)
    return took_s


@pytest.mark.parametrize("takes_s", [0.005, 2.0])
def test_an_outage_that_two_teams_meet_costs_few_calls(real_redis: Redis, takes_s: float) -> None:
    """As many as one team's calls would cost, and as many again as open a circuit."""
    calls, down_s = [0], 120.0

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        if began_s <= cluster.now_ms / 1000 < began_s + down_s:
            calls[0] += 1
            return takes_s, NetworkFailure("connection refused")
        return LATENCY_S, Success("yes", Usage(10, 5))

    cluster = Cluster(real_redis, provider=provider, workers=[FakeWorker("w1", SLOTS)])
    began_s = cluster.now_ms / 1000 + 2
    refs = [cluster.submit(200, team=team) for team in ("one", "other")]
    cluster.run_until_finished(*refs, limit_s=600)
    for ref in refs:
        assert_complete(cluster, ref, JobState.SUCCEEDED)
    assert 0 < calls[0] <= 2 * THRESHOLD + SLOTS + probes_within(down_s)


LIMITS: dict[str, Callable[[], dict[str, float | None]]] = {
    "no limit": lambda: {},
    "an unknown limit": lambda: {"requests_per_minute": None},
    "20 a second": lambda: {"requests_per_minute": 1200},
    "10 at once": lambda: {"max_concurrency": 10},
}


HELD_S = {("10 at once", "slow 429s"): 3.0}
"""Seconds for which calls of the other team that were in flight before hold all places."""


ALONE_S: dict[tuple[str, int], list[float]] = {}


def alone(redis: Redis, limit: str, jobs: int) -> list[float]:
    """How long runs of ``jobs`` take without another team, in seconds; played once for all failures."""
    if (limit, jobs) not in ALONE_S:
        cluster = played(redis, LIMITS[limit](), None)
        ALONE_S[limit, jobs] = [victims_s(cluster, jobs) for _ in range(RUNS)]
    return ALONE_S[limit, jobs]


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("jobs", [5, 200])
def test_a_victims_run_takes_at_most_twice_its_time_alone(
    real_redis: Redis, kind: str, limit: str, jobs: int
) -> None:
    alone_s = alone(real_redis, limit, jobs)
    beside = played(real_redis, LIMITS[limit](), FAILURES[kind])
    beside_s = [victims_s(beside, jobs) for _ in range(RUNS)]
    held_s = [HELD_S.get((limit, kind), 0.0), *[0.0] * (RUNS - 1)]
    in_time = [b <= TIMES * a + held for a, b, held in zip(alone_s, beside_s, held_s, strict=True)]
    assert in_time == [True] * RUNS, (alone_s, beside_s)
