"""Headers that name no axis: the lane infers it from how what is left falls; until then they lift nothing."""

from __future__ import annotations

from typing import Literal

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt, Feedback
from fairlane.model.run import RunRef
from fairlane.model.tokens import Estimate, Usage
from tests.support.deployment import Deployment
from tests.support.hidden_limit import HiddenLimit, Places, hints
from tests.support.redis import emptied

INPUT = 20
LANE = "sim:fast"
Unit = Literal["requests", "tokens"]
on_real_redis = settings(
    max_examples=25,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=set(Phase) - {Phase.explain},
)


def _answered(d: Deployment, attempt: Attempt, output: int, limit: float, left: float) -> None:
    feedback = Feedback("ok", Usage(INPUT, output), hints=hints(unnamed=(limit, left, 1000)))
    assert d.report(attempt, feedback, done=True) is not None


def _next(d: Deployment, ref: RunRef, waiting: list[Attempt]) -> Attempt:
    """A call in flight: one that waits for its answer, or the next that the lane lets start."""
    while not waiting:
        d.advance(200)
        waiting += d.take(ref)
    attempt = waiting.pop(0)
    d.claim(attempt)
    return attempt


@on_real_redis
@given(
    unit=st.sampled_from(["requests", "tokens"]),
    calls=st.sampled_from([60, 600, 60_000]),
    outputs=st.lists(st.integers(20, 2000), min_size=8, max_size=8),
)
def test_an_unnamed_limit_belongs_to_the_axis_whose_use_lowers_it(
    real_redis: Redis, unit: Unit, calls: int, outputs: list[int]
) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.unknown_lane(jobs=100, tokens=Estimate(INPUT, 300))
    limit = left = float(calls * (1 if unit == "requests" else INPUT + 2000))
    waiting: list[Attempt] = []
    for output in outputs:
        left -= 1 if unit == "requests" else INPUT + output
        _answered(d, _next(d, ref, waiting), output, limit, max(0.0, left))
        other = "tokens" if unit == "requests" else "requests"
        assert not d.lane_state().get(f"{other}_reported")
    assert float(d.lane_state()[f"{unit}_reported"]) == limit


@on_real_redis
@given(limit=st.sampled_from([6e4, 6e6, 1e12]), left=st.floats(0, 1), reports=st.integers(1, 6))
def test_an_unnamed_limit_raises_no_rate_while_its_axis_is_unknown(
    real_redis: Redis, limit: float, left: float, reports: int
) -> None:
    silent, reporting = Deployment(emptied(real_redis)), []
    for said in (False, True):
        d = silent if not said else Deployment(emptied(real_redis))
        ref = d.unknown_lane(jobs=100, tokens=Estimate(INPUT, 300))
        waiting: list[Attempt] = []
        for _ in range(reports):
            attempt = _next(d, ref, waiting)
            if said:
                _answered(d, attempt, 300, limit, left * limit)
            else:
                assert d.report(attempt, Feedback("ok", Usage(INPUT, 300)), done=True) is not None
        reporting.append(len(waiting) + len(d.take(ref)))
    assert reporting[0] == reporting[1]


def test_a_limit_mistaken_for_requests_is_undone(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=200, tokens=Estimate(INPUT, 300))
    left, waiting = 60_000.0, list[Attempt]()
    for fell in (1, 1, 1, *[320] * 8):
        left -= fell
        _answered(d, _next(d, ref, waiting), 300, 60_000, left)
    state = d.lane_state()
    assert not state["requests_reported"]
    assert float(state["tokens_reported"]) == 60_000


def test_a_limit_of_one_call_at_once_is_not_flooded_by_an_unnamed_limit_of_tokens(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=400)
    provider = HiddenLimit(
        d, ref, Places(1), tokens_of=lambda call: 400,
        announced=lambda now_ms, admitted: {"hints": hints(unnamed=(60_000, 50_000, 1000))},
    )  # fmt: skip
    provider.run(30_000)
    assert provider.admitted() >= 60
    assert provider.refused() <= 25
