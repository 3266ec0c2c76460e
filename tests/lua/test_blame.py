"""Whose fault a failure is: the lane's until a call that started later is answered, then the job's."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.decision import Cost, Defer
from fairlane.model.job import Attempt, Feedback, JobState, Reported, Signal
from fairlane.model.run import RunRef
from tests.support.deployment import LEASE_MS, Deployment
from tests.support.redis import emptied

FORMS: dict[str, tuple[Signal, Cost]] = {
    "refused connection": ("broken", "unproven"),
    "500": ("server_error", "unproven"),
    "overload": ("overloaded", "nothing"),
    "429": ("limited", "nothing"),
    "flawed answer": ("answered", "attempt"),
}
MAX_ATTEMPTS = 3
APART_MS = 100
"""More than calls are apart on a lane in doubt."""


def _fail(d: Deployment, attempt: Attempt, form: str = "500", max_attempts: int = 0) -> Reported:
    signal, cost = FORMS[form]
    reported = d.defer(attempt, signal=signal, cost=cost, max_attempts=max_attempts)
    assert reported is not None
    return reported


def _next(d: Deployment, ref: RunRef) -> tuple[Attempt, int, int]:
    """The run's next attempt, with the attempts and unproven failures of its job."""
    d.advance(APART_MS)
    attempt = d.take(ref, 1)[0]
    claim = d.claim(attempt)
    assert claim is not None
    return attempt, claim.attempts, claim.unproven


def test_a_failure_costs_no_attempt_while_no_call_is_answered(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    for failures in range(4):
        attempt, attempts, unproven = _next(d, ref)
        assert (attempts, unproven) == (0, failures)
        d.advance(100)
        assert not _fail(d, attempt, max_attempts=MAX_ATTEMPTS).exhausted
        d.advance(100)


def test_an_answer_to_a_later_call_charges_a_failure_to_its_job(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2)
    failing, other = d.start(ref, 2)
    _fail(d, failing)
    d.finish(other)
    assert _next(d, ref)[1:] == (1, 0)


@pytest.mark.parametrize("answered_first", [True, False])
def test_an_answer_to_a_call_that_started_before_proves_nothing(
    real_redis: Redis, answered_first: bool
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2)
    other, failing = d.start(ref, 2)
    if answered_first:
        d.finish(other)
    _fail(d, failing)
    if not answered_first:
        d.finish(other)
    assert _next(d, ref)[1:] == (0, 1)


def test_an_overload_costs_no_attempt_even_if_others_are_answered(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=5)
    failing, *others = d.start(ref, 5)
    for other in others:
        _fail(d, failing, "overload", max_attempts=1)
        d.finish(other)
        d.advance(10_000)
        failing, attempts, unproven = _next(d, ref)
        assert (attempts, unproven) == (0, 0)


def test_a_row_that_no_call_can_serve_ends_while_others_are_answered(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=20)
    failing = d.start(ref)[0]
    poisoned = failing.job
    exhausted: list[int] = []
    while not exhausted or not exhausted[-1]:
        d.advance(100)
        exhausted.append(_fail(d, failing, max_attempts=MAX_ATTEMPTS).exhausted)
        if not exhausted[-1]:
            failing = _next(d, ref)[0]
            assert failing.job == poisoned
            d.finish(_next(d, ref)[0])
    assert exhausted == [0, 0, MAX_ATTEMPTS]
    assert d.lease(failing) is not None
    assert d.finish(failing, signal="server_error", state=JobState.FAILED) is not None


def test_a_report_that_exhausts_a_job_changes_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=3)
    attempt = d.start(ref)[0]
    before = (d.lane_state(), d.state(ref), d.lease(attempt), d.hash(d.keys.jobs(ref)))
    reported = _fail(d, attempt, "flawed answer", max_attempts=1)
    assert (reported.exhausted, reported.in_flight, reported.finished) == (1, 1, False)
    assert (d.lane_state(), d.state(ref), d.lease(attempt), d.hash(d.keys.jobs(ref))) == before


def test_a_job_whose_workers_die_keeps_its_unproven_failures(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2)
    _fail(d, d.start(ref)[0])
    lost = _next(d, ref)[0]
    d.advance(LEASE_MS)
    assert d.recover(lost) == 1
    assert _next(d, ref)[1:] == (1, 1)


def test_a_deadline_of_the_runs_own_always_costs_an_attempt(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    feedback = Feedback("broken", deadline_ms=1)
    exhausted = []
    for _ in range(MAX_ATTEMPTS):
        call = d.attempts.defer(
            _next(d, ref)[0],
            "w1",
            Defer(feedback, cost="unproven", max_attempts=MAX_ATTEMPTS),
            now_ms=d.now_ms,
        )
        reported = Reported.of(call.run(real_redis))
        assert reported is not None
        exhausted.append(reported.exhausted)
    assert exhausted == [0, 0, MAX_ATTEMPTS]


def _into_an_outage(d: Deployment, ref: RunRef, failures: int) -> None:
    """So many calls of a run's only job fail, until its lane is down and beyond."""
    for _ in range(failures):
        d.advance(60_000)
        (attempt,) = d.start(ref)
        _fail(d, attempt, max_attempts=MAX_ATTEMPTS)


def test_an_outage_costs_a_job_no_attempt_once_it_is_over(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    _into_an_outage(d, ref, 8)
    assert d.lane_state()["circuit"] == "open"
    other = d.submit(run="r2", rows=3)
    d.feed(other, 3)
    d.advance(60_000)
    d.finish(_next(d, other)[0])
    d.advance(1000)
    d.finish(_next(d, other)[0])
    attempt, attempts, unproven = _next(d, ref)
    assert (attempts, unproven) == (0, 0)
    d.finish(_next(d, other)[0])
    assert _fail(d, attempt, max_attempts=MAX_ATTEMPTS).exhausted == 0
    assert _next(d, ref)[1:] == (1, 0)


def test_a_failure_before_a_lanes_last_answer_is_no_part_of_the_outage_after_it(
    real_redis: Redis,
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    other, third = d.submit(run="r2", rows=1), d.submit(run="r3", rows=2)
    d.feed(other, 1)
    d.feed(third, 2)
    _fail(d, _next(d, ref)[0])
    d.finish(_next(d, other)[0])
    _into_an_outage(d, third, 5)
    d.advance(60_000)
    d.finish(d.start(third)[0])
    assert _next(d, ref)[1:] == (1, 0)


@pytest.mark.parametrize("failures", [3, 4])
def test_a_job_never_uses_more_attempts_than_configured(real_redis: Redis, failures: int) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    _into_an_outage(d, ref, failures)
    other = d.submit(run="r2", rows=1)
    d.feed(other, 1)
    d.advance(60_000)
    d.finish(_next(d, other)[0])
    attempt, attempts, _ = _next(d, ref)
    assert attempts == failures, "too few for the circuit to open: they are the job's"
    assert _fail(d, attempt, max_attempts=MAX_ATTEMPTS).exhausted == MAX_ATTEMPTS


@dataclass
class _Job:
    """What a job must have spent: attempts, and the starts of failures that are not proven yet."""

    attempts: int = 0
    unproven: tuple[int, ...] = ()

    def prove(self, answered: int, outage: tuple[int, int]) -> None:
        """``outage``: the last call answered before it, and the probe that ended it."""
        if self.unproven and (last := max(self.unproven)) < answered:
            cost = 0 if outage[0] < last < outage[1] else len(self.unproven)
            self.attempts, self.unproven = self.attempts + cost, ()


STEPS = st.lists(
    st.tuples(st.sampled_from(["start", "start", "answer", *FORMS]), st.integers(0, 5), st.integers(0, 400)),
    max_size=60,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_attempts_count_exactly_the_failures_that_a_later_answer_has_proven(
    real_redis: Redis, steps: list[tuple[str, int, int]]
) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=40)
    jobs: dict[int, _Job] = {}
    flying: list[tuple[int, Attempt]] = []  # by the number of the start
    started, answered, outage = 0, 0, (0, 0)
    for act, which, wait_ms in steps:
        d.advance(wait_ms)
        if act == "start":
            for attempt in d.take(ref, 1):
                job, started = jobs.setdefault(attempt.job, _Job()), started + 1
                claim = d.claim(attempt)
                job.prove(answered, outage)
                assert claim is not None
                assert (claim.attempts, claim.unproven) == (job.attempts, len(job.unproven))
                flying.append((started, attempt))
        elif flying:
            number, attempt = flying.pop(which % len(flying))
            if act == "answer":
                lease = d.lease(attempt)
                d.finish(attempt)
                if lease is not None and lease.get("probe"):
                    outage = (answered, number)
                answered = max(answered, number)
                continue
            job, cost = jobs[attempt.job], FORMS[act][1]
            job.prove(answered, outage)
            if cost == "unproven":
                job.unproven += (number,)
                job.prove(answered, outage)
            elif cost == "attempt":
                job.attempts += 1
            assert _fail(d, attempt, act).exhausted == 0
