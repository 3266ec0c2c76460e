"""Limits that others share, that change, that shrink on overruns, and that bound acceleration."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fairlane.lab.simulator.limits.admission import Limits
from fairlane.testing import SimulatedModel

SHAPES = st.sampled_from(["bucket", "window", "sliding", "second"])
EVERY_SHAPE = pytest.mark.parametrize("shape", ["bucket", "window", "sliding", "second"])
ARRIVALS = st.lists(st.tuples(st.integers(0, 1500) | st.integers(0, 20), st.integers(1, 40)), max_size=40)


def limits(**fields: Any) -> Limits:
    return Limits(SimulatedModel.model_validate(fields), 0)


def admitted(judge: Limits, now_ms: int, attempts: int = 10_000) -> int:
    """How many requests of one token are admitted at ``now_ms`` before the first rejection."""
    for count in range(attempts):
        if judge.admit(1, now_ms, 1) is not None:
            return count
    return attempts


FOREIGN = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 10), st.integers(1, 2000)), min_size=1, max_size=3
)


@given(SHAPES, st.integers(60, 1200), FOREIGN, st.lists(st.integers(1, 2000), min_size=1, max_size=30))
def test_requests_of_others_and_the_rest_add_up_to_the_limit(
    shape: str, per_minute: int, foreign: list[tuple[int, int, int]], gaps_ms: list[int]
) -> None:
    judge = limits(requests_per_minute=per_minute, shape=shape, window_seconds=1, foreign=foreign)
    alone = limits(requests_per_minute=per_minute, shape=shape, window_seconds=1)
    now_ms = ours = 0
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        before = judge.levels(now_ms)["requests"].remaining
        assert before <= alone.levels(now_ms)["requests"].limit
        assert admitted(judge, now_ms) == before
        ours += before
    seconds = now_ms // 1000 + 1
    most = {"bucket": Fraction(now_ms, 1000) + 1, "sliding": Fraction(2 * seconds)}.get(shape, seconds)
    assert ours + judge.foreign_admitted <= most * Fraction(per_minute, 60) + 1


@given(SHAPES, FOREIGN)
def test_others_below_the_limit_are_all_admitted(shape: str, foreign: list[tuple[int, int, int]]) -> None:
    judge = limits(requests_per_minute=600_000, shape=shape, foreign=foreign)
    judge.levels(20_000)
    asked = sum(-(-duration * rate // 60) for _, duration, rate in foreign)
    assert judge.foreign_admitted == asked


@given(SHAPES, FOREIGN, st.lists(st.integers(0, 12_000), max_size=30))
def test_computing_a_wait_changes_nothing_for_others(
    shape: str, foreign: list[tuple[int, int, int]], looks_ms: list[int]
) -> None:
    fields = {"requests_per_minute": 300, "shape": shape, "window_seconds": 2, "foreign": foreign}
    watched, left_alone = limits(**fields), limits(**fields)
    for now_ms in sorted(looks_ms):
        watched.levels(now_ms)
        watched.wait_ms(1, now_ms)
    assert watched.levels(15_000) == left_alone.levels(15_000)
    assert watched.foreign_admitted == left_alone.foreign_admitted


def test_the_tokens_of_others_are_input() -> None:
    judge = limits(
        tokens_per_minute=6000,
        input_tokens_per_minute=6000,
        output_tokens_per_minute=6000,
        foreign=[[0, 1, 60]],
        foreign_tokens=30,
    )
    levels = judge.levels(0)
    assert [levels[axis].remaining for axis in ("tokens", "input", "output")] == [70, 70, 100]


@given(
    SHAPES,
    SHAPES,
    st.tuples(st.integers(60, 6000), st.integers(600, 9000), st.integers(300, 6000)),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6), st.integers(1, 600)), max_size=2),
    st.lists(st.tuples(st.integers(0, 20), st.integers(30, 3000)), max_size=2, unique_by=lambda it: it[0]),
    ARRIVALS,
    st.integers(1, 80),
)
def test_the_wait_of_all_limits_is_the_first_moment_that_admits(
    shape: str,
    token_shape: str,
    rates: tuple[int, int, int],
    foreign: list[tuple[int, int, int]],
    changes: list[tuple[int, int]],
    arrivals: list[tuple[int, int]],
    amount: int,
) -> None:
    judge = limits(
        requests_per_minute=rates[0],
        tokens_per_minute=rates[1],
        output_tokens_per_minute=rates[2],
        shape=shape,
        token_shape=token_shape,
        window_seconds=1.5,
        foreign=foreign,
        foreign_tokens=7,
        limit_changes=sorted(changes),
    )
    now_ms = 0
    for gap_ms, tokens in arrivals:
        now_ms += gap_ms
        judge.admit(tokens, now_ms, tokens // 2)
    wait_ms = judge.wait_ms(amount, now_ms, amount // 2)
    assume(wait_ms < 60_000)
    for later_ms in sorted({*range(0, wait_ms, max(1, wait_ms // 300)), max(0, wait_ms - 1)}):
        if later_ms < wait_ms:
            assert judge.admit(amount, now_ms + later_ms, amount // 2) is not None
    assert judge.admit(amount, now_ms + wait_ms, amount // 2) is None


def test_a_wait_ends_when_two_limits_admit_at_once() -> None:
    judge = limits(requests_per_minute=30, shape="second", tokens_per_minute=60, token_shape="bucket")
    assert judge.admit(1, 1000) == "requests"
    assert judge.admit(1, 2900) is None
    assert judge.levels(3900)["tokens"].remaining == 1
    assert judge.wait_ms(1, 2900) == 1100
    assert judge.admit(1, 4900) is None
    assert judge.wait_ms(1, 4900) == 1100
    assert judge.wait_ms(1, 5900) == 100
    late = limits(requests_per_minute=30, shape="second", tokens_per_minute=20, token_shape="bucket")
    assert late.admit(1, 900) is None
    assert late.wait_ms(1, 900) == 3100


@EVERY_SHAPE
def test_a_limit_changes_at_the_configured_time(shape: str) -> None:
    judge = limits(
        requests_per_minute=600, shape=shape, window_seconds=1, limit_changes=[[10, 120], [20, 6000]]
    )
    assert [admitted(judge, at) for at in (9_000, 12_000, 19_000, 22_000)] == [10, 2, 2, 100]
    assert judge.levels(22_000)["requests"].limit == 6000


def test_computing_a_wait_twice_gives_the_same_moment() -> None:
    judge = limits(requests_per_minute=60, shape="window", foreign=[[0, 100, 45]])
    assert admitted(judge, 0) == 59
    first_ms = judge.wait_ms(1, 10)
    assert first_ms == 60_000 - 10
    assert [judge.wait_ms(1, at) for at in (500, 59_999, 60_000)] == [59_500, 1, 0]
    assert admitted(judge, 60_000) == 59
    assert judge.wait_ms(1, 60_000) == 60_000


def test_if_others_leave_nothing_the_wait_is_a_lower_bound() -> None:
    judge = limits(requests_per_minute=60, foreign=[[0, 10_000, 6000]])
    assert judge.admit(1, 10) == "requests"
    assert 60_000 < judge.wait_ms(1, 10) < 10_000_000


def test_a_wait_includes_a_later_rise_of_the_limit() -> None:
    judge = limits(requests_per_minute=1, limit_changes=[[10, 60_000]])
    assert admitted(judge, 0) == 1
    assert judge.wait_ms(1, 0) == 10_001


@pytest.mark.parametrize(
    ("limit", "axis"),
    [
        ({"input_tokens_per_minute": 60}, "input"),
        ({"output_tokens_per_minute": 60}, "output"),
        ({"requests_per_day": 1}, "day"),
    ],
)
def test_every_axis_rejects_under_its_own_name(limit: dict[str, int], axis: str) -> None:
    judge = limits(**limit)
    assert judge.admit(2, 0, 1) is None
    assert judge.admit(2, 0, 1) == axis
    assert judge.levels(0).keys() == {axis}


def test_a_day_ends_a_day_after_the_start() -> None:
    judge = limits(requests_per_day=100, requests_per_minute=60_000)
    assert admitted(judge, 5) == 100
    assert judge.wait_ms(1, 5) == 86_400_000 - 5
    assert (judge.levels(5)["day"].limit, judge.levels(5)["day"].remaining) == (100, 0)
    assert admitted(judge, 86_400_000) == 100


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(1, 40)), max_size=60), st.integers(1, 20))
def test_acceleration_keeps_a_minute_within_its_multiple_of_the_last(
    bursts: list[tuple[int, int]], floor: int
) -> None:
    judge = limits(acceleration=1.5, acceleration_floor=floor)
    now_ms, log = 0, list[int]()
    for gap_ms, wanted in bursts:
        now_ms += gap_ms
        for _ in range(wanted):
            recent = sum(now_ms - 60_000 < at for at in log)
            earlier = sum(now_ms - 120_000 < at <= now_ms - 60_000 for at in log)
            allowed = recent + 1 <= max(floor, 1.5 * earlier)
            assert judge.admit(0, now_ms) == (None if allowed else "requests")
            if allowed:
                log.append(now_ms)
        wait_ms = judge.wait_ms(0, now_ms)
        if wait_ms:
            assert judge.admit(0, now_ms + wait_ms - 1) == "requests"
            now_ms += wait_ms
            assert judge.admit(0, now_ms) is None
            log.append(now_ms)


def test_each_overrun_shrinks_once_and_admissions_restore() -> None:
    judge = limits(requests_per_minute=6000, shrink_on_overrun=0.5)

    def limit(now_ms: int) -> int:
        return judge.levels(now_ms)["requests"].limit

    assert admitted(judge, 0) == 100
    assert limit(0) == 3000
    for now_ms in (0, 500, 999):
        admitted(judge, now_ms)
    assert limit(999) <= 3060
    admitted(judge, 1000)
    assert 1500 <= limit(1000) <= 1560
    before = limit(1000)
    for now_ms in range(2000, 62_000, 1000):
        for _ in range(25):
            assert judge.admit(1, now_ms) is None
    assert limit(62_000) == pytest.approx(before + 25 * 60 / 2, abs=60)
    assert limit(600_000) == limit(62_000)


def test_overruns_leave_a_twentieth_and_use_restores_the_whole() -> None:
    judge = limits(tokens_per_minute=60_000, shrink_on_overrun=0.1)
    for now_ms in range(0, 10_000, 1000):
        judge.admit(1000, now_ms)
        judge.admit(1000, now_ms)
    assert judge.levels(10_000)["tokens"].limit <= 5000
    now_ms = 10_000
    while judge.levels(now_ms)["tokens"].limit < 60_000:
        now_ms += judge.wait_ms(50, now_ms)
        assert judge.admit(50, now_ms) is None
    assert now_ms < 10 * 60_000


@given(st.integers(1, 4), st.integers(0, 4), st.lists(st.booleans(), max_size=50))
def test_calls_in_flight_never_exceed_concurrency_and_queue(
    concurrency: int, queue: int, arrivals: list[bool]
) -> None:
    judge = limits(max_concurrency=concurrency, queue=queue)
    for arrives in arrivals:
        if arrives:
            full = judge.in_flight == concurrency + queue
            assert judge.admit(1, 0) == ("concurrency" if full else None)
        elif judge.in_flight:
            judge.release()
        assert 0 <= judge.in_flight <= concurrency + queue
