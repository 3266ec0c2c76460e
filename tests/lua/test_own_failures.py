"""Failures where a lane answers nobody: an outage meets all jobs, bad rows have failed before."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.run import RunRef
from tests.support.deployment import Deployment
from tests.support.redis import emptied

QUIET_MS = 60_000


def _answered(d: Deployment, jobs: int) -> None:
    """So many jobs of another run are answered."""
    other = d.submit(run=f"answered{d.now_ms}", rows=jobs)
    d.feed(other, jobs)
    for attempt in d.start(other, jobs):
        d.finish(attempt)


def _flawed(d: Deployment, ref: RunRef, jobs: int) -> None:
    """So many jobs of a run fail while ten others are answered."""
    other = d.submit(run=f"beside{d.now_ms}", rows=10)
    d.feed(other, 10)
    failing, answered = d.start(ref, jobs), d.start(other, 10)
    for attempt in failing:
        d.defer(attempt, signal="server_error", cost="unproven")
    for attempt in answered:
        d.finish(attempt)


def _fail_next(d: Deployment, ref: RunRef) -> Attempt:
    """The run's next call fails as soon as the lane starts it."""
    attempt = d.start_next(ref, tries=100, step_ms=1000)
    d.defer(attempt, signal="server_error", cost="unproven")
    return attempt


def _attempts(d: Deployment, ref: RunRef, attempt: Attempt) -> int:
    return int(d.hash(d.keys.jobs(ref))[str(attempt.job)].split(":")[1])


def test_a_row_that_failed_before_costs_an_attempt_after_a_minute_without_answers(
    real_redis: Redis,
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    _answered(d, 100)
    _flawed(d, ref, 1)
    answered_ms, attempts = d.now_ms, []
    while not attempts or attempts[-1] < 3:
        failed = _fail_next(d, ref)
        attempts.append(_attempts(d, ref, failed))
        assert (attempts[-1] > 1) == (d.now_ms - answered_ms >= QUIET_MS)
    d.advance(1000)
    assert d.take(ref, 1)
    assert d.lane_state()["circuit"] == "closed"


def test_rows_that_fail_for_the_first_time_show_an_outage(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=5)
    _answered(d, 100)
    for _ in range(20):
        failed = _fail_next(d, ref)
        assert _attempts(d, ref, failed) == 0
    assert d.lane_state()["circuit"] != "closed"


def test_new_jobs_that_fail_show_an_outage_after_all(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    _answered(d, 100)
    _flawed(d, ref, 1)
    while _attempts(d, ref, _fail_next(d, ref)) < 2:
        pass
    new = d.submit(run="new", rows=8)
    d.feed(new, 8)
    charged = [_attempts(d, new, _fail_next(d, new)) for _ in range(8)]
    assert charged[-4:] == [0, 0, 0, 0]
    assert sum(charged) <= 3


def test_an_answer_resets_the_odds(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    _answered(d, 100)
    _flawed(d, ref, 1)
    _fail_next(d, ref)
    assert float(d.lane_state()["own_odds"]) <= 0
    d.advance(100_000)
    _answered(d, 1)
    assert d.lane_state()["own_odds"] == ""


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(flawed=st.integers(0, 8), others=st.integers(1, 150), order=st.lists(st.booleans(), max_size=12))
def test_each_job_that_fails_is_weighed_once(
    real_redis: Redis, flawed: int, others: int, order: list[bool]
) -> None:
    """By Wald's sequential probability ratio test ("Sequential Tests of Statistical Hypotheses", 1945)."""
    d = Deployment(emptied(real_redis))
    old, new = d.queued_lane(jobs=max(1, flawed)), d.submit(run="new", rows=20)
    d.feed(new, 20)
    _answered(d, others)
    if flawed:
        _flawed(d, old, flawed)
    odds, found, ok, seen = math.log(10), 0, others + 10 * bool(flawed), set[tuple[RunRef, int]]()
    for is_old in order:
        ref = old if is_old and flawed else new
        job = ref, _fail_next(d, ref).job
        if job not in seen:
            found += ref == old
            share = (found + 1) / (found + 2 + min(100, ok))
            odds += math.log(share / 0.9 if ref == old else (1 - share) / 0.1)
            odds = max(math.log(0.1), odds)
        seen.add(job)
        if odds <= 0:
            break  # from here on failures may be their jobs' own, and are weighed each time
        assert float(d.lane_state().get("own_odds", math.log(10))) == pytest.approx(odds)
