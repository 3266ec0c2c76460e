"""How long tasks and evaluations wait and are called is the sum over jobs, whatever their order."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.decision import Defer
from fairlane.model.ending import Completion, ReadyJob
from fairlane.model.job import Attempt, Feedback, JobState
from fairlane.model.results import TaskResult
from fairlane.model.run import RunRef
from fairlane.model.run_status import RoleTime
from fairlane.model.tokens import Usage
from fairlane.store.run_queries import ROLE_TIME_FIELDS, RunFields, role_times
from tests.support.deployment import LEASE_MS, Deployment, entry

TASKS, JUDGES = "sim:fast", "sim:judge"
DONE = TaskResult(JobState.SUCCEEDED, "x").to_json()


def times(d: Deployment, ref: RunRef) -> tuple[RoleTime | None, RoleTime | None]:
    fields = RunFields(d.redis.hgetall(d.keys.state(ref)))
    return fields.role_time("task"), fields.role_time("eval")


def finish(d: Deployment, attempt: Attempt, *, judged: bool = False) -> None:
    follow = [ReadyJob(entry(attempt.job + 1, 10, 1), JUDGES)] if judged else []
    feedback = Feedback("ok", Usage())
    call = d.attempts.finish(
        attempt, "w1", feedback, Completion(JobState.SUCCEEDED, DONE, tuple(follow)), d.now_ms
    )
    assert call.run(d.redis) is not None


def judged_run(d: Deployment, rows: int) -> RunRef:
    d.lane(TASKS)
    d.lane(JUDGES)
    ref = d.submit(rows=rows, judges=(JUDGES,))
    d.feed(ref, rows, TASKS)
    return ref


def test_a_run_splits_its_time_into_waiting_and_calling_by_role(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = judged_run(d, 1)
    d.advance(2000)
    (task,) = d.start(ref)
    d.advance(500)
    assert times(d, ref) == (None, None)
    finish(d, task, judged=True)
    d.advance(100)
    (judge,) = d.start(ref, lane=JUDGES)
    d.advance(50)
    finish(d, judge)

    assert times(d, ref) == (RoleTime(1, 2.0, 0.5), RoleTime(1, 0.1, 0.05))
    assert role_times(d.redis.hmget(d.keys.state(ref), ROLE_TIME_FIELDS)) == {
        "predict_waiting_s": 2.0,
        "predict_calling_s": 0.5,
        "score_waiting_s": 0.1,
        "score_calling_s": 0.05,
    }


def test_a_call_that_is_repeated_counts_as_two_and_waits_between_them(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane(TASKS)
    ref = d.submit(rows=1)
    d.feed(ref, 1)
    (first,) = d.start(ref)
    d.advance(300)
    assert d.attempts.defer(first, "w1", Defer(Feedback("none")), now_ms=d.now_ms).run(d.redis) is not None
    d.advance(1000)
    (second,) = d.start(ref)
    d.advance(400)
    finish(d, second)

    assert times(d, ref) == (RoleTime(2, 1.0, 0.7), None)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ends=st.lists(st.sampled_from(["unsent", "failed", "goes on", "lapsed"]), max_size=6))
def test_a_permit_that_was_not_used_and_a_call_that_goes_on_are_no_calls(
    real_redis: Redis, ends: list[str]
) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    d.lane(TASKS)
    ref = d.submit(rows=1)
    d.feed(ref, 1)
    sent, calling_ms, waited_ms = 1, 0, 0
    for end in [*ends, "ends"]:
        (attempt,) = d.start(ref)
        d.advance(100)
        calling_ms += 100 if end != "unsent" else 0
        sent += end in ("failed", "lapsed")
        if end == "ends":
            finish(d, attempt)
        elif end == "lapsed":
            d.advance(LEASE_MS)
            calling_ms += LEASE_MS
            assert d.recover(attempt, max_attempts=99)
        else:
            d.defer(attempt, sent=end != "unsent", handle="h" if end == "goes on" else None)
        waited_ms += 100 if end == "unsent" else 0

    assert times(d, ref) == (RoleTime(sent, waited_ms / 1000, calling_ms / 1000), None)


def test_jobs_that_a_cancel_cut_off_waited_until_then(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane(TASKS)
    ref = d.submit(rows=3)
    d.feed(ref, 3)
    (task,) = d.start(ref)
    d.advance(1000)
    finish(d, task)
    d.advance(500)
    d.cancel(ref)

    assert times(d, ref) == (RoleTime(1, 3.0, 1.0), None)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 6),
    acts=st.lists(st.tuples(st.sampled_from(["task", "judge", "end"]), st.integers(0, 3000)), max_size=40),
)
def test_the_sums_are_those_of_the_jobs(real_redis: Redis, rows: int, acts: list[tuple[str, int]]) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    ref = judged_run(d, rows)
    ready = {("task", 2 * item): d.now_ms for item in range(rows)}
    running: list[tuple[str, Attempt, int]] = []
    called, waited = {"task": 0, "eval": 0}, {"task": 0, "eval": 0}

    def act(what: str) -> None:
        if what == "end":
            if running:
                role, attempt, since_ms = running.pop(0)
                called[role] += d.now_ms - since_ms
                waited[role] += since_ms - ready[(role, attempt.job)]
                if role == "task":
                    ready[("eval", attempt.job + 1)] = d.now_ms
                finish(d, attempt, judged=role == "task")
            return
        role, lane = ("task", TASKS) if what == "task" else ("eval", JUDGES)
        for attempt in d.take(ref, 1, lane):
            d.claim(attempt)
            running.append((role, attempt, d.now_ms))

    for what, after_ms in acts:
        act(what)
        d.advance(after_ms)
    for what in ("task", "end") * rows + ("end",) * len(running) + ("judge", "end") * rows:
        act(what)
    for _ in range(4 * rows):
        act("end")
        act("judge")

    task, evaluation = times(d, ref)
    assert task == RoleTime(rows, waited["task"] / 1000, called["task"] / 1000)
    assert evaluation == RoleTime(rows, waited["eval"] / 1000, called["eval"] / 1000)
