"""A lane that silence has opened is shut again where the 429 of the call that showed it was only late."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt, Feedback
from fairlane.model.run import RunRef
from tests.support.deployment import Deployment
from tests.support.hidden_limit import REFUSAL_MS, HiddenLimit, Limit, Sliding, Window
from tests.support.redis import emptied

MINUTE_MS = 60_000
SILENCE_MS = 1000
CEILING = {"requests_per_minute": 60_000}
LEARNED = {
    *(
        "shut",
        "epoch",
        "first",
        "first_ms",
        "novice",
        "ground",
        "stray",
        "pace_then",
        "est_then",
        "in_window",
    ),
    *(
        f"requests_{name}"
        for name in ("est", "var", "open", "open_ms", "open_n", "edges", "edge_ms", "long_ms")
    ),
    *(f"requests_{name}" for name in ("age_ms", "back_ms", "put_off", "strays", "saved", "steady")),
}
on_real_redis = settings(
    max_examples=6,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=set(Phase) - {Phase.explain},
)


def _learned(d: Deployment) -> dict[str, str]:
    """What the lane knows of its limit, without what has never been set."""
    return {name: value for name, value in d.lane_state().items() if name in LEARNED and value != ""}


def _report(d: Deployment, attempt: Attempt, signal: str) -> None:
    done = signal == "ok"
    assert d.report(attempt, Feedback(signal), done=done) is not None  # type: ignore[arg-type]


def _shut(d: Deployment) -> RunRef:
    """A lane whose last call of a minute was rejected, and one more after it."""
    ref = d.queued_lane(jobs=400, **CEILING)
    served = d.start(ref, 30)
    first = d.start(ref, 1)[0]
    d.advance(REFUSAL_MS)
    _report(d, first, "limited")
    for attempt in served:
        _report(d, attempt, "ok")
    _report(d, d.start_next(ref, tries=50), "limited")
    return ref


def _open_by_silence(d: Deployment, ref: RunRef) -> tuple[Attempt, Attempt]:
    """The call whose silence opens the lane, and the next one."""
    trial = d.start_next(ref, tries=50)
    d.advance(SILENCE_MS)
    second = d.start_next(ref, tries=50)
    assert d.lane_state()["shut"] == ""
    return trial, second


@pytest.mark.parametrize("signal", ["limited", "unsent"])
def test_an_opening_is_undone_with_all_that_was_learned_from_it(real_redis: Redis, signal: str) -> None:
    d = Deployment(real_redis)
    ref = _shut(d)
    for attempt in _open_by_silence(d, ref):
        _report(d, attempt, "ok")
    for _ in range(20):
        _report(d, d.start_next(ref, tries=50), "ok")
    _report(d, d.start_next(ref, tries=50), "limited")
    _report(d, d.start_next(ref, tries=50), "limited")
    before = _learned(d)
    trial, _ = _open_by_silence(d, ref)
    assert _learned(d) != before
    _report(d, trial, signal)
    assert _learned(d) == before
    assert d.lane_state()["shut"] == "requests"


def test_an_opening_stands_once_a_call_since_then_is_answered(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _shut(d)
    trial, second = _open_by_silence(d, ref)
    _report(d, second, "ok")
    assert (d.lane_state()["opening_n"], d.lane_state()["openings"]) == ("", "")
    _report(d, trial, "limited")
    assert d.lane_state()["epoch"] == "2"


def test_two_openings_by_one_slowdown_are_undone_in_either_order(real_redis: Redis) -> None:
    for late in ((0, 1), (1, 0)):
        d = Deployment(emptied(real_redis))
        ref = _shut(d)
        before = _learned(d)
        trial, second = _open_by_silence(d, ref)
        d.advance(REFUSAL_MS)
        _report(d, second, "limited")
        again, _ = _open_by_silence(d, ref)
        for place in late:
            _report(d, (trial, again)[place], "limited")
        assert _learned(d) == before
        assert d.lane_state()["shut"] == "requests"


def test_a_call_that_was_not_sent_shows_no_opening(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _shut(d)
    before = _learned(d)
    _report(d, d.start_next(ref, tries=50), "unsent")
    d.advance(5000)
    trial = d.start_next(ref, tries=50)
    assert (_learned(d), d.lane_state()["shut"]) == (before, "requests")
    _report(d, trial, "limited")
    assert (_learned(d), d.lane_state()["epoch"]) == (before, "1")


@pytest.mark.slow(seconds=10)
@on_real_redis
@given(
    sliding=st.booleans(),
    count=st.sampled_from([60, 240]),
    late=st.sampled_from([0.05, 0.1, 0.2]),
    unsent=st.sampled_from([0.0, 0.02]),
    seed=st.integers(0, 10_000),
)
def test_late_429s_and_calls_that_were_not_sent_starve_no_lane(
    real_redis: Redis, sliding: bool, count: int, late: float, unsent: float, seed: int
) -> None:
    d, rng = Deployment(emptied(real_redis)), random.Random(seed)
    limit: Limit = Sliding(count) if sliding else Window(count, offset_ms=d.now_ms % MINUTE_MS)
    world = HiddenLimit(
        d,
        d.unknown_lane(jobs=12_000),
        limit,
        refusal_ms=lambda: 1000 if rng.random() < late else REFUSAL_MS,
        is_sent=lambda: rng.random() >= unsent,
    )
    world.run(4 * MINUTE_MS)
    assert world.admitted(d.now_ms - 2 * MINUTE_MS) >= 0.6 * 2 * count
