"""Jobs that fail without a call: only while their cause lasts, from wherever they wait, and once."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.ending import RecordedJob
from fairlane.model.job import Attempt
from fairlane.model.run import RunRef
from fairlane.model.tokens import Entry, Unkept, Usage
from fairlane.store.write.runs.runs import Delayed
from fairlane.store.write.runs.uncalled_jobs import Cause, Spent, UncalledJobs
from tests.support.deployment import FOREVER_MS, SPENT, Deployment
from tests.support.redis import emptied

LANE = "sim:fast"
APART_MS = 60_001
"""More than a lane waits between two probes."""


@dataclass(frozen=True, slots=True)
class Failing:
    """The completion of a job that is not called."""

    payload: str = SPENT
    follow: tuple[RecordedJob, ...] = ()
    session: None = None


def delayed(d: Deployment) -> list[Delayed]:
    return d.runs.delayed(FOREVER_MS * 100)


def fail_delayed(d: Deployment, job: Delayed, cause: Cause, down_ms: int | None = None) -> int:
    jobs = UncalledJobs(d.redis, d.keys)
    return jobs.fail_delayed(job, cause, Failing(), d.epoch, d.now_ms, down_ms=down_ms)


def fail_queued(d: Deployment, ref: RunRef, cause: Cause, down_ms: int | None = None) -> int:
    jobs = UncalledJobs(d.redis, d.keys)
    found = jobs.first_queued(ref, LANE, 1)
    if not found:
        return 0
    queue, text, _ = found[0]
    return jobs.fail(ref, LANE, queue, text, cause, Failing(), d.epoch, d.now_ms, down_ms=down_ms)


def down_ms(d: Deployment) -> int | None:
    return d.lanes.failures([LANE])[LANE].down_ms


def lose(d: Deployment, attempt: Attempt) -> None:
    d.defer(attempt, signal="server_error", reason="broken", cost="unproven", delay_ms=1000)


def test_a_job_whose_failures_no_answer_refutes_fails_while_it_waits(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    lose(d, d.start(ref)[0])
    (job,) = delayed(d)
    assert fail_delayed(d, job, "unanswered") == 2
    assert (delayed(d), d.state(ref)["state"]) == ([], "completed")
    assert fail_delayed(d, job, "unanswered") == 0


def test_an_answer_to_a_later_call_ends_the_cause(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2)
    first, later = d.start(ref, 2)
    lose(d, first)
    d.finish(later)
    (job,) = delayed(d)
    assert fail_delayed(d, job, "unanswered") == 0
    assert delayed(d) == [job]


@pytest.mark.parametrize("wrong", ["epoch", "down_ms", "cause"])
def test_nothing_fails_for_another_outage_or_by_another_leader(real_redis: Redis, wrong: str) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1, outage_failures=1)
    lose(d, d.start(ref)[0])
    (job,), since = delayed(d), down_ms(d)
    assert since is not None
    if wrong == "epoch":
        d.epoch -= 1
    cause: Cause = "refusals" if wrong == "cause" else "outage"
    assert fail_delayed(d, job, cause, since + 1 if wrong == "down_ms" else since) == 0
    assert delayed(d) == [job]


def test_counts_are_read_as_they_are_written(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    attempt = d.start(ref)[0]
    usage = Usage(7, 3, 1)
    d.defer(attempt, signal="server_error", cost="unproven", used=usage, delay_ms=1, handle=None)
    d.advance(1)
    d.promote()
    began_ms = d.now_ms - 1
    d.advance(100)
    d.defer(d.start(ref)[0], signal="broken", cost="unproven", delay_ms=1)
    (spent,) = UncalledJobs(d.redis, d.keys).spent(delayed(d))
    assert spent == Spent(0, 2, 2, began_ms, Unkept(1, usage))


@pytest.mark.parametrize(
    ("text", "spent"),
    [
        (None, Spent()),
        (b"3:2:1", Spent(2)),
        (b"3:2:1:h", Spent(2)),
        (b"3:0:0::2:9:0:0:0", Spent(0, 2, 9)),
        (b"3:0:0:h:2:9:0:0:0:0:0:0:0", Spent(0, 2, 9)),
        (b"3:0:0::2:9:1:4:0:0:0:0:0:77", Spent(0, 2, 9, 77)),
    ],
)
def test_counts_of_earlier_versions_are_read(text: bytes | None, spent: Spent) -> None:
    assert Spent.parse(text) == spent


def test_each_delayed_job_is_on_a_page(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    members = {f"search/r1|{job}:10:0:0|{LANE}": job for job in range(5000)}
    d.redis.zadd(d.keys.delayed, members)
    jobs, found = UncalledJobs(d.redis, d.keys), set[str]()
    cursor, page = jobs.some_delayed(0)
    while cursor:
        found |= {job.member for job in page}
        cursor, page = jobs.some_delayed(cursor)
    assert found | {job.member for job in page} == set(members)


@dataclass
class Model:
    """What the lane and each job have met: permits count up, so a later answer has the greater number."""

    answered_n: int = 0
    last_n: dict[int, int] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)


STEPS = st.lists(
    st.sampled_from(["start", "lose", "answer", "fail unanswered", "fail outage", "fail queued", "promote"]),
    min_size=5,
    max_size=60,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(STEPS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_a_job_is_in_one_queue_and_fails_only_while_its_cause_lasts(
    real_redis: Redis, steps: list[str], failures: int, rng: object
) -> None:
    d, model, jobs = Deployment(emptied(real_redis)), Model(), 6
    ref = d.queued_lane(jobs=jobs, outage_failures=failures)
    flying = list[Attempt]()
    for step in steps:
        waiting, out, since = delayed(d), None, down_ms(d)
        number = {job.member: Entry.parse(job.entry).job for job in waiting}
        match step.split():
            case ["start"]:
                d.advance(APART_MS // 60)
                taken = d.take(ref, 1)
                flying += [each for each in taken if d.claim(each)]
            case ["lose"] if flying:
                attempt = flying.pop(rng.randrange(len(flying)))  # type: ignore[attr-defined]
                lease = d.lease(attempt)
                assert lease is not None
                lose(d, attempt)
                model.last_n[attempt.job] = max(model.last_n.get(attempt.job, 0), int(str(lease["n"])))
            case ["answer"] if flying:
                attempt = flying.pop(rng.randrange(len(flying)))  # type: ignore[attr-defined]
                lease = d.lease(attempt)
                assert lease is not None
                d.finish(attempt)
                model.answered_n = max(model.answered_n, int(str(lease["n"])))
                model.over.add(attempt.job)
            case ["fail", "unanswered"] if waiting:
                job = waiting[0]
                out = fail_delayed(d, job, "unanswered")
                assert (out > 0) == (model.last_n[number[job.member]] > model.answered_n)
                model.over |= {number[job.member]} if out else set()
            case ["fail", "outage"] if waiting:
                out = fail_delayed(d, waiting[0], "outage", since)
                assert (out > 0) == (since is not None)
                model.over |= {number[waiting[0].member]} if out else set()
            case ["fail", "queued"]:
                found = UncalledJobs(d.redis, d.keys).first_queued(ref, LANE, 1)
                out = fail_queued(d, ref, "outage", since)
                assert (out > 0) == (since is not None and bool(found))
                model.over |= {Entry.parse(found[0].entry).job} if out else set()
            case ["promote"]:
                d.advance(1000)
                d.promote()
        queues = [d.keys.hot(ref, LANE), d.keys.fresh(ref, LANE)]
        queued = [Entry.parse(each.decode()).job for key in queues for each in d.redis.lrange(key, 0, -1)]
        places = [
            *queued,
            *(Entry.parse(job.entry).job for job in delayed(d)),
            *(each.job for each in flying),
        ]
        assert sorted([*places, *model.over]) == list(range(jobs)), step
        assert int(d.state(ref)["jobs_done"]) == len(model.over)
