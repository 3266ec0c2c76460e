"""Recovery: lapsed leases and dead workers give their jobs back; nobody alive loses anything."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from fairlane.model.decision import RetryPolicy
from fairlane.model.job import Attempt, JobState
from fairlane.model.results import JudgeResult, TaskResult
from fairlane.model.run import RunRef
from fairlane.store.write.leases import Lease
from fairlane.store.write.workers import WorkerInfo
from fairlane_scheduler.upkeep import recoverer as recovering
from fairlane_scheduler.upkeep.recoverer import EVERY_MS, IDLE_MS, KILLED
from tests.support.scheduler_parts import LEASE_MS, WORKER_TIMEOUT_MS, Parts


def lease(
    parts: Parts, ref: RunRef, count: int, worker: str | None = "w1", lane: str = "sim:fast"
) -> list[Attempt]:
    """Permits of a run's next jobs, claimed by ``worker`` unless that is ``None``."""
    attempts = parts.permits(ref, count, lane)
    for attempt in attempts:
        if worker is not None:
            parts.attempts.claim(attempt, worker, LEASE_MS, parts.now_ms).run(parts.redis)
    return attempts


def beat(parts: Parts, worker: str, held: list[Attempt] | None = None) -> list[bytes]:
    info = WorkerInfo(worker, 10, ("sim:fast",), "0", 1, "host", 0)
    ids = [attempt.id for attempt in held or []]
    lost: list[bytes] = parts.workers.beat(
        worker, info, ids, LEASE_MS, changed=False, now_ms=parts.now_ms
    ).run(parts.redis)
    return lost


def pass_time(parts: Parts, seconds: float) -> int:
    """Let time pass in this leader's term, and look if it is due; milliseconds until the next look."""
    parts.clock.advance(seconds)
    parts.redis.hset(parts.keys.leader, "until_ms", parts.now_ms + 60_000)
    if parts.clock.monotonic_ms() >= parts.recoverer.due_ms:
        parts.recoverer.tick(parts.moment())
    return parts.recoverer.due_ms - parts.clock.monotonic_ms()


def test_a_lapsed_lease_puts_its_job_back(parts: Parts) -> None:
    run = parts.admit(3)
    parts.feed_all()
    attempt = lease(parts, run.ref, 1)[0]

    with capture_logs() as logs:
        pass_time(parts, LEASE_MS / 1000)

    assert parts.redis.lrange(parts.keys.hot(run.ref, "sim:fast"), 0, -1)[0].startswith(b"0:")
    assert parts.leases.count() == 0
    lines = [line for line in logs if line["event"] == "lease_recovered"]
    assert [(line["job"], line["attempt"], line["worker"], line["failed"]) for line in lines] == [
        (0, attempt.number, "w1", False)
    ]


def test_a_lease_that_is_kept_is_not_touched(parts: Parts) -> None:
    run = parts.admit(3)
    parts.feed_all()
    held = lease(parts, run.ref, 2)
    for _ in range(30):
        beat(parts, "w1", held)
        pass_time(parts, 1)

    assert parts.leases.count() == 2


def test_a_lease_that_is_renewed_after_it_was_read_is_not_reported_as_recovered(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = parts.admit(3)
    parts.feed_all()
    held = lease(parts, run.ref, 1)
    lapsed = parts.recoverer._leases.lapsed

    def renewed(now_ms: int, most: int) -> list[Lease]:
        found = lapsed(now_ms, most)
        beat(parts, "w1", held)
        return found

    monkeypatch.setattr(parts.recoverer._leases, "lapsed", renewed)
    with capture_logs() as logs:
        pass_time(parts, LEASE_MS / 1000)
    assert [line["event"] for line in logs if line["event"] == "lease_recovered"] == []
    assert parts.leases.count() == 1


def test_all_leases_of_a_dead_worker_come_back_long_before_they_lapse(parts: Parts) -> None:
    run = parts.admit(6)
    parts.feed_all()
    dead, alive = lease(parts, run.ref, 3, "dead"), lease(parts, run.ref, 2, "alive")
    beat(parts, "dead", dead)
    with capture_logs() as logs:
        for _ in range(WORKER_TIMEOUT_MS // 1000 + 1):
            beat(parts, "alive", alive)
            pass_time(parts, 1)

    assert {found.worker for found in parts.leases.of_worker("alive")} == {"alive"}
    assert parts.leases.of_worker("dead") == []
    assert [each.worker for each in parts.workers.beats(parts.redis)] == ["alive"]
    assert [(line["worker"], line["leases"]) for line in logs if line["event"] == "worker_lost"] == [
        ("dead", 3)
    ]


@pytest.mark.parametrize("returns", ["beats", "claims"])
def test_a_worker_that_is_back_while_its_leases_are_read_keeps_what_it_claims(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, returns: str
) -> None:
    run = parts.admit(6)
    parts.feed_all()
    lost, permitted = lease(parts, run.ref, 2, "w1"), parts.permits(run.ref, 1, "sim:fast")
    beat(parts, "w1", lost)
    of_worker = parts.recoverer._leases.of_worker

    def back(worker: str) -> list[Lease]:
        """The worker's first words after its silence come after the look at its beats."""
        parts.attempts.claim(permitted[0], "w1", LEASE_MS, parts.now_ms).run(parts.redis)
        if returns == "beats":
            beat(parts, "w1", [*lost, *permitted])
        return of_worker(worker)

    monkeypatch.setattr(parts.recoverer._leases, "of_worker", back)
    with capture_logs() as logs:
        pass_time(parts, WORKER_TIMEOUT_MS / 1000 + 1)

    kept = [*lost, *permitted] if returns == "beats" else permitted
    assert {found.attempt for found in parts.leases.of_worker("w1")} == set(kept)
    assert bool(parts.workers.beats(parts.redis)) == (returns == "beats")
    assert [line["event"] for line in logs if line["event"] == "worker_lost"] == (
        [] if returns == "beats" else ["worker_lost"]
    )


def test_a_worker_that_wakes_up_again_learns_what_it_lost(parts: Parts) -> None:
    run = parts.admit(3)
    parts.feed_all()
    held = lease(parts, run.ref, 2)
    beat(parts, "w1", held)
    pass_time(parts, WORKER_TIMEOUT_MS / 1000 + 1)

    assert sorted(beat(parts, "w1", held)) == sorted(attempt.id.encode() for attempt in held)


def test_an_attempt_that_nobody_claimed_costs_nothing(parts: Parts) -> None:
    run = parts.admit(1, retry=RetryPolicy(max_attempts=1))
    parts.feed_all()
    for _ in range(5):
        lease(parts, run.ref, 1, worker=None)
        pass_time(parts, LEASE_MS / 1000)

    assert parts.state(run.ref)["jobs_done"] == "0"


def test_a_task_past_its_budget_fails_and_its_judges_are_skipped(parts: Parts) -> None:
    run = parts.admit(1, judges=["sim:judge"], retry=RetryPolicy(max_attempts=2))
    parts.feed_all()
    for _ in range(2):
        lease(parts, run.ref, 1)
        pass_time(parts, LEASE_MS / 1000)

    stored = parts.redis.hgetall(parts.keys.results(run.ref))
    task, judge = TaskResult.from_json(stored[b"0"]), JudgeResult.from_json(stored[b"1"])
    assert (task.state, task.error, task.attempts) == (JobState.FAILED, KILLED, 2)
    assert judge.state is JobState.SKIPPED
    assert parts.state(run.ref)["state"] == "completed"


def test_a_judge_past_its_budget_fails_alone(parts: Parts) -> None:
    run = parts.admit(1, judges=["sim:judge"], retry=RetryPolicy(max_attempts=1))
    parts.redis.rpush(parts.keys.hot(run.ref, "sim:judge"), "1:4:16:1")
    lease(parts, run.ref, 1, lane="sim:judge")

    pass_time(parts, LEASE_MS / 1000)

    stored = parts.redis.hgetall(parts.keys.results(run.ref))
    assert set(stored) == {b"1"}
    assert JudgeResult.from_json(stored[b"1"]).error == KILLED


def test_a_run_that_is_not_in_the_backlog_is_recovered_by_its_plan(parts: Parts) -> None:
    run = parts.admit(2, judges=["sim:judge"], retry=RetryPolicy(max_attempts=3))
    parts.feed_all()
    lease(parts, run.ref, 1)
    parts.loader.forget(run.ref)

    pass_time(parts, LEASE_MS / 1000)

    assert parts.state(run.ref)["jobs_done"] == "0"
    assert parts.redis.llen(parts.keys.hot(run.ref, "sim:fast")) == 1


def test_a_run_whose_plan_cannot_be_read_loses_no_job(parts: Parts) -> None:
    run = parts.admit(2, retry=RetryPolicy(max_attempts=1))
    parts.feed_all()
    lease(parts, run.ref, 1)
    parts.loader.forget(run.ref)
    parts.redis.set(parts.keys.plan(run.ref), '{"spec":{"version":9}}')

    pass_time(parts, LEASE_MS / 1000)

    assert parts.state(run.ref)["jobs_done"] == "0"
    assert parts.redis.llen(parts.keys.hot(run.ref, "sim:fast")) == 1


def test_a_lease_of_a_run_that_is_gone_is_taken_away(parts: Parts) -> None:
    run = parts.admit(2)
    parts.feed_all()
    lease(parts, run.ref, 1)
    parts.loader.forget(run.ref)
    parts.redis.delete(parts.keys.state(run.ref), parts.keys.plan(run.ref))

    pass_time(parts, LEASE_MS / 1000)

    assert parts.leases.count() == 0


def test_nothing_is_recovered_before_living_workers_could_beat(parts: Parts) -> None:
    run = parts.admit(2)
    parts.feed_all()
    lease(parts, run.ref, 1)
    parts.clock.advance(LEASE_MS / 1000)
    parts.recoverer.wait_for_workers(parts.clock.monotonic_ms())

    assert pass_time(parts, WORKER_TIMEOUT_MS / 1000 - 0.001) == 1
    assert parts.leases.count() == 1

    pass_time(parts, 0.001)
    assert parts.leases.count() == 0


def test_a_deposed_leader_recovers_nothing(parts: Parts) -> None:
    run = parts.admit(2)
    parts.feed_all()
    lease(parts, run.ref, 1)
    parts.clock.advance(LEASE_MS / 1000)
    moment = parts.moment()
    parts.depose()

    parts.recoverer.tick(moment)

    assert parts.leases.count() == 1


def test_it_looks_often_while_something_is_leased_and_rarely_otherwise(parts: Parts) -> None:
    assert pass_time(parts, 60) == IDLE_MS
    run = parts.admit(2)
    parts.feed_all()
    lease(parts, run.ref, 1)

    assert pass_time(parts, 2) == EVERY_MS


def test_more_leases_than_one_look_takes_are_taken_at_once(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovering, "AT_ONCE", 2)
    run = parts.admit(5)
    parts.feed_all()
    lease(parts, run.ref, 5)

    assert pass_time(parts, LEASE_MS / 1000) == 0
    assert pass_time(parts, 0) == 0
    assert pass_time(parts, 0) == IDLE_MS
    assert parts.leases.count() == 0


def test_while_nothing_is_leased_it_only_counts_leases(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(parts.recoverer._leases, "lapsed", lambda now_ms, limit: asked.append(now_ms) or [])
    assert pass_time(parts, LEASE_MS / 1000) == IDLE_MS
    assert parts.recoverer.idle
    assert not asked
