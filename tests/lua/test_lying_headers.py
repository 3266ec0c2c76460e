"""A configured limit is a ceiling: nothing that a provider says lifts a lane above what it has earned."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.hints import AxisHint, Hints
from fairlane.model.job import Attempt, Feedback
from fairlane.model.run import RunRef
from fairlane.model.tokens import Estimate, Usage
from tests.support.deployment import Deployment
from tests.support.hidden_limit import hints
from tests.support.redis import emptied

MINUTE_MS, DAY_MS = 60_000, 86_400_000
UNIT = 60_000_000
INPUT, OUTPUT = 20, 30
TOKENS = INPUT + OUTPUT
LIMITED = {"requests": 1, "tokens": TOKENS, "input": INPUT, "output": OUTPUT}
FIELDS = {
    "requests": "requests_per_minute",
    "tokens": "tokens_per_minute",
    "input": "input_tokens_per_minute",
    "output": "output_tokens_per_minute",
    "day": "requests_per_day",
}
on_real_redis = settings(
    max_examples=30,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=set(Phase) - {Phase.explain},
)

shares = st.floats(0, 1)
resets = st.none() | st.sampled_from([0, 1, 300, 1000, 59_000, 60_000, DAY_MS, 31 * DAY_MS])
absurd = st.sampled_from([0.0, 1.0, 1e-9, -1.0, 1e12, 1e15, 1e300])


def _lies(rate: float) -> st.SearchStrategy[AxisHint]:
    """What a provider may say of a limit of ``rate``, true or not."""
    too_high = st.builds(AxisHint, st.just(rate), st.floats(1, 100).map(lambda n: n * rate), resets)
    minute_view = st.builds(AxisHint, st.just(rate), shares.map(lambda part: part * rate), resets)
    too_low = st.builds(AxisHint, st.just(rate), st.sampled_from([0.0, 1.0]), resets)
    stale = st.builds(AxisHint, st.just(rate), st.just(rate - 1), resets)
    windows = st.sampled_from([1 / 60, 1 / 6, 60.0, 1440.0])
    other_window = st.builds(lambda n, part: AxisHint(n * rate, n * rate * part, None), windows, shares)
    callers = st.floats(0.01, 100)
    other_caller = st.builds(lambda n, part: AxisHint(n * rate, n * rate * part, 1000), callers, shares)
    nonsense = st.builds(AxisHint, st.none() | absurd, st.none() | absurd, resets)
    return st.one_of(too_high, minute_view, too_low, stale, other_window, other_caller, nonsense)


@st.composite
def lying(draw: st.DrawFn, rates: dict[str, float]) -> Feedback:
    """A report whose headers say anything of any axis; it may reject the call, too."""
    axes = draw(st.lists(st.sampled_from([*rates, "concurrency", "unnamed"]), max_size=3, unique=True))
    shown = {axis: draw(_lies(rates.get(axis, 10.0))) for axis in axes}
    signal = draw(st.sampled_from(["ok"] * 8 + ["limited", "overloaded", "answered"]))
    exhausted = draw(st.sampled_from([None, *rates]))
    used = Usage(INPUT, OUTPUT) if signal == "ok" else Usage()
    wait_ms = draw(st.sampled_from([None, None, None, 1, 500, 10**12]))
    return Feedback(signal, used, wait_ms, "", Hints(shown, exhausted))  # type: ignore[arg-type]


day_is_over = st.builds(
    lambda limit, reset_ms: Feedback("ok", hints=Hints({"day": AxisHint(limit, 0, reset_ms)}, "day")),
    st.sampled_from([1, 20, 1e6]),
    resets,
)


@st.composite
def attacks(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, float], list[Any]]:
    """Configured limits, the same by axis, and a course: waits, and what ended calls report."""
    others = st.lists(st.sampled_from(["tokens", "input", "output"]), max_size=1)
    named = ["requests", *draw(others)]
    rates = {axis: draw(st.sampled_from([6.0, 60.0, 600.0, 3000.0])) * LIMITED[axis] for axis in named}
    limits: dict[str, Any] = {FIELDS[axis]: rate for axis, rate in rates.items()}
    limits["burst_seconds"] = draw(st.sampled_from([0.05, 1.0, 1.0, 10.0]))
    limits["exact"] = draw(st.booleans())
    waits = st.none() | st.sampled_from([0, 1, 20, 260, 700, 5000])
    step = st.tuples(waits, st.integers(0, 12), lying(rates))
    return limits, rates, draw(st.lists(step, min_size=2, max_size=16))


def _play(d: Deployment, ref: RunRef, course: list[Any], watch: Callable[[], None]) -> list[tuple[int, int]]:
    """Grant all there is, wait, report; returns when how many calls were granted."""
    history: list[tuple[int, int]] = []
    in_flight: list[Attempt] = []
    for wait_ms, ended, feedback in course:
        grant = d.ask(ref)
        history.append((d.now_ms, len(grant.permits)))
        in_flight += [Attempt(ref.run, ref.team, p.job, p.number, "sim:fast") for p in grant.permits]
        d.advance(min(max(grant.wait_ms, 1), DAY_MS) if wait_ms is None else wait_ms)
        for attempt in in_flight[:ended]:
            d.claim(attempt)
            watch()
            assert d.report(attempt, feedback, done=feedback.signal in ("ok", "answered")) is not None
            watch()
        del in_flight[:ended]
    return history


def _earned(d: Deployment, per_minute: float, burst_seconds: float) -> float:
    """How many requests a lane has left of what its configured rate has earned."""
    full = max(1.0, per_minute / 60 * burst_seconds)
    state = d.lane_state()
    if "requests_level" not in state:
        return full
    waited_ms = max(0, d.now_ms - int(state["requests_ms"]))
    return min(full, float(state["requests_level"]) / UNIT + waited_ms * per_minute / MINUTE_MS)


def _require_within(history: list[tuple[int, int]], per_minute: float, burst: float) -> None:
    """No window of time has more calls than the rate earns in it and one burst."""
    totals = list(accumulate((count for _, count in history), initial=0))
    for first, (start_ms, _) in enumerate(history):
        for last in range(first, len(history)):
            most = per_minute * (history[last][0] - start_ms) / MINUTE_MS + burst
            assert totals[last + 1] - totals[first] <= most + 1e-6, (start_ms, history[last][0])


@on_real_redis
@given(attack=attacks())
@pytest.mark.slow
def test_no_header_lifts_a_lane_above_its_configured_rate(real_redis: Redis, attack: Any) -> None:
    limits, rates, course = attack
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=4000, tokens=Estimate(INPUT, OUTPUT), **limits)
    levels: list[float] = []

    def watch() -> None:
        """A report raises no level of requests, whatever it says."""
        levels.append(_earned(d, rates["requests"], limits["burst_seconds"]))
        assert len(levels) % 2 or levels[-1] <= levels[-2] + 1e-6

    history = _play(d, ref, course, watch)
    rate = rates["requests"]
    _require_within(history, rate, max(1.0, rate / 60 * limits["burst_seconds"]))


@on_real_redis
@given(
    course=st.lists(
        st.tuples(st.sampled_from([0, 1000, 70_000]), st.integers(0, 9), lying({"day": 20}) | day_is_over),
        max_size=12,
    )
)
@pytest.mark.slow
def test_no_header_renews_a_configured_day(real_redis: Redis, course: list[Any]) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=500, requests_per_minute=0, requests_per_day=20)
    history = _play(d, ref, course, lambda: None)
    for day in {at_ms // DAY_MS for at_ms, _ in history}:
        assert sum(count for at_ms, count in history if at_ms // DAY_MS == day) <= 20


@pytest.mark.parametrize("left", [599, 300])
def test_a_reported_limit_below_the_configured_one_deepens_no_bucket(real_redis: Redis, left: int) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=500, requests_per_minute=600, burst_seconds=0.05, tokens=Estimate(INPUT, OUTPUT))
    lie = Feedback("ok", Usage(INPUT, OUTPUT), hints=Hints({"requests": AxisHint(600, left, None)}, None))
    none = Feedback("ok", Usage(INPUT, OUTPUT))
    history = _play(d, ref, [(None, 1, lie), (260, 0, none), (None, 0, none)], lambda: None)
    _require_within(history, 600, 1)


def test_a_minute_view_of_a_shallow_bucket_adds_no_second_burst(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=500, requests_per_minute=3000, burst_seconds=1)
    granted = d.take(ref)
    d.advance(260)
    for attempt in granted:
        d.claim(attempt)
        said = hints(requests=(3000, 2958, 840))
        assert d.report(attempt, Feedback("ok", Usage(0, 10), hints=said), done=True) is not None
    assert len(granted) + len(d.take(ref)) <= 3000 / 60 * (1 + 0.26)


def test_a_day_that_a_provider_ends_early_is_waited_for_and_counted_on(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50, requests_per_minute=0, requests_per_day=20)
    first = d.start(ref, 12)[0]
    said = hints(day=(12, 0, 3_600_000), exhausted="day")
    assert d.report(first, Feedback("limited", hints=said), done=False) is not None
    grant = d.ask(ref)
    assert (len(grant.permits), grant.reason, grant.at_ms) == (0, "day", d.now_ms + 3_600_000)
    d.lanes.limit("sim:fast", {"exact": True})
    d.advance(3_600_000)
    assert len(d.take(ref)) == 8
