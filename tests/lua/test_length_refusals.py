"""A few refusals by a stated token limit say only that calls were long: they lower neither rate nor depth."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.hints import Axis, Hints
from fairlane.model.job import Attempt, Feedback
from fairlane.model.run import RunRef
from fairlane.model.tokens import Estimate, Usage
from tests.support.deployment import Deployment, entry
from tests.support.redis import emptied

PER_MINUTE = 60_000


def queued(d: Deployment, **limits: float | str) -> RunRef:
    lane = d.lane("sim:fast", **({"tokens_per_minute": PER_MINUTE} | limits))
    ref = d.submit(rows=1000)
    entries = {lane: [entry(job, Estimate(100, 100, guessed=True)) for job in range(1000)]}
    assert d.runs.feed(ref, d.epoch, 0, 1000, entries, [], d.now_ms) == 1
    return ref


def next_call(d: Deployment, ref: RunRef) -> Attempt:
    d.advance(3000)
    return d.start(ref)[0]


def answered(d: Deployment, ref: RunRef, calls: int) -> None:
    for _ in range(calls):
        assert d.finish(next_call(d, ref), used=Usage(100, 100))


def refused(d: Deployment, ref: RunRef, axis: Axis = "tokens") -> str:
    """Refuse the lane's next call; the rate of the axis that the lane has learned from 429s, if any."""
    feedback = Feedback("limited", retry_after_ms=200, hints=Hints({}, exhausted=axis))
    assert d.report(next_call(d, ref), feedback, done=False)
    return d.lane_state().get(f"{axis}_est", "")


def test_two_refusals_change_no_rate_and_a_third_one_does(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    answered(d, ref, 5)
    assert [refused(d, ref), refused(d, ref)] == ["", ""]
    assert float(refused(d, ref)) < PER_MINUTE


def test_after_25_answers_a_refusal_is_excused_again(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    for _ in range(4):
        assert refused(d, ref) == ""
        answered(d, ref, 25)


@pytest.mark.parametrize(
    "limits", [{"charge": "reserved"}, {"tokens_per_minute": None, "requests_per_minute": 60}]
)
def test_no_refusal_is_excused_if_lengths_are_known_or_no_limit_is_stated(
    real_redis: Redis, limits: dict[str, float | str]
) -> None:
    d = Deployment(real_redis)
    ref = queued(d, **limits)
    axis: Axis = "tokens" if limits.get("charge") else "requests"
    assert float(refused(d, ref, axis)) > 0


def test_an_excused_refusal_waits_as_long_as_the_provider_says(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    answered(d, ref, 3)
    assert refused(d, ref) == ""
    assert not d.ask(ref).permits
    d.advance(199)
    assert not d.ask(ref).permits
    d.advance(1000)
    assert d.ask(ref).permits


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(verdicts=st.lists(st.sampled_from([True, True, False]), min_size=4, max_size=40))
def test_a_third_refusal_in_twenty_five_calls_lowers_the_rate(
    real_redis: Redis, verdicts: list[bool]
) -> None:
    d = Deployment(emptied(real_redis))
    ref = queued(d)
    refusals = 0
    for answer in verdicts[:24]:
        if answer:
            answered(d, ref, 1)
        else:
            refusals += 1
            refused(d, ref)
        assert bool(d.lane_state().get("tokens_est", "")) == (refusals > 2)
        if refusals > 2:
            break
