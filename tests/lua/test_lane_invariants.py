"""Grants, reports and changed limits in any order: a lane keeps its limits and goes on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.hints import AxisHint, Hints
from fairlane.model.job import Attempt, Feedback, Signal
from fairlane.model.tokens import Estimate, Usage
from tests.support.deployment import BURST_S, Deployment, permit_burst_ms
from tests.support.redis import emptied

LEAST_PER_MINUTE, MOST_PER_MINUTE = 0.1, 6e9
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
AXES = ("requests", "tokens", "input", "output")
SIGNALS: list[Signal] = ["ok", "ok", "ok", "limited", "limited", "overloaded", "answered", "broken", "none"]
thorough = settings(
    max_examples=30,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=set(Phase) - {Phase.explain},
)

amounts = (
    st.sampled_from([0, 1, 20, 600, 1_000_000, -5, 1e-9, 1e15, 1e300])
    | st.floats(0, 1e6)
    | st.integers(0, 10**12)
)
resets = st.sampled_from([0, 1, 700, 60_000, DAY_MS, -1000])
shown = st.dictionaries(
    st.sampled_from([*AXES, "day", "concurrency"]),
    st.builds(AxisHint, st.none() | amounts, st.none() | amounts, st.none() | resets),
    max_size=3,
)
hinted = st.none() | st.builds(Hints, shown, st.sampled_from([None, *AXES, "day", "concurrency"]))
feedback = st.builds(
    Feedback,
    st.sampled_from(SIGNALS),
    st.builds(Usage, *[st.none() | st.integers(0, 5000)] * 3),
    st.none() | st.sampled_from([1, 50, 3000, 90_000]),
    st.just(""),
    hinted,
)
plain_feedback = st.builds(Feedback, st.sampled_from(SIGNALS), st.just(Usage(10, 10)))
limits = st.fixed_dictionaries(
    {"requests_per_minute": st.sampled_from([None, None, 0, 0.5, 60, 60_000])},
    optional={
        "tokens_per_minute": st.sampled_from([0, 600, 600_000]),
        "output_tokens_per_minute": st.sampled_from([0, 600, 600_000]),
        "max_concurrency": st.integers(1, 40),
        "exact": st.booleans(),
        "burst_seconds": st.sampled_from([0.05, 1.0, 10.0]),
    },
)


def steps(taught: st.SearchStrategy[Feedback]) -> st.SearchStrategy[list[Any]]:
    """Time that passes (``None``: until the lane says), how many end, in which order, and what they say."""
    waits = st.none() | st.sampled_from([0, 1, 30, 500, 5000, 70_000, 4_000_000])
    one = st.tuples(waits, st.integers(0, 6), st.booleans(), taught)
    return st.lists(one, min_size=1, max_size=40)


def _play(d: Deployment, ref: Any, course: list[Any], history: list[tuple[int, int]]) -> list[Attempt]:
    """Act it out; what is granted goes into ``history``. Returns what is in flight at the end."""
    flying: list[Attempt] = []
    for wait_ms, ended, latest_first, feedback in course:
        grant = d.ask(ref, room=50)
        history.append((d.now_ms, len(grant.permits)))
        flying += [Attempt(ref.run, ref.team, p.job, p.number, "sim:fast") for p in grant.permits]
        assert grant.in_flight == len(flying) == d.leases.count()
        assert grant.at_ms == 0 or grant.at_ms >= d.now_ms
        d.advance(wait_ms if wait_ms is not None else min(grant.wait_ms, 10 * DAY_MS))
        for _ in range(min(ended, len(flying))):
            attempt = flying.pop(-1 if latest_first else 0)
            d.claim(attempt)
            assert d.report(attempt, feedback, done=feedback.signal in ("ok", "answered")) is not None
        _check_numbers(d)
    return flying


def _check_numbers(d: Deployment) -> None:
    for name, value in d.lane_state().items():
        assert not any(bad in value.lower() for bad in ("nan", "inf")), f"{name}: {value}"
    for axis in AXES:
        estimate = d.lane_state().get(f"{axis}_est")
        if estimate:
            assert LEAST_PER_MINUTE <= float(estimate) <= 10 * MOST_PER_MINUTE, axis


@thorough
@given(stated=limits, course=steps(feedback))
@pytest.mark.slow
def test_any_report_keeps_all_numbers_finite_and_fails_no_script(
    real_redis: Redis, stated: dict[str, Any], course: list[Any]
) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=2000, tokens=Estimate(20, 30), **stated)
    history: list[tuple[int, int]] = []
    flying = _play(d, ref, course, history)
    if most := stated.get("max_concurrency"):
        assert len(flying) <= most


@thorough
@given(stated=limits, course=steps(plain_feedback))
@pytest.mark.slow
def test_a_stated_rate_is_never_exceeded_whatever_is_learned(
    real_redis: Redis, stated: dict[str, Any], course: list[Any]
) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=2000, tokens=Estimate(20, 30), **stated)
    history: list[tuple[int, int]] = []
    _play(d, ref, course, history)
    rate = stated["requests_per_minute"]
    if not rate:
        return
    burst = max(1.0, rate / 60 * permit_burst_ms(stated.get("burst_seconds", BURST_S)) / 1000)
    for first, (start_ms, _) in enumerate(history):
        taken = 0
        for now_ms, permits in history[first:]:
            taken += permits
            assert taken <= rate * (now_ms - start_ms) / 60_000 + burst + 1e-6


@thorough
@given(stated=limits, course=steps(plain_feedback))
@pytest.mark.slow
def test_a_lane_with_work_always_grants_again(
    real_redis: Redis, stated: dict[str, Any], course: list[Any]
) -> None:
    # At the least rate there is, and with what was owed, five calls take less than two hours.
    assert _time_to_five_more(real_redis, stated, course) <= 2 * HOUR_MS


@thorough
@given(stated=limits, course=steps(feedback))
@pytest.mark.slow
def test_a_lane_with_a_nonsensical_reported_limit_grants_again_in_days(
    real_redis: Redis, stated: dict[str, Any], course: list[Any]
) -> None:
    # The limit may have been one call a day, and a tenth of a token a minute, with a day's worth owed.
    assert _time_to_five_more(real_redis, stated, course) <= 60 * DAY_MS


def _time_to_five_more(redis: Redis, stated: dict[str, Any], course: list[Any]) -> int:
    """Milliseconds until a lane, asked when it says, has granted five more permits whose calls succeed."""
    d = Deployment(emptied(redis))
    ref = d.queued_lane(jobs=2000, tokens=Estimate(20, 30), **stated)
    flying = _play(d, ref, course, [])
    granted, began_ms = 0, d.now_ms
    for _ in range(200):
        for attempt in flying:
            d.claim(attempt)
            assert d.report(attempt, Feedback("ok", Usage(20, 30)), done=True) is not None
        grant = d.ask(ref, room=50)
        flying = [Attempt(ref.run, ref.team, p.job, p.number, "sim:fast") for p in grant.permits]
        granted += len(flying)
        if granted >= 5:
            return d.now_ms - began_ms
        assert flying or grant.at_ms, f"{grant.reason} for ever"
        assert grant.at_ms == 0 or grant.at_ms >= d.now_ms
        d.advance(max(1, grant.wait_ms))
    raise AssertionError(f"asked 200 times: {grant.reason}")
