"""Probes of a lane that is down: a slow one is overdue, another starts, and any answer closes the circuit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt, Signal
from fairlane.model.run import RunRef
from tests.support.deployment import LEASE_MS, Deployment
from tests.support.redis import emptied

FAILURES, FIRST_MS, SECOND_MS, LONGEST_MS = 5, 1000, 1250, 60_000
HOUR_MS = 3_600_000
FAILED: list[Signal] = ["broken", "server_error", "overloaded"]


def _circuit(d: Deployment) -> str:
    return d.lanes.view("sim:fast").circuit


def _down(d: Deployment, took_ms: int = 400, failed_ms: int = 120_000, **limits: Any) -> RunRef:
    """A lane whose calls took so long until its circuit opened just now, and so long to fail."""
    ref = d.queued_lane(jobs=400, **limits)
    if took_ms:
        [answered] = d.start(ref)
        d.advance(took_ms)
        d.finish(answered)
    for _ in range(FAILURES):
        d.advance(1000)
        [failing] = d.start(ref)
        d.advance(failed_ms)
        d.defer(failing, signal="broken")
    assert _circuit(d) == "open"
    return ref


def _probe(d: Deployment, ref: RunRef) -> Attempt:
    [attempt] = d.start(ref)
    assert _circuit(d) == "half-open"
    assert not d.take(ref)
    return attempt


def _next(d: Deployment, ref: RunRef) -> Attempt:
    """The next probe, once the lane has waited for as long as it says."""
    grant = d.ask(ref)
    assert not grant.permits
    d.advance(grant.at_ms - 1 - d.now_ms)
    assert not d.take(ref)
    d.advance(1)
    return _probe(d, ref)


@pytest.mark.parametrize(
    ("took_ms", "failed_ms", "overdue_ms"),
    [
        (100, 120_000, SECOND_MS),
        (400, 120_000, SECOND_MS),
        (5000, 120_000, 10_000),
        (5000, 0, SECOND_MS),
        (5000, 600, 2400),
        (60_000, 600, 2400),
    ],
)
def test_a_probe_is_overdue_after_slow_calls_or_failures_or_when_a_failed_one_would_be_followed(
    real_redis: Redis, took_ms: int, failed_ms: int, overdue_ms: int
) -> None:
    """Twice a slow call, or four times as long as calls took to fail, whichever is sooner."""
    d = Deployment(real_redis)
    ref = _down(d, took_ms, failed_ms)
    _next(d, ref)
    began_ms = d.now_ms
    grant = d.ask(ref)
    assert grant.reason == "probing"
    assert grant.at_ms == began_ms + overdue_ms
    _next(d, ref)


def _overloaded(d: Deployment, calls: int) -> tuple[RunRef, Attempt]:
    """A lane that overloads narrowed until its circuit opened, and a call from before that is still out."""
    ref = d.queued_lane(jobs=400)
    long, *others = d.start(ref, calls)
    d.advance(400)
    for answered in others:
        d.finish(answered)
    while _circuit(d) == "closed":
        for attempt in d.take(ref, calls):
            assert d.claim(attempt) is not None
            d.advance(1)
            d.defer(attempt, signal="overloaded")
        d.advance(100)
    assert d.lane_state()["window_by"] == "overload"
    return ref, long


def _in_time(d: Deployment, ref: RunRef) -> Attempt:
    """The next probe, within a minute."""
    for _ in range(600):
        if taken := d.take(ref, 1):
            assert d.claim(taken[0]) is not None
            return taken[0]
        d.advance(100)
    raise AssertionError(d.ask(ref))


def test_a_call_from_before_an_outage_delays_no_probe(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref, _ = _overloaded(d, calls=4)
    for _ in range(6):
        d.defer(_in_time(d, ref), signal="overloaded")
    assert d.lane_state()["inflight"] == "1" == d.lane_state()["window"]


def test_overloads_that_proved_an_outage_leave_no_window(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref, long = _overloaded(d, calls=20)
    assert int(d.lane_state()["window"]) < 20
    d.finish(long)
    d.finish(_in_time(d, ref))
    assert _circuit(d) == "closed"
    assert len(d.take(ref, 20)) == 20


def test_a_lane_that_was_never_answered_waits_for_its_probe(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _down(d, took_ms=0)
    probe = _next(d, ref)
    assert d.ask(ref).at_ms == 0
    d.advance(LEASE_MS - 1)
    assert not d.take(ref)
    d.finish(probe)
    assert _circuit(d) == "closed"


def test_a_hang_costs_no_more_probes_than_failures_would(real_redis: Redis) -> None:
    lasts_ms, counts = 300_000, list[int]()
    for hangs in (False, True):
        d = Deployment(emptied(real_redis))
        ref, until_ms, probes = _down(d), d.now_ms + lasts_ms, 0
        while d.now_ms < until_ms:
            probe = _next(d, ref)
            probes += 1
            if not hangs:
                d.defer(probe, signal="broken")
        counts.append(probes)
    assert counts[0] == counts[1] <= 21


@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.parametrize("signal", ["ok", "answered", "limited"])
def test_an_answer_to_any_probe_closes_the_circuit(real_redis: Redis, late: int, signal: Signal) -> None:
    d = Deployment(real_redis)
    ref = _down(d)
    probes = [_next(d, ref) for _ in range(3)]
    d.finish(probes[late], signal=signal)
    assert _circuit(d) == "closed"
    for probe in probes[:late] + probes[late + 1 :]:
        d.defer(probe, signal="broken")
    assert _circuit(d) == "closed"


@pytest.mark.parametrize("signal", [*FAILED, "none", "unsent"])
def test_the_end_of_an_overdue_probe_changes_nothing(real_redis: Redis, signal: Signal) -> None:
    d = Deployment(real_redis)
    ref = _down(d)
    overdue, latest = _next(d, ref), _next(d, ref)
    before = d.ask(ref).at_ms
    d.defer(overdue, signal=signal)
    assert (_circuit(d), d.ask(ref).at_ms) == ("half-open", before)
    d.defer(latest, signal="broken")
    assert _circuit(d) == "open"


def test_an_overdue_probe_of_a_cancelled_run_changes_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _down(d)
    _next(d, ref)
    other = d.queued_lane(run="r2")
    d.advance(d.ask(other).at_ms - d.now_ms)
    latest = _probe(d, other)
    assert d.cancel(ref) > 0
    assert _circuit(d) == "half-open"
    d.finish(latest)
    assert _circuit(d) == "closed"


def test_overdue_probes_cost_their_jobs_nothing_although_another_was_answered(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _down(d)
    probes = [_next(d, ref) for _ in range(3)]
    d.finish(probes[0])
    for probe in probes[1:]:
        d.defer(probe, signal="broken", cost="unproven")
    for _ in range(40):
        d.advance(1000)
        for attempt in d.take(ref):
            claim = d.claim(attempt)
            assert claim is not None
            assert claim.attempts == 0
            d.finish(attempt)


def test_a_held_lane_waits_for_its_probe(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50)
    for wait_ms in (None, 10 * HOUR_MS):
        [attempt] = d.start(ref)
        d.advance(400)
        d.finish(attempt, retry_after_ms=wait_ms)
    d.advance(d.ask(ref).at_ms - d.now_ms)
    d.start(ref)
    assert (d.ask(ref).reason, d.ask(ref).at_ms) == ("probing", 0)


@example(
    steps=[
        *[(0, "wait", "broken"), (1000, "wait", "broken"), (1250, "latest", "broken"), (0, "wait", "broken")],
        *[(4068, "wait", "broken"), (640, "wait", "broken"), (20000, "wait", "broken")],
        *[
            (1602, "latest", "broken"),
            (0, "wait", "broken"),
            (2441, "oldest", "ok"),
            (876, "latest", "limited"),
        ],
    ]
)
@example(
    steps=[
        (1000, "wait", "broken"),
        (1250, "wait", "broken"),
        (1563, "latest", "broken"),
        (0, "latest", "limited"),
        (1954, "wait", "broken"),
    ]
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 20_000),
            st.sampled_from(["wait", "oldest", "latest"]),
            st.sampled_from([*FAILED, "none", "unsent", "ok", "limited"]),
        ),
        max_size=30,
    )
)
def test_however_probes_end_one_is_awaited_at_a_time_and_another_follows(
    real_redis: Redis, steps: list[tuple[int, str, Signal]]
) -> None:
    d = Deployment(emptied(real_redis))
    ref, out, last_ms, spaced_ms = _down(d), list[tuple[Attempt, int]](), 0, 0
    slowest_ms = 0
    for wait_ms, which, signal in steps:
        d.advance(wait_ms)
        if _circuit(d) == "closed":
            return
        taken = d.take(ref)
        assert len(taken) <= 1
        for attempt in taken:
            d.claim(attempt)
            assert d.now_ms >= last_ms + spaced_ms, "two probes came too close"
            out.append((attempt, d.now_ms))
            last_ms, spaced_ms = d.now_ms, FIRST_MS
        grant = d.ask(ref)
        assert grant.at_ms - d.now_ms <= max(LONGEST_MS, 2 * slowest_ms), (
            "a probe is awaited as a slow call is"
        )
        assert grant.at_ms > d.now_ms
        if which != "wait" and out:
            ended, began_ms = out.pop(0 if which == "oldest" else -1)
            if signal == "ok":
                slowest_ms = max(slowest_ms, d.now_ms - began_ms)
            d.defer(ended, signal=signal)
            spaced_ms = 0 if signal in ("none", "unsent") else spaced_ms
