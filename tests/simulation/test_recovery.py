"""What goes wrong, in virtual time: every job still ends in exactly one record, whoever dies on the way."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.decision import RetryPolicy
from fairlane.model.job import Attempt, JobState
from fairlane.model.outcome import (
    FlawedAnswer,
    InvalidResponse,
    NetworkFailure,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    Success,
    TimedOut,
)
from fairlane.model.run import RunState
from fairlane.model.tokens import Usage
from tests.support.redis import emptied
from tests.support.scheduling import Cluster, assert_complete
from tests.support.stand_ins import CALL_S, FakeWorker, answers, scripted

PATIENT = RetryPolicy(max_attempts=3, initial_delay=0.2, max_delay=2.0)
HASTY = RetryPolicy(max_attempts=2, initial_delay=0.2, max_delay=1.0, max_rate_limits=3)


@pytest.mark.parametrize(
    "failure",
    [
        NetworkFailure("reset"),
        Overloaded("busy", 503),
        TimedOut("late"),
        InvalidResponse("no JSON"),
        RateLimited("too fast", retry_after_ms=300),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_job_that_fails_once_is_retried_and_succeeds(real_redis: Redis, failure: Outcome) -> None:
    cluster = Cluster(real_redis, provider=scripted({3: [failure], 7: [failure, failure]}))
    ref = cluster.submit(20, retry=PATIENT)

    cluster.run_until_finished(ref, limit_s=60)

    assert_complete(cluster, ref, JobState.SUCCEEDED)
    tries = Counter(start.attempt.job for start in cluster.starts)
    assert (tries[3], tries[7], sum(tries.values())) == (2, 3, 23)
    spent = 1 if isinstance(failure, RateLimited | Overloaded) else 3
    assert cluster.results(ref)[7].attempts == spent


def test_a_retry_waits_out_its_back_off_and_no_longer(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, provider=scripted({0: [NetworkFailure("reset")] * 2}))
    policy = RetryPolicy(max_attempts=3, initial_delay=4.0, max_delay=60.0)
    ref = cluster.submit(1, retry=policy)

    cluster.run_until_finished(ref)

    first, second, third = (start.at_ms for start in cluster.starts)
    rng = random.Random(7)
    for before, after, spent in ((first, second, 1), (second, third, 2)):
        delay_ms = policy.delay_ms(spent, rng)
        assert delay_ms <= after - before - CALL_S * 1000 <= delay_ms + 5


def test_a_job_that_always_fails_ends_as_failed_and_its_judges_as_skipped(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, provider=scripted({0: [FlawedAnswer("no score")] * 9}))
    ref = cluster.submit(3, judges=["sim:judge", "sim:fast"], retry=PATIENT)

    cluster.run_until_finished(ref)

    assert_complete(cluster, ref)
    by_state = cluster.status(ref).by_state
    assert by_state == {JobState.SUCCEEDED: 6, JobState.FAILED: 1, JobState.SKIPPED: 2}


def test_a_request_that_is_refused_is_called_once_more_at_most(real_redis: Redis) -> None:
    """Nobody was answered who started later, so the refusal may be the lane's."""
    cluster = Cluster(real_redis, provider=scripted({1: [PermanentFailure("no such model", 404)]}))
    ref = cluster.submit(5)

    cluster.run_until_finished(ref)

    assert_complete(cluster, ref, JobState.SUCCEEDED, JobState.FAILED)
    assert len(cluster.starts) <= 6


def test_items_that_cannot_be_rendered_end_as_invalid_without_a_permit(real_redis: Redis) -> None:
    cluster = Cluster(real_redis)
    rows = [{"q": n, "lane": "fast"} if n % 2 else {"lane": "fast"} for n in range(400)]
    rows[1] = {"q": 1, "lane": "no such thing: really"}
    ref = cluster.submit(rows, model="sim:{{ lane }}", judges=["sim:judge"])
    unknown = cluster.submit([{"q": 0, "m": "nowhere:x"}], model="{{ m }}")

    cluster.run_until_finished(ref, unknown)

    assert_complete(cluster, ref)
    by_state = cluster.status(ref).by_state
    assert by_state[JobState.INVALID] == 200
    assert by_state[JobState.SKIPPED] == 200
    assert len(cluster.started(ref=ref)) == 400
    assert cluster.status(unknown).by_state == {JobState.INVALID: 1}
    assert "connection" in str(cluster.results(unknown)[0].error)


def test_a_run_of_nothing_but_invalid_items_completes(real_redis: Redis) -> None:
    cluster = Cluster(real_redis)
    ref = cluster.submit([{"x": n} for n in range(1000)])

    assert cluster.run_until_finished(ref) < 0.5
    assert cluster.status(ref).by_state == {JobState.INVALID: 1000}
    assert cluster.starts == []


def test_deleted_rows_end_as_invalid_and_stop_no_other(real_redis: Redis) -> None:
    cluster = Cluster(real_redis)
    broken = cluster.submit(30, page_rows=10, open=True)  # else it is rejected with its rows missing
    cluster.outbox.extend(broken, 30, last=True)
    real_redis.hdel(cluster.keys.rows(broken), "1")
    real_redis.hset(cluster.keys.rows(broken), "2", b"garbage")
    whole = cluster.submit(30)

    cluster.run_until_finished(broken, whole)

    assert_complete(cluster, broken, JobState.SUCCEEDED, JobState.INVALID)
    assert cluster.status(broken).by_state == {JobState.SUCCEEDED: 10, JobState.INVALID: 20}
    assert "gone" in str(cluster.results(broken)[10].error)


def test_a_worker_that_dies_costs_its_jobs_one_attempt_and_nothing_is_lost(real_redis: Redis) -> None:
    doomed = FakeWorker("doomed", 10)
    cluster = Cluster(real_redis, workers=[doomed, FakeWorker("steady", 10)])
    ref = cluster.submit(200)
    cluster.at(1.2, lambda: cluster.kill(doomed))

    cluster.run_until_finished(ref)

    assert_complete(cluster, ref, JobState.SUCCEEDED)
    again = [start for start in cluster.starts if start.attempt.number == 2]
    assert 1 <= len(again) <= 10
    assert {start.worker for start in again} == {"steady"}
    died_ms = cluster.starts[0].at_ms + 1200
    # Dead after five seconds of silence, seen within one round of the recoverer.
    assert max(start.at_ms for start in again) - died_ms <= 5000 + 1000 + 600


def test_a_job_that_always_kills_its_worker_fails(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, workers=[FakeWorker(f"w{n}", 4) for n in range(4)])

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        if attempt.job == 0:
            holder = next(worker for worker in cluster.workers if attempt.id in worker.calls)
            cluster.kill(holder)
        return answers(attempt)

    cluster.provider = provider
    ref = cluster.submit(20, retry=PATIENT, judges=["sim:judge"])

    cluster.run_until_finished(ref)

    assert_complete(cluster, ref, JobState.SUCCEEDED, JobState.FAILED, JobState.SKIPPED)
    assert cluster.status(ref).by_state[JobState.FAILED] == 1
    failed = cluster.results(ref)[0]
    assert failed.attempts == 3
    assert "worker" in str(failed.error)


def test_messages_that_are_lost_come_back_and_cost_no_attempt(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, bounds={"lease_seconds": 5})
    ref = cluster.submit(50)
    lost: list[Attempt] = []
    mailbox = cluster.processes[0].mailbox
    collect = mailbox.collect
    mailbox.collect = lambda: lost.extend(collect()) or []  # type: ignore[func-returns-value]
    cluster.run_for(1)
    mailbox.collect = collect
    assert lost

    cluster.run_until_finished(ref)

    assert_complete(cluster, ref, JobState.SUCCEEDED)
    assert {result.attempts for result in cluster.results(ref).values()} == {1}


def test_messages_that_arrive_twice_cause_one_call(real_redis: Redis) -> None:
    cluster = Cluster(real_redis)
    ref = cluster.submit(40)
    mailbox = cluster.processes[0].mailbox
    collect = mailbox.collect
    mailbox.collect = lambda: [copy for attempt in collect() for copy in (attempt, attempt)]

    cluster.run_until_finished(ref)

    assert_complete(cluster, ref, JobState.SUCCEEDED)
    assert (len(cluster.starts), cluster.stale) == (40, 40)


def test_an_unreachable_broker_stops_grants_and_loses_nothing(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": {"requests_per_minute": 600}})
    ref = cluster.submit(60)
    cluster.run_for(1)
    mailbox = cluster.processes[0].mailbox
    mailbox.reachable = False
    granted = int(real_redis.hget(cluster.keys.lane("sim:fast"), "granted") or 0)
    cluster.run_for(20)
    assert int(real_redis.hget(cluster.keys.lane("sim:fast"), "granted") or 0) == granted

    mailbox.reachable = True
    cluster.run_until_finished(ref)

    assert_complete(cluster, ref, JobState.SUCCEEDED)


def test_a_standby_takes_over_within_a_lease_and_nothing_is_lost(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": {"requests_per_minute": 1200}}, standbys=1)
    ref = cluster.submit(200, judges=["sim:judge"])
    leader = cluster.processes[0]
    cluster.at(3, lambda: setattr(leader, "running", False))
    late = [ref]
    cluster.at(3.5, lambda: late.append(cluster.submit(10)))
    cluster.at(3.5, lambda: late.append(cluster.submit(10)))
    cluster.run_for(4)

    took = 4 + cluster.run_until_finished(*late)

    for each in late:
        assert_complete(cluster, each, JobState.SUCCEEDED)
    # One lease of three seconds, and the third of one that the standby waits between its bids.
    assert took <= (220 - 20) / 20 + 2 * CALL_S + 4 + 0.2


def test_a_leader_that_resigns_hands_over_at_once(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": {"requests_per_minute": 1200}}, standbys=1)
    ref = cluster.submit(200)
    leader = cluster.processes[0]

    def resign() -> None:
        leader.scheduler.resign()
        leader.running = False

    cluster.at(3, resign)

    took = cluster.run_until_finished(ref)

    assert_complete(cluster, ref, JobState.SUCCEEDED)
    assert took <= (200 - 20) / 20 + CALL_S + 1.2


def test_a_paused_leader_grants_nothing_and_leaves_requests_to_the_new_one(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": {"requests_per_minute": 1200}}, standbys=1)
    ref = cluster.submit(200, judges=["sim:judge"], retry=PATIENT)
    leader, standby = cluster.processes
    cluster.at(2, lambda: setattr(leader, "running", False))
    cluster.run_for(8)
    assert standby.scheduler.leader.leads
    asked = cluster.submit(10)
    marked = {b"sim:fast|search/r1", b"*"}
    real_redis.sadd(cluster.keys.dirty, *marked)

    # It wakes where it fell asleep: convinced that it leads, with another's work before it.
    leader.scheduler.leader._due_ms = cluster.now_ms + 1000
    waits = leader.scheduler.tick(None)

    assert not leader.scheduler.leader.leads
    assert waits == 0
    assert leader.mailbox.collect() == []
    assert real_redis.llen(cluster.keys.inbox("search")) == 1
    assert real_redis.smembers(cluster.keys.dirty) >= marked

    cluster.run_until_finished(ref, asked)
    assert_complete(cluster, ref, JobState.SUCCEEDED)
    assert_complete(cluster, asked, JobState.SUCCEEDED)


def test_slots_are_not_oversubscribed_by_a_new_leader(real_redis: Redis) -> None:
    cluster = Cluster(
        real_redis,
        workers=[FakeWorker("w1", 10)],
        provider=lambda attempt: (20.0 if attempt.lane == "sim:long" else 0.5, Success("yes", Usage(1, 1))),
        standbys=1,
    )
    cluster.submit(8, model="sim:long")
    cluster.run_for(1)
    cluster.processes[0].running = False
    cluster.submit(40, model="sim:short")

    cluster.run_for(8)

    assert cluster.processes[1].scheduler.leader.leads
    assert len(cluster.started("sim:short")) > 10
    assert (cluster.peak[""], cluster.short_of_slots) == (10, 0)


outcomes = st.sampled_from(
    [
        *[Success("yes", Usage(3, 4))] * 6,
        RateLimited("slow down"),
        RateLimited("slow down", retry_after_ms=700),
        Overloaded("busy", 503),
        NetworkFailure("reset"),
        TimedOut("late"),
        InvalidResponse("no JSON"),
        PermanentFailure("no", 400),
    ]
)


@settings(
    max_examples=5,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    ends=st.lists(outcomes, min_size=1, max_size=40).filter(
        lambda ends: any(
            not isinstance(end, RateLimited | Overloaded) for end in ends
        )  # 429s alone end no job
    ),
    judges=st.sampled_from([[], ["sim:judge"], ["sim:fast", "sim:judge"]]),
    kills=st.lists(st.floats(0.2, 8), max_size=2),
    change_of_leader=st.none() | st.floats(0.5, 6),
    seed=st.integers(0, 1000),
)
@example(ends=[RateLimited("slow down")], judges=[], kills=[], change_of_leader=None, seed=0)
def test_every_job_ends_in_one_record_whatever_fails(
    real_redis: Redis,
    ends: list[Outcome],
    judges: list[str],
    kills: list[float],
    change_of_leader: float | None,
    seed: int,
) -> None:
    rng = random.Random(seed)
    workers = [FakeWorker(f"w{n}", 6) for n in range(len(kills) + 1)]
    cluster = Cluster(
        emptied(real_redis),
        lanes={"sim:fast": {"requests_per_minute": 1200}},
        workers=workers,
        provider=lambda attempt: (rng.uniform(0.01, 2.0), rng.choice(ends)),
        standbys=1,
    )
    rows = [{"q": n} if n % 7 else {} for n in range(40)]
    bounds = {"max_outage": 60, "max_duration": 3600}
    ref = cluster.submit(rows, judges=judges, retry=HASTY, bounds=bounds)
    other = cluster.submit(15, team="ads", judges=judges, retry=HASTY, bounds=bounds)
    for worker, after in zip(workers, kills, strict=False):
        cluster.at(after, lambda worker=worker: cluster.kill(worker))
    if change_of_leader is not None:
        cluster.at(change_of_leader, lambda: setattr(cluster.processes[0], "running", False))

    cluster.run_until_finished(ref, other, limit_s=7200)

    for run in (ref, other):
        status = cluster.status(run)
        if status.state is RunState.TIMED_OUT:
            # Rejections and overloads cost no attempt: where there is nothing else, the deadline ends a run.
            assert all(isinstance(end, RateLimited | Overloaded) for end in ends)
            assert sum(status.by_state.values()) == status.jobs_done == status.jobs
            assert (status.in_flight, status.items_done) == (0, status.items)
        else:
            assert_complete(cluster, run)
    assert cluster.peak[""] <= 6 * len(workers)
