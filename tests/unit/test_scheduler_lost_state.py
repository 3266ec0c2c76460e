"""Redis loses keys of what is under way: every run ends, and no lane counts calls that are gone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import fakeredis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fairlane.model.ending import Completion
from fairlane.model.evaluators import Judge
from fairlane.model.job import Attempt, Feedback, JobState
from fairlane.model.outcome import Success
from fairlane.model.results import TaskResult
from fairlane.model.run import RunRef
from fairlane.model.tokens import Estimate, Usage
from fairlane.pipeline.completion import complete_without_row
from fairlane.pipeline.evaluations import FinishedJob
from fairlane.store.read.turn_reading import TurnReader
from fairlane.store.write.runs.lost_jobs import LostJobs
from fairlane_scheduler.state.backlog import ActiveRun
from fairlane_scheduler.upkeep import lost_state
from fairlane_scheduler.upkeep.lost_state import EVERY_MS, LOST, LostState
from tests.support.scheduler_parts import LEASE_MS, Parts

LANE = "sim:fast"
LOSSES: dict[str, Callable[[Parts, RunRef], object]] = {
    "queue": lambda parts, ref: parts.redis.delete(parts.keys.fresh(ref, LANE)),
    "leased": lambda parts, ref: parts.redis.delete(parts.keys.leased),
    "leases": lambda parts, ref: parts.redis.delete(parts.keys.leases),
    "delayed": lambda parts, ref: parts.redis.delete(parts.keys.delayed),
    "lane": lambda parts, ref: parts.redis.delete(parts.keys.lane(LANE)),
    "in_flight": lambda parts, ref: parts.redis.delete(parts.keys.in_flight(LANE)),
    "jobs": lambda parts, ref: parts.redis.delete(parts.keys.jobs(ref)),
    "run_lanes": lambda parts, ref: parts.redis.delete(parts.keys.run_lanes(ref)),
}


def watch(parts: Parts) -> LostState:
    jobs = LostJobs(parts.redis, parts.keys)
    return LostState(jobs, parts.runs, parts.lanes, parts.backlog, parts.loader, LEASE_MS)


def look(parts: Parts, state: LostState) -> None:
    """Let the time of a look pass in this leader's term, and look; leases are recovered meanwhile."""
    for seconds in (EVERY_MS / 1000, LEASE_MS / 1000):
        parts.clock.advance(seconds)
        parts.redis.hset(parts.keys.leader, "until_ms", parts.now_ms + 60_000)
        parts.recoverer.tick(parts.moment())
        parts.loader.refresh()
        state.tick(parts.moment(), parts.registry.names)


def start(parts: Parts, ref: RunRef, count: int, lane: str = LANE) -> list[Attempt]:
    attempts = parts.permits(ref, count, lane)
    for attempt in attempts:
        parts.attempts.claim(attempt, "w1", LEASE_MS, parts.now_ms).run(parts.redis)
    return attempts


def finish(parts: Parts, attempt: Attempt) -> None:
    payload = TaskResult(JobState.SUCCEEDED, output="yes").to_json()
    feedback = Feedback("ok", Usage(1, 1))
    call = parts.attempts.finish(
        attempt, "w1", feedback, Completion(JobState.SUCCEEDED, payload), parts.now_ms
    )
    call.run(parts.redis)


def end(parts: Parts, ref: RunRef) -> None:
    """Grant and end all jobs that the run has queued."""
    while count := parts.runs.queued(ref, [LANE])[LANE]:
        for attempt in start(parts, ref, count):
            finish(parts, attempt)


def has_ended(parts: Parts, ref: RunRef) -> bool:
    state = parts.state(ref)
    return state["state"] == "completed" and state["jobs_done"] == state["jobs"]


def test_it_asks_for_the_lanes_only_where_a_look_is_due(parts: Parts) -> None:
    state = watch(parts)
    state.tick(parts.moment(), parts.registry.names)
    state.tick(parts.moment(), lambda: pytest.fail("a look every second"))


def test_jobs_that_are_lost_with_their_queue_fail_and_say_so(parts: Parts) -> None:
    run = parts.admit(5)
    parts.feed_all()
    (first,) = start(parts, run.ref, 1)
    parts.redis.delete(parts.keys.fresh(run.ref, LANE))
    parts.backlog.set_queued(LANE, run.ref, 0)
    state = watch(parts)
    state.tick(parts.moment(), parts.registry.names)
    assert parts.state(run.ref)["jobs_done"] == "0", (
        "a call that holds a lease may end yet, and is waited for"
    )

    finish(parts, first)
    parts.clock.advance(EVERY_MS / 1000)
    parts.redis.hset(parts.keys.leader, "until_ms", parts.now_ms + 60_000)
    with capture_logs() as logs:
        state.tick(parts.moment(), parts.registry.names)

    assert has_ended(parts, run.ref)
    stored = parts.redis.hgetall(parts.keys.results(run.ref))
    results = {int(job): TaskResult.from_json(text.decode()) for job, text in stored.items()}
    assert {job: each.error for job, each in results.items()} == {0: None} | dict.fromkeys(range(1, 5), LOST)
    assert [line["jobs"] for line in logs if line["event"] == "jobs_lost"] == [4]


def test_a_lost_evaluation_fails_and_its_task_stays(parts: Parts) -> None:
    run = parts.admit(2, judges=["sim:judge"])
    parts.feed_all()
    for attempt in start(parts, run.ref, 2):
        finish(parts, attempt)  # as if what follows were lost with its queue
    parts.backlog.set_queued(LANE, run.ref, 0)

    look(parts, watch(parts))

    assert has_ended(parts, run.ref)
    counts = parts.state(run.ref)
    assert (counts["n:succeeded"], counts["n:failed"], counts["over:sim:judge"]) == ("2", "2", "2")


JUDGE = Judge(name="whole", model="sim:judge", level="session", template="?", choices={"yes": 1.0})


def finish_with_session(parts: Parts, run: ActiveRun, attempt: Attempt) -> None:
    membership = parts.loader.session_of(run.ref, run.plan, attempt.job // run.plan.spec.steps)
    answered = FinishedJob(Success("yes", Usage(1, 1)))
    done = complete_without_row(run.plan, attempt.job, answered, Estimate(0, 0), membership)
    feedback, now_ms = Feedback("ok", Usage(1, 1)), parts.now_ms
    call = parts.attempts.finish(attempt, "w1", feedback, done, now_ms)
    call.run(parts.redis)


@pytest.mark.parametrize("lost", ["hot", "run_lanes", "sessions", "both"])
def test_a_lost_evaluation_of_a_session_fails_and_its_rows_stay(parts: Parts, lost: str) -> None:
    rows = [{"q": n, "s": n % 2} for n in range(5)]
    run = parts.admit(rows, session_field="s", sessions=2, evaluators=(JUDGE,))
    parts.feed_all()
    attempts = start(parts, run.ref, 5)
    for attempt in attempts[:2]:
        finish_with_session(parts, run, attempt)
    if lost in ("sessions", "both"):
        parts.redis.delete(parts.keys.sessions(run.ref))  # of what is counted so far
    for attempt in attempts[2:]:
        finish_with_session(parts, run, attempt)
    if lost in ("hot", "both"):
        parts.redis.delete(parts.keys.hot(run.ref, "sim:judge"))
    parts.redis.delete(parts.keys.run_lanes(run.ref))
    parts.backlog.set_queued(LANE, run.ref, 0)

    look(parts, watch(parts))

    if lost == "run_lanes":
        assert not has_ended(parts, run.ref), "its evaluations are queued"
        for attempt in start(parts, run.ref, 2, "sim:judge"):
            finish(parts, attempt)
    assert has_ended(parts, run.ref)
    counts = parts.state(run.ref)
    assert counts["n:succeeded"] == ("7" if lost == "run_lanes" else "5")
    assert counts.get("n:failed", "0") == ("2" if lost == "hot" else "0")
    assert counts.get("n:skipped", "0") == ("2" if lost in ("sessions", "both") else "0")


@pytest.mark.parametrize("judges", [(), ("sim:judge",), ("sim:judge", LANE)])
@pytest.mark.parametrize("lost", ["done", "done and queue"])
def test_each_job_has_one_record_where_the_bitmap_of_ended_jobs_is_lost(
    parts: Parts, judges: tuple[str, ...], lost: str
) -> None:
    run, lanes = parts.admit(6, judges=judges), sorted({LANE, *judges})
    parts.feed_all()
    held = start(parts, run.ref, 6)
    for attempt in held[:3]:
        finish_with_session(parts, run, attempt)
    parts.redis.delete(parts.keys.done(run.ref))
    if lost == "done and queue":
        parts.redis.delete(parts.keys.hot(run.ref, "sim:judge"))
    for attempt in held[3:]:
        finish_with_session(parts, run, attempt)
    state = watch(parts)
    for _ in range(4):
        for lane in lanes:
            if count := parts.runs.queued(run.ref, [lane])[lane]:
                for attempt in start(parts, run.ref, count, lane):
                    finish_with_session(parts, run, attempt)
            parts.backlog.set_queued(lane, run.ref, 0)
        look(parts, state)
    assert has_ended(parts, run.ref)
    counts, steps = parts.state(run.ref), 1 + len(judges)
    assert counts["items_done"] == "6"
    assert int(counts.get("pending", 0)) == 0
    lost_judges = 3 if "sim:judge" in judges and lost == "done and queue" else 0
    assert (counts["n:succeeded"], int(counts.get("n:failed", 0))) == (
        str(6 * steps - lost_judges),
        lost_judges,
    )
    assert sorted(parts.redis.lrange(parts.keys.finished(run.ref), 0, -1)) == [b"%d" % n for n in range(6)]


def test_a_lost_item_that_goes_first_fails_and_the_next_one_follows(parts: Parts) -> None:
    run = parts.admit([{"q": n, "first": n % 2 > 0} for n in range(6)], order={"serial_field": "first"})
    state = watch(parts)
    for _ in range(6):
        parts.feed_all()
        for part in (parts.keys.fresh, parts.keys.hot):
            parts.redis.delete(part(run.ref, LANE))
        parts.backlog.set_queued(LANE, run.ref, 0)
        look(parts, state)
        run.may_feed_next = True
    assert has_ended(parts, run.ref)
    assert parts.state(run.ref)["n:failed"] == "6"


def test_an_item_that_goes_second_is_not_lost_while_none_is_handed_out(parts: Parts) -> None:
    run = parts.admit([{"q": n, "first": n < 1} for n in range(3)], order={"serial_field": "first"})
    parts.feed_all()
    for attempt in start(parts, run.ref, 1):
        finish(parts, attempt)
    parts.backlog.set_queued(LANE, run.ref, 0)
    parts.redis.hset(parts.keys.state(run.ref), "cursor", 2)  # it has looked at the second
    watch(parts).tick(parts.moment(), parts.registry.names)
    assert parts.state(run.ref)["jobs_done"] == "1"


@pytest.mark.parametrize("waits", ["queued", "leased", "delayed", "paused", "unfed"])
def test_a_run_that_waits_for_something_loses_nothing(parts: Parts, waits: str) -> None:
    run = parts.admit(3)
    if waits != "unfed":
        parts.feed_all()
    if waits == "leased":
        start(parts, run.ref, 3)
    if waits == "delayed":
        parts.redis.zadd(parts.keys.delayed, {f"{run.ref}|0:1:1:0|{LANE}": parts.now_ms + 10**6})
        parts.redis.delete(parts.keys.fresh(run.ref, LANE))
    if waits == "paused":
        run.paused = True
        parts.redis.delete(parts.keys.fresh(run.ref, LANE))
    if waits != "queued":
        parts.backlog.set_queued(LANE, run.ref, 0)
    else:
        parts.backlog.set_queued(LANE, run.ref, 0)  # the scheduler missed that they are queued
    watch(parts).tick(parts.moment(), parts.registry.names)

    assert parts.state(run.ref)["jobs_done"] == "0"
    assert not parts.redis.exists(parts.keys.results(run.ref))


def test_nothing_is_failed_by_a_scheduler_that_leads_no_more(parts: Parts) -> None:
    run = parts.admit(3)
    parts.feed_all()
    parts.redis.delete(parts.keys.fresh(run.ref, LANE))
    parts.backlog.set_queued(LANE, run.ref, 0)
    moment = parts.moment()
    parts.depose()

    watch(parts).tick(moment, parts.registry.names)

    assert parts.state(run.ref)["jobs_done"] == "0"


def test_many_lost_jobs_fail_a_part_at_a_time(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_state, "JOBS_AT_ONCE", 4)
    run = parts.admit(10)
    parts.feed_all()
    parts.redis.delete(parts.keys.fresh(run.ref, LANE))
    parts.backlog.set_queued(LANE, run.ref, 0)
    state, done = watch(parts), []
    for _ in range(3):
        state.tick(parts.moment(), parts.registry.names)
        done.append(int(parts.state(run.ref)["jobs_done"]))

    assert done == [4, 8, 10]
    assert parts.backlog.get(run.ref) is None


@pytest.mark.parametrize("lost", ["leased", "lane", "in_flight"])
def test_a_lane_counts_the_calls_that_hold_a_lease(parts: Parts, lost: str) -> None:
    run = parts.admit(9)
    parts.feed_all()
    held = start(parts, run.ref, 5)
    LOSSES[lost](parts, run.ref)
    for attempt in held[:2]:
        finish(parts, attempt)

    watch(parts).tick(parts.moment(), parts.registry.names)

    left = 0 if lost == "leased" else 3
    assert int(parts.redis.hget(parts.keys.lane(LANE), "inflight") or 0) == left
    if lost != "in_flight":
        teams = parts.redis.hgetall(parts.keys.in_flight(LANE))
        assert teams == ({b"search": b"3"} if left else {})


def test_leases_without_a_deadline_get_one(parts: Parts) -> None:
    run = parts.admit(3)
    parts.feed_all()
    start(parts, run.ref, 3)
    parts.redis.delete(parts.keys.leases)

    watch(parts).tick(parts.moment(), parts.registry.names)
    assert parts.leases.count() == 3
    look(parts, watch(parts))

    assert parts.leases.count() == 0
    assert parts.runs.queued(run.ref, [LANE]) == {LANE: 3}


def test_counts_of_two_runs_whose_sum_is_right_are_corrected_too(parts: Parts) -> None:
    runs = [parts.admit(4).ref, parts.admit(4, run="r2").ref]
    parts.feed_all()
    for ref in runs:
        start(parts, ref, 2)
    for ref, wrong in zip(runs, (1, 3), strict=True):
        parts.redis.hset(parts.keys.state(ref), "in_flight", wrong)
    with capture_logs() as logs:
        watch(parts).tick(parts.moment(), parts.registry.names)
    assert [line["runs"] for line in logs if line["event"] == "runs_recounted"] == [2]
    assert [parts.state(ref)["in_flight"] for ref in runs] == ["2", "2"]


@pytest.mark.parametrize("lost", [1, 3])
def test_a_runs_bounds_count_the_calls_that_hold_a_lease(parts: Parts, lost: int) -> None:
    """Else a run with lost calls in all of its places would stand for good."""
    run, other = parts.admit(9, bounds={"max_concurrent": 3}), parts.admit(4, run="r2")
    parts.feed_all()
    start(parts, run.ref, 3)
    kept = start(parts, other.ref, 2)
    gone = [each for each in parts.redis.hkeys(parts.keys.leased) if each.startswith(str(run.ref).encode())]
    parts.redis.hdel(parts.keys.leased, *gone[:lost])
    with capture_logs() as logs:
        watch(parts).tick(parts.moment(), parts.registry.names)
    assert [line["runs"] for line in logs if line["event"] == "runs_recounted"] == [1]
    assert [parts.state(ref)["in_flight"] for ref in (run.ref, other.ref)] == [str(3 - lost), str(len(kept))]
    assert parts.state(run.ref)["tasks_in_flight"] == str(3 - lost)
    assert len(start(parts, run.ref, lost)) == lost


def test_a_writer_learns_of_rows_that_were_fed_though_redis_has_lost_which(parts: Parts) -> None:
    """It writes no further while none of its rows is fed."""
    order = {"turns": True, "conversation": True, "conversation_field": "who"}
    run = parts.admit([{"who": n} for n in range(4)], order=order, open=True)
    parts.feed_all()
    end(parts, run.ref)
    parts.backlog.set_queued(LANE, run.ref, 0)
    parts.redis.delete(parts.keys.fed(run.ref))
    reader = TurnReader(parts.redis, parts.keys)
    assert reader.handed_rows(run.ref, run.plan.spec).first == 0
    look(parts, watch(parts))
    assert reader.handed_rows(run.ref, run.plan.spec) == (4, 4)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    acts=st.lists(
        st.one_of(
            st.sampled_from(sorted(LOSSES)),
            st.integers(0, 3).map(lambda count: ("start", count)),
            st.just("finish"),
        ),
        max_size=12,
    )
)
def test_whatever_is_lost_every_job_ends_once_and_no_count_stays(acts: list[str | tuple[str, int]]) -> None:
    parts = Parts(fakeredis.FakeRedis())
    run = parts.admit(8)
    parts.feed_all()
    held: list[Attempt] = []
    for act in acts:
        if isinstance(act, tuple):
            held += start(parts, run.ref, min(act[1], parts.runs.queued(run.ref, [LANE])[LANE]))
        elif act == "finish":
            for attempt in held[:1]:
                finish(parts, attempt)
            held = held[1:]
        else:
            LOSSES[act](parts, run.ref)
    state = watch(parts)
    for _ in range(4):
        look(parts, state)
        if parts.backlog.get(run.ref) is not None:
            end(parts, run.ref)
            parts.backlog.set_queued(LANE, run.ref, 0)
    look(parts, state)

    assert has_ended(parts, run.ref)
    assert len(parts.redis.hgetall(parts.keys.results(run.ref))) == 8
    assert int(parts.redis.hget(parts.keys.lane(LANE), "inflight") or 0) == 0
    assert parts.leases.count() == parts.redis.hlen(parts.keys.leased) == 0
    assert parts.state(run.ref)["in_flight"] == "0"


def test_a_look_at_many_runs_renews_the_lease_between_them(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        parts.admit(1, run=f"r{number}")
    renewed_ms = [parts.clock.monotonic_ms()]

    def checked(*_: object) -> int:
        parts.clock.advance(0.6)
        return 0

    state = watch(parts)
    monkeypatch.setattr(state, "_fail", checked)
    state.tick(parts.moment(), parts.registry.names, lambda: renewed_ms.append(parts.clock.monotonic_ms()))
    gaps = [after - before for before, after in pairwise([*renewed_ms, parts.clock.monotonic_ms()])]
    assert sum(gaps) == 3000
    assert max(gaps) == 600
