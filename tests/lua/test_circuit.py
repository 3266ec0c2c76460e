"""A lane's circuit: failures that started apart open it, one probe's answer closes it, a refusal parks it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.decision import Defer
from fairlane.model.job import Attempt, Feedback, Reported, Signal
from fairlane.model.run import RunRef
from tests.support.deployment import LEASE_MS, Deployment
from tests.support.redis import emptied

FAILURES, APART_MS, OPEN_MS = 5, 50, 1000
LONG_MS = 40_000
"""An outage of so long is followed by a whole ramp."""
FAILED: list[Signal] = ["broken", "server_error", "overloaded"]


def _circuit(d: Deployment) -> str:
    return d.lanes.view("sim:fast").circuit


def _apart(d: Deployment, ref: RunRef, count: int, apart_ms: int = APART_MS) -> list[Attempt]:
    """Attempts that start so far apart, and are all in flight."""
    started = []
    for _ in range(count):
        started += d.start(ref)
        d.advance(apart_ms)
    return started


def _opened(d: Deployment, jobs: int = 200, **limits: Any) -> RunRef:
    """A lane whose circuit has just opened."""
    ref = d.queued_lane(jobs=jobs, **limits)
    for attempt in _apart(d, ref, FAILURES, 1000):
        d.defer(attempt, signal="broken", cost="attempt")
    assert _circuit(d) == "open"
    return ref


def _granted_by_the_second(d: Deployment, ref: RunRef, seconds: int) -> list[int]:
    granted = []
    for _ in range(seconds):
        granted.append(0)
        for _ in range(50):
            d.advance(20)
            granted[-1] += d.pass_through(ref)
    return granted


def _probe(d: Deployment, ref: RunRef) -> Attempt:
    """The one attempt that goes out, claimed."""
    grant = d.ask(ref)
    assert len(grant.permits) == 1
    probe = Attempt(ref.run, ref.team, grant.permits[0].job, grant.permits[0].number, "sim:fast")
    assert d.claim(probe) is not None
    assert _circuit(d) == "half-open"
    return probe


def test_five_failures_started_apart_open_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    attempts = _apart(d, d.queued_lane(), FAILURES)
    news = [reported.news for attempt in attempts if (reported := d.defer(attempt, signal="broken"))]
    assert news == ["", "", "", "", "open"]


def test_fifty_failures_of_one_burst_do_not_open_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    for attempt in d.start(d.queued_lane(jobs=50), 50):
        d.advance(100)
        d.defer(attempt, signal="broken")
    assert _circuit(d) == "closed"


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(gaps=st.lists(st.integers(0, 450), min_size=1, max_size=25))
def test_it_opens_exactly_when_five_of_them_started_apart(real_redis: Redis, gaps: list[int]) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=30)
    starts, counted, last = [], 0, None
    for gap in gaps:
        d.advance(gap)
        starts.append((d.now_ms, d.start(ref)[0]))
    for start_ms, attempt in starts:
        d.defer(attempt, signal="broken")
        if counted < FAILURES and (last is None or start_ms >= last + APART_MS):
            counted, last = counted + 1, start_ms
        assert (_circuit(d) == "open") == (counted >= FAILURES)


@pytest.mark.parametrize("signal", ["ok", "answered"])
def test_an_answer_resets_the_count_of_failures(real_redis: Redis, signal: Signal) -> None:
    d = Deployment(real_redis)
    attempts = _apart(d, d.queued_lane(), 2 * FAILURES - 1)
    for number, attempt in enumerate(attempts):
        d.defer(attempt, signal=signal if number == FAILURES - 1 else "broken")
    assert _circuit(d) == "closed"


@pytest.mark.parametrize("signal", FAILED)
def test_every_form_of_failure_opens_it(real_redis: Redis, signal: Signal) -> None:
    d = Deployment(real_redis)
    for attempt in _apart(d, d.queued_lane(), FAILURES):
        d.defer(attempt, signal=signal)
    assert _circuit(d) == "open"


@pytest.mark.parametrize("signal", ["limited", "none", "ok", "answered"])
def test_results_that_are_no_lane_failures_never_open_it(real_redis: Redis, signal: Signal) -> None:
    d = Deployment(real_redis)
    for attempt in _apart(d, d.queued_lane(jobs=30), 3 * FAILURES):
        d.defer(attempt, signal=signal)
    assert _circuit(d) == "closed"


def test_while_open_nothing_starts_and_the_reported_time_is_that_of_the_probe(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _opened(d)
    grant = d.ask(ref)
    assert (grant.permits, grant.reason, grant.wait_ms) == ([], "circuit", OPEN_MS)
    d.advance(OPEN_MS - 1)
    assert not d.ask(ref).permits
    d.advance(1)
    assert _probe(d, ref)


def test_exactly_one_probe_goes_out_however_many_ask(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _opened(d)
    d.advance(OPEN_MS)
    other = d.queued_lane(run="r2")
    asked = [d.ask(run) for run in (ref, other) * 10]
    assert [len(grant.permits) for grant in asked] == [1] + [0] * 19
    assert {(grant.reason, grant.at_ms) for grant in asked} == {("probing", 0)}


def test_one_request_for_many_runs_sends_one_probe(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _opened(d)
    d.advance(OPEN_MS)
    assert len(d.ask(ref, count=50).permits) == 1


@pytest.mark.parametrize("signal", ["ok", "answered", "limited"])
def test_an_answer_closes_it_with_empty_buckets(real_redis: Redis, signal: Signal) -> None:
    d = Deployment(real_redis)
    ref = _opened(d, requests_per_minute=600, tokens_per_minute=60_000, burst_seconds=10)
    d.advance(LONG_MS)
    probe = _probe(d, ref)
    d.advance(5000)
    d.dirty()
    reported = d.finish(probe, signal=signal, retry_after_ms=1)
    assert reported is not None
    assert (reported.news, _circuit(d)) == ("closed", "closed")
    assert "sim:fast" in d.dirty()
    # A tenth of ten a second, and never more than a quarter of a second at once.
    d.advance(999)
    assert not d.ask(ref).permits
    d.advance(801)
    assert len(d.ask(ref).permits) <= 1


@pytest.mark.parametrize("stated", [600, None])
def test_a_closed_circuit_starts_a_ramp_of_calls_and_then_all(
    real_redis: Redis, stated: float | None
) -> None:
    d = Deployment(real_redis)
    ref = _opened(d, requests_per_minute=stated)
    d.advance(LONG_MS)
    d.finish(_probe(d, ref))
    # 600 a minute: a tenth of that at first, all of it after ten seconds.
    assert _granted_by_the_second(d, ref, 11) == pytest.approx([1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], abs=1)


def test_the_ramp_after_a_short_outage_is_a_quarter_as_long(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _opened(d, requests_per_minute=600)
    d.advance(20_000)
    d.finish(_probe(d, ref))
    assert _granted_by_the_second(d, ref, 7) == pytest.approx([5, 6, 7, 8, 9, 10, 10], abs=1)


def test_a_lane_that_is_drained_starts_with_a_ramp(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=200, requests_per_minute=600)
    d.lanes.drain("sim:fast", d.now_ms)
    assert _granted_by_the_second(d, ref, 11) == pytest.approx([1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], abs=1)


def test_a_ramp_that_nobody_used_ends_without_a_burst_beyond_the_operators(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=200, requests_per_minute=600)
    d.lanes.drain("sim:fast", d.now_ms)
    d.advance(9_900)
    assert len(d.take(ref)) <= 2
    d.advance(60_000)
    assert len(d.take(ref)) == 9


@pytest.mark.parametrize("signal", FAILED)
def test_each_failed_probe_lengthens_the_time_to_the_next_up_to_a_minute(
    real_redis: Redis, signal: Signal
) -> None:
    d = Deployment(real_redis)
    ref = _opened(d)
    d.advance(OPEN_MS)
    for wait_ms in (*(math.ceil(1.25**n * OPEN_MS) for n in range(1, 19)), 60_000, 60_000):
        probe = _probe(d, ref)
        d.advance(700)
        reported = d.defer(probe, signal=signal)
        assert reported is not None
        assert reported.news == "open"
        assert d.ask(ref).wait_ms == wait_ms
        d.advance(wait_ms)


def test_a_lane_configures_threshold_first_delay_growth_and_longest_delay(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(outage_failures=2, outage_delay=1.5, outage_growth=3, outage_longest_delay=10)
    for attempt in _apart(d, ref, 2):
        assert _circuit(d) == "closed"
        d.defer(attempt, signal="broken")
    for wait_ms in (1500, 4500, 10_000):
        assert d.ask(ref).wait_ms == wait_ms
        d.advance(wait_ms)
        d.defer(_probe(d, ref), signal="broken")


def test_a_circuit_that_has_closed_begins_with_the_first_delay_again(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _opened(d)
    d.advance(OPEN_MS)
    d.defer(_probe(d, ref), signal="broken")
    d.advance(2 * OPEN_MS)
    d.finish(_probe(d, ref))
    d.advance(20_000)
    for attempt in _apart(d, ref, FAILURES, 1000):
        d.defer(attempt, signal="broken")
    assert d.ask(ref).wait_ms == OPEN_MS


def test_few_quick_failures_among_many_slow_calls_do_not_open_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=200)
    for number, attempt in enumerate(_apart(d, ref, 100, 100)):
        if number % 10 == 9:
            d.defer(attempt, signal="overloaded")
    assert _circuit(d) == "closed"


def test_answers_to_calls_from_before_an_outage_do_not_hide_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    before = d.start(ref, 20)
    for failed, answered in zip(range(FAILURES), before, strict=False):
        d.advance(APART_MS)
        attempt = d.start(ref)[0]
        d.finish(answered)
        d.defer(attempt, signal="broken")
        assert (_circuit(d) == "open") == (failed == FAILURES - 1)


def test_after_a_failure_while_nothing_is_answered_calls_start_apart(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    first = d.start(ref)[0]
    d.advance(100)
    d.defer(first, signal="broken")
    assert len(d.take(ref)) == 1
    grant = d.ask(ref)
    assert (grant.permits, grant.reason, grant.wait_ms) == ([], "doubt", APART_MS)


def test_in_a_doubt_as_many_calls_start_as_open_the_circuit_and_are_awaited(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    first = d.start(ref)[0]
    d.advance(100)
    d.defer(first, signal="broken")
    _apart(d, ref, FAILURES, APART_MS)
    # Since the latest start: twice as long as the failure took, and the time in which they start.
    left_ms = 2 * 100 + FAILURES * APART_MS - APART_MS
    grant = d.ask(ref)
    assert (grant.permits, grant.reason, grant.wait_ms) == ([], "doubt", left_ms)
    d.advance(left_ms)
    assert d.ask(ref).permits


def test_an_answer_to_a_later_call_ends_the_doubt(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    first = d.start(ref)[0]
    d.advance(100)
    d.defer(first, signal="broken")
    d.finish(d.start(ref)[0])
    assert len(d.take(ref, 10)) == 10


def test_a_failure_while_others_are_answered_raises_no_doubt(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    answered, failed = d.start(ref, 2)
    d.finish(answered)
    d.defer(failed, signal="server_error")
    assert len(d.take(ref, 10)) == 10


def test_few_calls_go_into_an_outage_however_high_the_limits(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2000)
    pending, calls = d.start(ref, 100), 0
    while _circuit(d) == "closed":
        d.advance(5)
        failing, pending = pending, []
        for attempt in failing:
            d.defer(attempt, signal="broken")
        pending = d.take(ref)
        for attempt in pending:
            d.claim(attempt)
        calls += len(pending)
    assert calls < FAILURES


def _timed_out(d: Deployment, ref: RunRef, usual_ms: int | None, deadline_ms: int) -> list[Reported | None]:
    if usual_ms is not None:
        for _ in range(3):
            attempt = d.start(ref)[0]
            d.advance(usual_ms)
            d.finish(attempt)
    feedback = Feedback("broken", deadline_ms=deadline_ms)
    calls = [
        d.attempts.defer(attempt, "w1", Defer(feedback, cost="unproven", max_attempts=3), now_ms=d.now_ms)
        for attempt in _apart(d, ref, 2 * FAILURES)
    ]
    return [Reported.of(call.run(d.redis)) for call in calls]


@pytest.mark.parametrize(("deadline_ms", "usual_ms"), [(1, None), (29_999, None), (3999, 1000)])
def test_a_deadline_too_short_for_any_answer_is_no_lane_failure(
    real_redis: Redis, deadline_ms: int, usual_ms: int | None
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50)
    _timed_out(d, ref, usual_ms, deadline_ms)
    assert (_circuit(d), d.lane_state().get("down_ms", "")) == ("closed", "")
    assert len(d.take(ref)) > 20


@pytest.mark.parametrize(("deadline_ms", "usual_ms"), [(30_000, None), (4100, 1000)])
def test_a_deadline_that_an_answer_would_have_met_opens_it(
    real_redis: Redis, deadline_ms: int, usual_ms: int | None
) -> None:
    d = Deployment(real_redis)
    _timed_out(d, d.queued_lane(jobs=50), usual_ms, deadline_ms)
    assert _circuit(d) == "open"


@pytest.mark.parametrize("claimed", [True, False])
def test_a_lost_probe_is_followed_by_exactly_one(real_redis: Redis, claimed: bool) -> None:
    d = Deployment(real_redis)
    ref = _opened(d)
    d.advance(OPEN_MS)
    probe = _probe(d, ref) if claimed else d.take(ref)[0]
    assert not d.ask(ref).permits
    d.advance(LEASE_MS)
    assert not d.ask(ref).permits
    d.dirty()
    assert d.recover(probe) == 1
    assert "sim:fast" in d.dirty()
    assert [len(d.ask(ref).permits) for _ in range(5)] == [1, 0, 0, 0, 0]


def test_the_late_report_of_a_lost_probe_changes_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _opened(d)
    d.advance(OPEN_MS)
    lost = _probe(d, ref)
    d.advance(LEASE_MS)
    d.recover(lost)
    _probe(d, ref)
    assert d.finish(lost) is None
    assert _circuit(d) == "half-open"
    assert not d.ask(ref).permits


def test_a_probe_that_is_cancelled_or_requeued_lets_another_start(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _opened(d)
    d.advance(OPEN_MS)
    d.defer(_probe(d, ref), signal="none")
    probe = _probe(d, ref)
    other = d.queued_lane(run="r2")
    assert d.cancel(ref) > 0
    assert d.finish(probe) is None
    _probe(d, other)


def test_failures_of_calls_started_before_it_opened_neither_prolong_nor_reopen_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    first, *rest = (_apart(d, ref, FAILURES, 1000) for _ in range(4))
    while_open, while_probing, after = rest
    for attempt in first:
        d.defer(attempt, signal="broken")
    for attempt in while_open:
        d.defer(attempt, signal="broken")
    assert d.ask(ref).wait_ms == OPEN_MS
    d.advance(OPEN_MS)
    probe = _probe(d, ref)
    for attempt in while_probing:
        d.defer(attempt, signal="broken")
    assert _circuit(d) == "half-open"
    d.finish(probe)
    for attempt in after:
        d.defer(attempt, signal="broken")
    assert _circuit(d) == "closed"


def test_denied_access_parks_the_lane_with_its_reason(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane()
    first, second = d.start(ref, 2)
    reported = d.defer(first, signal="refused", reason="quota")
    assert reported is not None
    assert reported.news == "parked"
    assert (d.ask(ref).reason, d.ask(ref).at_ms) == ("parked", 0)
    assert d.lanes.view("sim:fast").parked == "quota"
    again = d.defer(second, signal="refused", reason="quota")
    assert again is not None
    assert again.news == ""


def test_a_parked_lane_that_is_resumed_sends_one_probe(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane()
    d.defer(d.start(ref)[0], signal="refused", reason="auth")
    d.advance(10_000)
    d.lanes.resume("sim:fast", d.now_ms)
    assert "sim:fast" in d.dirty()
    assert d.lanes.view("sim:fast").parked is None
    probe = _probe(d, ref)
    assert not d.ask(ref).permits
    d.finish(probe)
    assert len(d.ask(ref).permits) == 9


def test_a_probe_that_is_denied_parks_the_lane_again(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane()
    d.defer(d.start(ref)[0], signal="refused", reason="auth")
    d.lanes.resume("sim:fast", d.now_ms)
    reported = d.defer(_probe(d, ref), signal="refused", reason="auth")
    assert reported is not None
    assert reported.news == "parked"
    assert d.ask(ref).reason == "parked"


def test_refusals_from_before_a_resume_do_not_park_it_again(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane()
    first, second = d.start(ref, 2)
    d.defer(first, signal="refused", reason="auth")
    d.advance(1)
    d.lanes.resume("sim:fast", d.now_ms)
    probe = _probe(d, ref)
    d.defer(second, signal="refused", reason="auth")
    assert d.lanes.view("sim:fast").parked is None
    d.finish(probe)
    assert d.ask(ref).permits


def test_a_lane_parked_while_its_probe_is_out_sends_no_second_one_when_resumed(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=20)
    attempts = _apart(d, ref, FAILURES + 1, 1000)
    for attempt in attempts[:FAILURES]:
        d.defer(attempt, signal="broken")
    d.advance(OPEN_MS)
    probe = _probe(d, ref)
    d.defer(attempts[-1], signal="refused", reason="auth")
    d.lanes.resume("sim:fast", d.now_ms)
    assert not d.ask(ref).permits
    d.finish(probe)
    assert d.ask(ref).permits


def test_a_pause_that_ends_sends_no_probe(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane()
    d.lanes.pause("sim:fast")
    assert not d.ask(ref).permits
    assert d.lanes.view("sim:fast").paused
    d.lanes.resume("sim:fast", d.now_ms)
    assert len(d.ask(ref).permits) == 10
