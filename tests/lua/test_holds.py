"""A wait that is too long to be believed holds a lane: it says so, asks again, and an operator lifts it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt, Feedback, Signal
from fairlane.model.tokens import Usage
from fairlane.why.reasons import reason_of
from tests.support.deployment import Deployment
from tests.support.hidden_limit import Bucket, HiddenLimit, hints
from tests.support.redis import emptied

HOUR_MS = 3_600_000
EARNED_MS = 500  # of a call at the cut rate: a 429 empties the bucket
YEARS_28_MS = 900_000_000_000
YEAR_9999_MS = 251_606_933_765_000
MINUTES_OF_PROBES = [1, 1, 2, 4, 8, 16, 32, 60, 60, 60]
ABSURD = [HOUR_MS + 1, YEARS_28_MS, YEAR_9999_MS, 10**14, 10**18, 10**300]


def _asked_to_wait(d: Deployment, ref: Any, wait_ms: int, signal: Signal = "limited") -> None:
    [attempt] = d.start(ref)
    feedback = Feedback(signal, Usage(), wait_ms)
    assert d.report(attempt, feedback, done=signal == "ok") is not None


def _probe_is_answered(d: Deployment, ref: Any) -> None:
    [probe] = d.take(ref)
    d.claim(probe)
    d.report(probe, Feedback("ok", Usage(0, 10)), done=True)
    d.advance(10_000)


@pytest.mark.parametrize("wait_ms", ABSURD)
@pytest.mark.parametrize("signal", ["ok", "limited", "overloaded"])
def test_an_absurd_wait_is_a_hold_whose_probes_grow_rare(
    real_redis: Redis, wait_ms: int, signal: Signal
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50, requests_per_minute=600)
    _asked_to_wait(d, ref, wait_ms, signal)
    for minutes in MINUTES_OF_PROBES:
        grant = d.ask(ref)
        assert (len(grant.permits), grant.reason) == (0, "held")
        assert grant.wait_ms == pytest.approx(minutes * 60_000, rel=0.02)
        d.advance(grant.wait_ms - 1)
        assert not d.take(ref)
        d.advance(1 + EARNED_MS)
        [probe] = d.take(ref)
        assert d.claim(probe) is not None
        assert (d.take(ref), d.ask(ref).reason) == ([], "probing")
        assert d.report(probe, Feedback(signal, Usage(), wait_ms), done=signal == "ok") is not None


def test_a_used_up_day_without_an_end_is_a_hold_whose_probes_grow_rare(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50, requests_per_minute=600)
    used_up = Feedback("limited", Usage(), hints=hints(exhausted="day"))
    for attempt in d.start(ref, 5):
        d.report(attempt, used_up, done=False)
    for minutes in MINUTES_OF_PROBES:
        grant = d.ask(ref)
        assert (len(grant.permits), grant.reason) == (0, "held")
        assert grant.wait_ms == pytest.approx(minutes * 60_000, rel=0.02)
        d.advance(grant.wait_ms + EARNED_MS)
        [probe] = d.take(ref)
        assert d.claim(probe) is not None
        assert (d.take(ref), d.ask(ref).reason) == ([], "probing")
        assert d.report(probe, used_up, done=False) is not None
    d.advance(HOUR_MS + EARNED_MS)
    _probe_is_answered(d, ref)
    assert d.take(ref)
    assert not d.lane_state().get("held_until_ms")


@pytest.mark.parametrize("limits", [{}, {"requests_per_minute": 0}, {"requests_per_minute": 600}])
def test_a_used_up_day_costs_few_calls(real_redis: Redis, limits: dict[str, int]) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=500, **{"requests_per_minute": None, "max_concurrency": 20, **limits})
    world = HiddenLimit(
        d,
        ref,
        Bucket(per_minute=1e-6, depth=30),
        announced=lambda _, admitted: {} if admitted else {"hints": hints(exhausted="day")},
    )
    world.run(30_000)
    refused = world.refused()
    world.run(24 * HOUR_MS)
    assert world.admitted() == 30
    assert world.refused() - refused <= 40


def test_a_day_whose_end_is_known_is_no_hold(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50, requests_per_minute=600)
    [attempt] = d.start(ref)
    d.report(
        attempt, Feedback("limited", Usage(), hints=hints(day=(50, 0, HOUR_MS), exhausted="day")), done=False
    )
    assert (d.ask(ref).reason, d.ask(ref).wait_ms) == ("day", HOUR_MS)


def test_a_day_whose_limit_alone_is_named_is_tried_again_and_not_counted(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50, requests_per_minute=600)
    [attempt] = d.start(ref)
    used_up = Feedback("limited", Usage(), hints=hints(day=(1, None, None), exhausted="day"))
    d.report(attempt, used_up, done=False)
    d.advance(60_000 + EARNED_MS)
    _probe_is_answered(d, ref)
    assert len(d.take(ref)) > 1


def test_an_operator_can_end_a_days_hold(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50, requests_per_minute=600)
    first, late = d.start(ref, 2)
    used_up = Feedback("limited", Usage(), hints=hints(exhausted="day"))
    d.advance(1)
    d.report(first, used_up, done=False)
    d.lanes.resume("sim:fast", d.now_ms)
    d.report(late, used_up, done=False)
    d.advance(10_000)
    assert d.take(ref)


def test_a_probe_that_is_answered_ends_the_hold(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50, requests_per_minute=600)
    _asked_to_wait(d, ref, YEARS_28_MS)
    d.advance(HOUR_MS + EARNED_MS)
    _probe_is_answered(d, ref)
    assert d.take(ref)
    assert d.lanes.view("sim:fast", d.now_ms).held_until_ms is None


@pytest.mark.parametrize("wait_ms", [HOUR_MS, *ABSURD])
def test_resume_lifts_what_it_says_it_lifts(real_redis: Redis, wait_ms: int) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50, requests_per_minute=600)
    first, second = d.start(ref, 2)
    for attempt in (first, second):
        d.report(attempt, Feedback("limited", Usage(), wait_ms), done=False)
        d.lanes.resume("sim:fast", d.now_ms)
        view = d.lanes.view("sim:fast", d.now_ms)
        assert (view.state, view.shut, view.circuit) == ("active", None, "closed")
    # What was asked before the operator resumed the lane holds it no more; a ramp begins.
    d.advance(2000)
    assert 1 <= len(d.take(ref)) <= 20


def test_a_lane_says_that_it_is_held_and_by_whom(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50, requests_per_minute=600)
    _asked_to_wait(d, ref, YEAR_9999_MS)
    view = d.lanes.view("sim:fast", d.now_ms)
    assert (view.state, view.shut and view.shut.reason) == ("blocked", "held")
    reason = reason_of(view, 49, 10, led=True)
    assert reason is not None
    assert "its provider asked to come back in" in reason.sentence
    assert "one call asks again in 1 min" in reason.sentence
    assert "`fairlane lanes resume sim:fast` lifts the hold" in reason.sentence


def test_how_long_a_lane_waits_is_a_setting(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50, requests_per_minute=600, longest_wait_seconds=60)
    _asked_to_wait(d, ref, 60_000)
    assert (d.ask(ref).reason, d.ask(ref).wait_ms) == ("blocked", 60_000)
    d.advance(60_000)
    d.advance(1000)
    _asked_to_wait(d, ref, 60_001)
    assert (d.ask(ref).reason, d.ask(ref).wait_ms) == ("held", 60_000)


waits = st.none() | st.sampled_from([-5, 0, 1, 50, HOUR_MS, *ABSURD])
signals = st.sampled_from(
    ["ok", "ok", "limited", "overloaded", "broken", "answered", "refused", "absent", "none"]
)
steps = st.tuples(signals, waits, st.sampled_from([0, 50, 5000, HOUR_MS]), st.booleans())


@settings(max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(course=st.lists(steps, min_size=1, max_size=12))
def test_whatever_a_provider_asks_for_a_lane_tries_again_within_its_longest_wait(
    real_redis: Redis, course: list[Any]
) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=200, requests_per_minute=600)
    in_flight: list[Attempt] = []
    for signal, wait_ms, pause_ms, resume in course:
        in_flight += d.take(ref, 3)
        if in_flight:
            attempt = in_flight.pop(0)
            d.claim(attempt)
            d.report(attempt, Feedback(signal, Usage(), wait_ms), done=signal in ("ok", "answered"))
        if resume:
            d.lanes.resume("sim:fast", d.now_ms)
            assert d.lanes.view("sim:fast", d.now_ms).parked is None
            assert d.ask(ref, count=0).reason not in ("blocked", "held", "circuit", "parked", "paused")
        grant = d.ask(ref, count=0)
        assert grant.at_ms <= d.now_ms + HOUR_MS
        d.advance(pause_ms)
