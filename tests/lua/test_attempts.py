"""An attempt from claim to report: only its holder changes anything, and every job comes back or ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis

from fairlane.model.ending import ReadyJob, RecordedJob
from fairlane.model.job import Attempt, Claim, JobState, Signal
from fairlane.model.run import RunRef
from tests.support.conservation import Books
from tests.support.contents import read_contents
from tests.support.deployment import LEASE_MS, Deployment, entry


def test_a_claim_has_the_jobs_counts_and_the_wait_of_its_permit(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1, requests_per_minute=0)
    d.defer(d.start(ref)[0], cost="attempt")
    d.defer(d.start(ref)[0], signal="limited", retry_after_ms=1, rate_limited=True)
    d.advance(1)
    again = d.take(ref, 1)[0]
    d.advance(7)
    assert again.number == 3
    assert d.claim(again) == Claim(attempts=1, rate_limits=1, waited_ms=7, rejected=1)


def test_of_many_copies_of_a_message_one_is_claimed(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    attempt = d.take(d.queued_lane(), 1)[0]
    claims = [d.claim(attempt, worker) for worker in ("w1", "w2", "w1", "w2")]
    assert [claim is not None for claim in claims] == [True, False, False, False]


def test_a_claim_whose_answer_was_lost_may_be_sent_again(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    call = d.attempts.claim(d.take(d.queued_lane(), 1)[0], "w1", LEASE_MS, d.now_ms)
    assert Claim.of(call.run(real_redis)) == Claim.of(call.run(real_redis)) == Claim(0, 0, 0)


def test_a_message_that_names_another_lane_than_its_permit_claims_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane("sim:other")
    attempt = d.take(d.queued_lane(), 1)[0]
    before = read_contents(real_redis)
    assert d.claim(replace(attempt, lane="sim:other")) is None
    assert read_contents(real_redis) == before
    assert d.claim(attempt) is not None
    assert d.finish(attempt) is not None
    Books(real_redis, d.keys).check()


def test_an_earlier_dispatch_of_a_job_can_neither_be_claimed_nor_reported(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    old = d.start(ref)[0]
    d.advance(LEASE_MS)
    assert d.recover(old) == 1
    new = d.start(ref, worker="w2")[0]
    assert (new.job, new.number) == (old.job, old.number + 1)
    assert d.claim(old) is None
    assert d.finish(old) is None
    assert d.defer(old) is None
    assert d.count(ref, "late") == 2
    assert d.finish(new, "w2") is not None
    Books(real_redis, d.keys).check()


def test_a_report_is_applied_once(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2)
    attempt = d.start(ref)[0]
    assert d.finish(attempt) is not None
    before = read_contents(real_redis)
    assert d.finish(attempt, state=JobState.FAILED) is None
    real_redis.hdel(d.keys.state(ref), "late")
    assert read_contents(real_redis) == before


def test_only_the_worker_that_claimed_an_attempt_can_report_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    attempt = d.take(d.queued_lane(), 1)[0]
    assert d.finish(attempt) is None
    d.claim(attempt, "w1")
    assert d.finish(attempt, "w2") is None
    assert d.finish(attempt, "w1") is not None


def test_a_late_report_on_a_run_that_has_expired_leaves_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    before = read_contents(real_redis)
    gone = Attempt("gone", "search", 0, 1, "sim:fast")
    assert d.finish(gone) is None
    assert d.defer(gone) is None
    assert d.recover(gone) == 0
    assert read_contents(real_redis) == before


def test_the_last_report_completes_the_run_and_says_so(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=3)
    reports = [d.finish(attempt) for attempt in d.start(ref, 3)]
    assert [report and report.finished for report in reports] == [False, False, True]
    assert [report and report.in_flight for report in reports] == [2, 1, 0]
    Books(real_redis, d.keys).check()


def test_judges_are_queued_as_soon_as_the_output_exists_and_go_before_new_tasks(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane()
    ref = d.submit(rows=3, judges=["sim:fast", "sim:fast"])
    d.feed(ref, 3)
    first = d.start(ref)[0]
    d.dirty()
    d.finish(
        first,
        follow=[ReadyJob(entry(1, 5, 1), "sim:fast"), RecordedJob(2, JobState.SKIPPED, "{}", "sim:fast")],
    )
    assert "sim:fast|search/r1" in d.dirty()
    assert [attempt.job for attempt in d.take(ref)] == [1, 3, 6]
    Books(real_redis, d.keys).check()


def test_two_evaluations_on_lanes_of_their_own_reach_their_own_queues(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=0)
    for lane in ("sim:a", "sim:b"):
        d.lane(lane)
    ref = d.submit(run="r2", rows=1, judges=["sim:a", "sim:b"])
    d.feed(ref, 1)
    d.finish(d.start(ref)[0], follow=[ReadyJob(entry(1, 5, 1), "sim:a"), ReadyJob(entry(2, 6, 1), "sim:b")])
    assert d.list(d.keys.hot(ref, "sim:a")) == ["1:0:5:1"]
    assert d.list(d.keys.hot(ref, "sim:b")) == ["2:0:6:1"]
    assert d.runs.lanes(ref) == {"sim:fast", "sim:a", "sim:b"}


def test_a_deferred_job_is_queued_first_or_after_its_delay(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=4)
    now, later, _ = d.start(ref, 3)
    d.dirty()
    d.defer(now)
    assert "sim:fast|search/r1" in d.dirty()
    d.defer(later, delay_ms=1000, cost="attempt")
    assert d.list(d.keys.hot(ref, "sim:fast")) == ["0:0:10:0"]
    assert d.next_due_ms() == d.now_ms + 1000
    d.advance(999)
    assert d.promote() == 0
    [waiting] = d.runs.delayed(d.now_ms + 1)
    assert (waiting.ref, waiting.lane, waiting.entry) == (ref, "sim:fast", "1:0:10:0")
    assert not d.runs.promote(waiting, d.now_ms)
    d.advance(1)
    assert d.promote() == 1
    assert not d.runs.promote(waiting, d.now_ms)
    assert d.list(d.keys.hot(ref, "sim:fast")) == ["0:0:10:0", "1:0:10:0"]
    assert "sim:fast|search/r1" in d.dirty()
    assert (d.count(ref, "retries"), d.count(ref, "rate_limits")) == (1, 0)
    Books(real_redis, d.keys).check()


def test_a_delay_that_becomes_the_next_due_wakes_the_scheduler(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    first, second, third = d.start(d.queued_lane(), 3)
    with d.redis.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(d.keys.wake)
        heard.get_message(timeout=1)
        for attempt, delay_ms in ((first, 1000), (second, 2000), (third, 500)):
            d.defer(attempt, delay_ms=delay_ms)
        shown = 0
        while heard.get_message(timeout=0.2) is not None:
            shown += 1
    assert shown == 2


def test_a_lapsed_lease_can_be_taken(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2)
    attempt = d.start(ref)[0]
    d.advance(LEASE_MS - 1)
    assert d.leases.lapsed(d.now_ms) == []
    assert d.recover(attempt) == 0
    d.advance(1)
    [lease] = d.leases.lapsed(d.now_ms)
    assert (lease.attempt, lease.worker, lease.ref) == (attempt, "w1", ref)
    d.dirty()
    assert d.recover(lease.attempt) == 1
    assert d.dirty() == {"sim:fast|search/r1"}
    assert d.recover(lease.attempt) == 0
    assert d.list(d.keys.hot(ref, "sim:fast")) == ["0:0:10:0"]
    Books(real_redis, d.keys).check()


def test_only_a_dead_workers_leases_are_taken_at_once(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=6)
    mine, other = d.start(ref, 2, worker="w1"), d.start(ref, 2, worker="w2")
    unclaimed = d.take(ref, 1)
    assert {lease.attempt for lease in d.leases.of_worker("w1")} == set(mine)
    assert [d.recover(attempt, "w1") for attempt in (*mine, *other, *unclaimed)] == [1, 1, 0, 0, 0]
    assert d.leases.count() == 3


def test_a_lapsed_attempt_costs_one_only_if_it_was_claimed(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    for claimed, spent in ((False, 0), (True, 0), (False, 1), (True, 1)):
        attempt = d.take(ref)[0]
        if claimed:
            claim = d.claim(attempt)
            assert claim is not None
            assert claim.attempts == spent
        d.advance(LEASE_MS)
        assert d.recover(attempt) == 1


def test_a_job_that_kills_its_workers_fails_and_its_evaluations_are_skipped(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane()
    ref = d.submit(rows=1, judges=["sim:judge"])
    d.feed(ref, 1)
    answers = []
    for _ in range(3):
        attempt = d.start(ref)[0]
        answers.append(d.recover(attempt, "w1", 3, [RecordedJob(1, JobState.SKIPPED, "{}", "sim:judge")]))
    assert answers == [1, 1, 2]
    assert (d.count(ref, "n:failed"), d.count(ref, "n:skipped")) == (1, 1)
    assert d.state(ref)["state"] == "completed"
    Books(real_redis, d.keys).check()


def test_a_lease_without_a_record_is_swept(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    attempt = d.start(ref)[0]
    real_redis.hdel(d.keys.leased, attempt.id)
    d.advance(LEASE_MS)
    assert d.leases.lapsed(d.now_ms) == []
    assert d.leases.count() == 0


def test_runs_of_two_teams_may_have_the_same_name(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane()
    ours, theirs = d.submit(team="search"), d.submit(team="ads")
    for ref in (ours, theirs):
        d.feed(ref, 2)
    attempts = d.start(ours, 2) + d.start(theirs, 2, worker="w2")
    Books(real_redis, d.keys).check()
    for attempt, worker in zip(attempts, ["w1", "w1", "w2", "w2"], strict=True):
        assert d.finish(attempt, worker) is not None
    Books(real_redis, d.keys).check()


def test_a_late_report_reaches_the_run_it_names(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    attempt = d.start(ref)[0]
    d.cancel(ref)
    assert d.finish(attempt) is None
    assert d.count(ref, "late") == 1
    assert real_redis.pttl(d.keys.state(RunRef("search", "r1"))) > 0


@pytest.mark.parametrize("signal", ["ok", "limited", "server_error", "none"])
@pytest.mark.parametrize("ends", ["finish", "defer"])
def test_a_report_of_a_run_whose_state_is_lost_frees_its_place_on_the_lane(
    real_redis: Redis, ends: str, signal: Signal
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2, max_concurrency=1)
    (attempt,) = d.start(ref)
    real_redis.delete(d.keys.state(ref))

    assert getattr(d, ends)(attempt, signal=signal) is None, "it changes nothing of the run"

    assert not real_redis.exists(d.keys.state(ref), d.keys.leases, d.keys.leased)
    assert real_redis.hget(d.keys.lane("sim:fast"), "inflight") == b"0"


def test_a_job_that_is_queued_twice_ends_once(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2)
    queue = d.keys.fresh(ref, "sim:fast")
    entries = d.redis.lrange(queue, 0, -1)
    d.redis.lpush(queue, entries[0])
    twice = d.start(ref, 2)
    assert {attempt.job for attempt in twice} == {0}
    for attempt in twice:
        d.finish(attempt)
    assert d.redis.lrange(d.keys.finished(ref), 0, -1) == [b"0"]
    counts = d.redis.hmget(d.keys.state(ref), "items_done", "jobs_done", "in_flight", "state")
    assert counts == [b"1", b"1", b"0", b"running"]
