"""Outages in virtual time: they cost no job an attempt, and few calls are made into them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import median

import pytest
from redis import Redis

from fairlane.model.job import Attempt, JobState
from fairlane.model.outcome import (
    InvalidResponse,
    NetworkFailure,
    Outcome,
    Overloaded,
    ServerError,
    Success,
    TimedOut,
)
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from tests.support.outages import probes_within
from tests.support.redis import emptied
from tests.support.scheduling import Cluster, assert_complete
from tests.support.stand_ins import FakeWorker

JOBS = 400
BEGIN_S, LATENCY_S, QUICK_S = 2.0, 1.0, 0.005
THRESHOLD, TIMEOUT_S = 5, 120.0
SLOTS = 50
HANG = TimedOut("no answer within 120 s", deadline_ms=round(1000 * TIMEOUT_S))


class Provider:
    """Answers after a second; for ``seconds`` from `BEGIN_S` on it fails a ``share`` of the calls."""

    def __init__(
        self, failure: Outcome, seconds: float, takes_s: float = QUICK_S, share: float = 1.0, seed: int = 1
    ) -> None:
        self._failure, self._seconds, self._takes_s, self._share = failure, seconds, takes_s, share
        self._rng = random.Random(seed)
        self.cluster: Cluster | None = None
        self.failed: list[int] = []
        self.answered = 0  # calls within the outage

    def __call__(self, attempt: Attempt) -> tuple[float, Outcome]:
        assert self.cluster is not None
        at_s = self.cluster.now_ms / 1000 - self._began_s
        if BEGIN_S <= at_s < BEGIN_S + self._seconds:
            if self._rng.random() < self._share:
                self.failed.append(attempt.job)
                return self._takes_s, self._failure
            self.answered += 1
        return LATENCY_S, Success("yes", Usage(10, 5))

    def within(self, cluster: Cluster) -> None:
        self.cluster, self._began_s = cluster, cluster.now_ms / 1000

    def took_s(self, cluster: Cluster) -> float:
        return cluster.now_ms / 1000 - self._began_s


def play(
    redis: Redis, provider: Provider, jobs: int, limit: dict[str, float], limit_s: float, slots: int = SLOTS
) -> Cluster:
    cluster = Cluster(redis, provider=provider, workers=[FakeWorker("w1", slots)], lanes={"sim:fast": limit})
    provider.within(cluster)
    ref = cluster.submit(jobs)
    cluster.run_until_finished(ref, limit_s=limit_s)
    assert_complete(cluster, ref, JobState.SUCCEEDED)
    assert {result.attempts for result in cluster.results(ref).values()} == {1}, "an outage costs no attempt"
    return cluster


LIMITS: dict[str, Callable[[], dict[str, float]]] = {
    "no limit": dict,
    "25 a second": lambda: {"requests_per_minute": 1500},
}
IN_FLIGHT = {"no limit": SLOTS, "25 a second": 25 + 2}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(
    ("failure", "seconds"),
    [
        (Overloaded("busy", 503), 20),
        (Overloaded("busy", 529), 20),
        (NetworkFailure("connection refused"), 120),
        (NetworkFailure("no such host"), 120),
        (ServerError("broken", 500), 120),
        (InvalidResponse("no JSON"), 120),
    ],
    ids=lambda value: getattr(value, "message", None),
)
def test_an_outage_fails_no_job_and_meets_few_calls(
    real_redis: Redis, failure: Outcome, seconds: float, limit: str
) -> None:
    provider = Provider(failure, seconds)
    play(real_redis, provider, JOBS, LIMITS[limit](), 600)
    assert 0 < len(provider.failed) <= THRESHOLD + IN_FLIGHT[limit] + probes_within(seconds, QUICK_S)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_minute_of_half_the_calls_overloaded_fails_no_job(real_redis: Redis, limit: str) -> None:
    bar = THRESHOLD + IN_FLIGHT[limit] + probes_within(60, QUICK_S)
    failed, took_s = list[int](), list[float]()
    for seed in range(1, 10):
        provider = Provider(Overloaded("busy", 529), 60, share=0.5, seed=seed)
        took_s.append(provider.took_s(play(emptied(real_redis), provider, JOBS, LIMITS[limit](), 600)))
        failed.append(len(provider.failed))
    assert min(failed) > 0
    assert sum(each > bar for each in failed) <= 2, f"{failed}: as in an outage in which nobody is answered"
    # Probes that fail by chance lengthen the delay: to 40 s at most within a minute.
    assert max(took_s) <= BEGIN_S + 60 + 40 + 30, "each lane is soon as fast as before"
    if limit == "25 a second":
        assert median(took_s) <= BEGIN_S + 60 + 30
        assert sum(each > BEGIN_S + 60 + 30 for each in took_s) <= 2, took_s


def test_five_minutes_of_hangs_fail_no_job_and_meet_few_calls(real_redis: Redis) -> None:
    provider = Provider(HANG, 300, takes_s=TIMEOUT_S)
    play(real_redis, provider, JOBS, {"max_concurrency": 20}, 1200)
    assert 0 < len(provider.failed) <= THRESHOLD + 20 + probes_within(300)


@pytest.mark.parametrize("per_s", [2, 25, 100])
def test_a_hang_meets_the_calls_of_three_latencies_at_any_rate(real_redis: Redis, per_s: int) -> None:
    """One passes until the last answer, two without any show the silence, and then few calls go."""
    provider, jobs = Provider(HANG, 300, takes_s=TIMEOUT_S), 10 * per_s
    burst_s = 0.1
    limit = {"requests_per_minute": 60.0 * per_s, "burst_seconds": burst_s}
    cluster = play(real_redis, provider, jobs, limit, 1200, slots=jobs)
    steps = 1 + math.ceil(math.log(TIMEOUT_S / (2 * LATENCY_S), 1.25))
    sent = (3 * LATENCY_S + burst_s) * per_s + THRESHOLD + steps + probes_within(300 - TIMEOUT_S)
    assert 0 < len(provider.failed) <= sent
    assert provider.took_s(cluster) <= BEGIN_S + 300 + TIMEOUT_S + 10, "the lane does not wait for its probes"


def test_a_run_slower_than_all_before_is_not_taken_for_an_outage(real_redis: Redis) -> None:
    slow_s, slow = 40.0, set[str]()

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        return slow_s if attempt.run in slow else LATENCY_S, Success("yes", Usage(10, 5))

    limit = {"requests_per_minute": 600.0, "burst_seconds": 1.0}
    cluster = Cluster(
        real_redis, provider=provider, workers=[FakeWorker("w1", 1000)], lanes={"sim:fast": limit}
    )
    cluster.run_until_finished(cluster.submit(50))
    ref = cluster.submit(500)
    slow.add(ref.run)
    assert cluster.run_until_finished(ref) <= 500 / 10 + slow_s + 2


def test_jobs_that_wait_longer_than_max_outage_fail_with_that_reason(real_redis: Redis) -> None:
    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        if attempt.lane == "sim:slow":
            return QUICK_S, NetworkFailure("connection refused")
        return LATENCY_S, Success("yes", Usage(10, 5))

    cluster = Cluster(real_redis, provider=provider, workers=[FakeWorker("w1", 10)])
    rows = [{"q": n, "m": "slow" if n % 2 else "fast"} for n in range(600)]
    ref = cluster.submit(rows, model="sim:{{ m }}", judges=["sim:judge"], bounds={"max_outage": 100})
    took_s = cluster.run_until_finished(ref, limit_s=600)
    assert_complete(cluster, ref)
    by_state = cluster.status(ref).by_state
    assert by_state == {JobState.SUCCEEDED: 600, JobState.FAILED: 300, JobState.SKIPPED: 300}
    reason = "sim:slow answered nobody for 100 s (max_outage): connection refused"
    failed = [result for result in cluster.results(ref).values() if result.state is JobState.FAILED]
    assert {result.error for result in failed} == {reason}
    assert 100 <= took_s <= 115
    assert len(cluster.started("sim:slow")) <= THRESHOLD + 10 + probes_within(100, QUICK_S)


def test_time_in_which_a_run_is_paused_does_not_count_for_max_outage(real_redis: Redis) -> None:
    cluster = Cluster(
        real_redis,
        provider=lambda attempt: (QUICK_S, NetworkFailure("connection refused")),
        workers=[FakeWorker("w1", 10)],
    )
    ref = cluster.submit(50, bounds={"max_outage": 100})

    def ask(op: Callable[[RunRef, str], object]) -> None:
        op(ref, "ann@host")
        cluster.announce(ref.team)

    for begin_s, end_s in ((20, 40), (60, 310)):
        cluster.at(begin_s, lambda: ask(cluster.outbox.pause))
        cluster.at(end_s, lambda: ask(cluster.outbox.resume))
    took_s = cluster.run_until_finished(ref, limit_s=600)
    assert_complete(cluster, ref, JobState.FAILED)
    assert 100 + 20 + 250 <= took_s <= 100 + 20 + 250 + 65, "a probe comes first, once a minute at least"


def test_a_row_that_is_never_served_fails_while_others_succeed(real_redis: Redis) -> None:
    poisoned = 20

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        if attempt.job == poisoned:
            return QUICK_S, ServerError("broken by this row", 500)
        return LATENCY_S, Success("yes", Usage(10, 5))

    cluster = Cluster(real_redis, provider=provider, workers=[FakeWorker("w1", 10)])
    ref = cluster.submit(300)
    cluster.run_until_finished(ref, limit_s=120)
    assert_complete(cluster, ref, JobState.SUCCEEDED, JobState.FAILED)
    failed = {item: result for item, result in cluster.results(ref).items() if result.state == "failed"}
    assert list(failed) == [poisoned]
    assert (failed[poisoned].attempts, failed[poisoned].error) == (3, "broken by this row")
