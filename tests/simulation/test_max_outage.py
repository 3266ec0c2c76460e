"""`max_outage` in virtual time: it bounds each wait for a lane that answers nobody, whatever waits for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
    PermanentFailure,
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

QUICK_S = 0.005
YES = Success("yes", Usage(10, 5))
REFUSED = NetworkFailure("connection refused")
LOOKS_S = 1.0
"""The scheduler looks once a second."""

FIRST_CALLS = 5
"""Calls that open a circuit; until then a job's own delays, of 1 s and 2 s and so on, are all that waits."""


def fails(_: Attempt) -> tuple[float, Outcome]:
    return QUICK_S, REFUSED


def cluster_of(
    redis: Redis,
    provider: Callable[[Attempt], tuple[float, Outcome]] = fails,
    limits: Mapping[str, float | None] | None = None,
) -> Cluster:
    return Cluster(redis, provider=provider, workers=[FakeWorker("w1", 10)], lanes={"sim:fast": limits or {}})


def reason(max_outage: float, lane: str = "sim:fast") -> str:
    return f"{lane} answered nobody for {max_outage:g} s (max_outage): connection refused"


@pytest.mark.parametrize("max_outage", [3, 30, 300])
@pytest.mark.parametrize(
    "failure",
    [REFUSED, ServerError("broken", 500), InvalidResponse("no JSON"), Overloaded("busy", 503)],
    ids=lambda failure: failure.message,
)
@pytest.mark.parametrize("delay_s", [0.0, 1.0, 60.0])
def test_a_lone_row_is_called_for_no_longer(
    real_redis: Redis, failure: Outcome, max_outage: float, delay_s: float
) -> None:
    cluster = cluster_of(real_redis, lambda _: (QUICK_S, failure))
    retry = {"initial_delay": delay_s, "jitter": "added"}
    ref = cluster.submit(1, bounds={"max_outage": max_outage}, retry=retry)
    took_s = cluster.run_until_finished(ref, limit_s=20 * max_outage + 200)
    assert_complete(cluster, ref, JobState.FAILED)
    assert max_outage <= took_s <= max_outage + LOOKS_S + 0.5
    assert len(cluster.started()) <= FIRST_CALLS + 1 + probes_within(max_outage, QUICK_S)


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_rows_too_few_to_open_the_circuit_are_called_for_no_longer(real_redis: Redis, rows: int) -> None:
    cluster = cluster_of(real_redis, limits={"outage_failures": 1000})
    ref = cluster.submit(rows, bounds={"max_outage": 100})
    took_s = cluster.run_until_finished(ref, limit_s=2000)
    assert_complete(cluster, ref, JobState.FAILED)
    assert {result.error for result in cluster.results(ref).values()} == {reason(100)}
    assert {result.attempts for result in cluster.results(ref).values()} == {0}
    assert 100 <= took_s <= 100 + 5


def test_a_row_whose_failures_no_answer_judges_is_called_for_no_longer(real_redis: Redis) -> None:
    """Others are rejected meanwhile: the provider answers, so the circuit stays closed, but serves nobody."""

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        if attempt.run == "r1":
            return QUICK_S, REFUSED
        return QUICK_S, PermanentFailure(f"field {attempt.job} is bad", 400)

    cluster = cluster_of(real_redis, provider)
    ref = cluster.submit(1, bounds={"max_outage": 100})
    for second in range(1, 400):
        cluster.at(second, lambda: cluster.submit(1))
    took_s = cluster.run_until_finished(ref, limit_s=600)
    assert_complete(cluster, ref, JobState.FAILED)
    assert 100 <= took_s <= 105


def test_the_last_row_of_a_run_that_was_answered_fails_with_that_reason(real_redis: Redis) -> None:
    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        return (1.0, YES) if attempt.job < 50 else (30.0, REFUSED)

    cluster = cluster_of(real_redis, provider)
    ref = cluster.submit(51, bounds={"max_outage": 40})
    took_s = cluster.run_until_finished(ref, limit_s=900)
    assert_complete(cluster, ref, JobState.SUCCEEDED, JobState.FAILED)
    assert cluster.results(ref)[50].state is JobState.FAILED
    first_failed_s, call_s = 35, 30
    assert took_s <= first_failed_s + 40 + call_s + LOOKS_S + 5, "the call in flight ends first"


def test_a_judges_retry_beside_finished_tasks_fails_in_time(real_redis: Redis) -> None:
    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        return (QUICK_S, REFUSED) if attempt.lane == "sim:judge" else (1.0, YES)

    cluster = cluster_of(real_redis, provider)
    ref = cluster.submit(2, judges=["sim:judge"], bounds={"max_outage": 20})
    took_s = cluster.run_until_finished(ref, limit_s=900)
    assert_complete(cluster, ref, JobState.SUCCEEDED, JobState.FAILED)
    assert cluster.status(ref).by_state == {JobState.SUCCEEDED: 2, JobState.FAILED: 2}
    assert 20 <= took_s <= 20 + 1 + 2 * LOOKS_S


def test_a_serial_run_ends_as_soon_as_its_first_item_has_waited(real_redis: Redis) -> None:
    cluster = cluster_of(real_redis)
    ref = cluster.submit(20, order={"serial": True}, bounds={"max_outage": 20})
    took_s = cluster.run_until_finished(ref, limit_s=900)
    assert_complete(cluster, ref, JobState.FAILED)
    assert 20 <= took_s <= 20 + 3 * LOOKS_S
    assert {start.attempt.job for start in cluster.started()} <= {0, 1}


def test_each_run_waits_for_as_long_as_its_own_bound_says(real_redis: Redis) -> None:
    cluster = cluster_of(real_redis)
    refs = {most: cluster.submit(1, bounds={"max_outage": most}) for most in (5, 50, 500)}
    for most, ref in refs.items():
        cluster.run_until_finished(ref, limit_s=900)
        assert_complete(cluster, ref, JobState.FAILED)
        assert [result.error for result in cluster.results(ref).values()] == [reason(most)]
    started = {most: [start.at_ms for start in cluster.started(ref=ref)] for most, ref in refs.items()}
    assert all(max(times) - min(times) <= 1000 * (most + 1) for most, times in started.items() if times)


def test_a_run_on_a_lane_that_is_down_waits_from_its_own_start(real_redis: Redis) -> None:
    cluster = cluster_of(real_redis)
    first = cluster.submit(1, bounds={"max_outage": 60})
    cluster.run_until_finished(first, limit_s=900)
    again = cluster.submit(1, bounds={"max_outage": 60})
    assert 60 <= cluster.run_until_finished(again, limit_s=900) <= 60 + LOOKS_S
    assert cluster.started(ref=again), "the lane is tested for it"


def test_a_lone_row_of_a_paused_run_waits_on_and_is_tested_before_it_fails(real_redis: Redis) -> None:
    cluster = cluster_of(real_redis)
    ref = cluster.submit(1, bounds={"max_outage": 60})

    def ask(op: Callable[[RunRef, str], object]) -> None:
        op(ref, "ann@host")
        cluster.announce(ref.team)

    cluster.at(59, lambda: ask(cluster.outbox.pause))
    cluster.at(1000, lambda: ask(cluster.outbox.resume))
    began_ms = cluster.now_ms
    took_s = cluster.run_until_finished(ref, limit_s=3000)
    assert_complete(cluster, ref, JobState.FAILED)
    assert 1001 <= took_s <= 1000 + 60 + LOOKS_S
    last_s = (cluster.started()[-1].at_ms - began_ms) / 1000
    assert last_s >= 1000, "it is called once more"


def test_a_hang_whose_probes_are_always_overdue_fails_the_jobs_that_wait(real_redis: Redis) -> None:
    hang = TimedOut("no answer within 600 s", deadline_ms=600_000)
    down = list[bool]()

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        return (600.0, hang) if down else (1.0, YES)

    cluster = cluster_of(real_redis, provider, {"max_concurrency": 5})
    ref = cluster.submit(400, bounds={"max_outage": 1500})
    cluster.at(5, lambda: down.append(True))
    took_s = cluster.run_until_finished(ref, limit_s=20_000)
    assert_complete(cluster, ref, JobState.SUCCEEDED, JobState.FAILED)
    shows_s, awaited_s, in_flight_s = 5 + 600, 600, 600
    assert took_s <= shows_s + 1500 + awaited_s + in_flight_s + 10


def test_probes_more_often_than_the_scheduler_looks_keep_no_job_alive(real_redis: Redis) -> None:
    limits = {"outage_delay": 0.05, "outage_growth": 1.0, "outage_longest_delay": 0.05}
    cluster = cluster_of(real_redis, limits=limits)
    ref = cluster.submit(50, bounds={"max_outage": 30})
    took_s = cluster.run_until_finished(ref, limit_s=900)
    assert_complete(cluster, ref, JobState.FAILED)
    assert 30 <= took_s <= 30 + 3 * LOOKS_S


def test_a_lane_that_comes_back_in_time_costs_a_lone_row_nothing(real_redis: Redis) -> None:
    cluster = cluster_of(real_redis)
    back = list[bool]()
    cluster.provider = lambda _: (1.0, YES) if back else (QUICK_S, REFUSED)
    ref = cluster.submit(1, bounds={"max_outage": 300})
    cluster.at(200, lambda: back.append(True))
    cluster.run_until_finished(ref, limit_s=900)
    assert_complete(cluster, ref, JobState.SUCCEEDED)
    assert [result.attempts for result in cluster.results(ref).values()] == [1]


def test_the_rows_of_a_serial_run_wait_once(real_redis: Redis) -> None:
    """Each is called alone, so that the circuit stays closed."""
    cluster = cluster_of(real_redis, lambda _: (QUICK_S, REFUSED), {"outage_failures": 8})
    retry = {"initial_delay": 60.0, "max_delay": 60.0}
    ref = cluster.submit(5, bounds={"max_outage": 20}, retry=retry, order={"serial": True})
    assert cluster.run_until_finished(ref, limit_s=300) <= 20 + 5 * LOOKS_S + 3


LIMITS = st.fixed_dictionaries(
    {
        "outage_failures": st.integers(1, 8),
        "outage_delay": st.sampled_from([0.1, 1.0, 10.0]),
        "outage_growth": st.sampled_from([1.0, 1.25, 2.0]),
        "max_concurrency": st.integers(1, 4),
    }
)
RUNS = st.lists(
    st.fixed_dictionaries(
        {
            "rows": st.integers(1, 6),
            "most": st.sampled_from([3, 20, 90]),
            "delay": st.sampled_from([0.0, 0.5, 5.0, 60.0]),
            "serial": st.booleans(),
        }
    ),
    min_size=1,
    max_size=3,
)
FAILURES = [REFUSED, ServerError("broken", 500), InvalidResponse("no JSON"), TimedOut("no answer")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(RUNS, LIMITS, st.sampled_from([0.005, 0.7, 8.0]), st.sampled_from(FAILURES))
def test_every_run_ends_when_its_wait_is_over(
    real_redis: Redis,
    runs: list[dict[str, float]],
    limits: dict[str, float | None],
    call_s: float,
    failure: Outcome,
) -> None:
    """Calls go on until the circuit opens; the probe that is due when the wait is over is awaited."""
    cluster = cluster_of(emptied(real_redis), lambda _: (call_s, failure), limits)
    began_ms, most_s = cluster.now_ms, {}
    for each in runs:
        delay = each["delay"]
        ref = cluster.submit(
            int(each["rows"]),
            bounds={"max_outage": each["most"]},
            retry={"initial_delay": delay, "max_delay": max(60.0, delay)},
            order={"serial": bool(each["serial"])},
        )
        most_s[ref] = each["most"]
    for ref, most in sorted(most_s.items(), key=lambda pair: pair[1]):
        cluster.run_until_finished(ref, limit_s=900)
        assert cluster.status(ref).by_state == {JobState.FAILED: cluster.specs[ref].jobs}
        took_s = (cluster.now_ms - began_ms) / 1000
        serial = cluster.specs[ref].items if cluster.specs[ref].order.serial else 0  # each may be a probe
        calls = (
            3 + int(limits["outage_failures"] or 0) + serial
        )  # one after the other, until the circuit opens
        assert took_s <= call_s + most + calls * (call_s + LOOKS_S), (ref, most)
