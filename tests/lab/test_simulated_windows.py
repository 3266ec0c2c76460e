"""Fixed windows, windows of a second and sliding logs admit exactly their count, and report the wait."""

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.lab.simulator.limits.shapes import FixedWindow, Rate, Shape, SlidingLog, TokenBucket

RATES = st.one_of(st.integers(1, 6000), st.decimals("0.5", "9999", places=1).map(float))
WINDOWS_MS = st.sampled_from([1, 250, 1000, 10_000, 60_000])
ARRIVALS = st.lists(st.tuples(st.integers(0, 1500) | st.integers(0, 20), st.integers(0, 40)), max_size=60)
MAKERS: list[Callable[[Rate, int], Shape]] = [
    lambda rate, window_ms: TokenBucket(rate, window_ms / 1000, 0),
    lambda rate, window_ms: FixedWindow(rate, window_ms, 0),
    lambda rate, window_ms: SlidingLog(rate, window_ms, 0),
]
EVERY_SHAPE = pytest.mark.parametrize("make", MAKERS, ids=["bucket", "window", "sliding"])


def taken(shape: Shape, arrivals: list[tuple[int, int]], most: int | None = None) -> list[tuple[int, int]]:
    """The time and amount of each admission, with amounts up to ``most``."""
    given_out, now_ms = list[tuple[int, int]](), 0
    for gap_ms, wanted in arrivals:
        now_ms += gap_ms
        amount = wanted if most is None else min(wanted, most)
        if shape.holds(amount, now_ms):
            shape.spend(amount, now_ms)
            given_out.append((now_ms, amount))
    return given_out


@given(RATES, WINDOWS_MS, ARRIVALS)
def test_a_fixed_window_admits_exactly_up_to_its_count(
    per_minute: float, window_ms: int, arrivals: list[tuple[int, int]]
) -> None:
    count = Fraction(str(per_minute)) * window_ms / 60_000
    shape, used, now_ms = FixedWindow(per_minute, window_ms, 0), Counter[int](), 0
    for gap_ms, wanted in arrivals:
        now_ms += gap_ms
        index, amount = now_ms // window_ms, min(wanted, math.ceil(count))
        quota = math.ceil((index + 1) * count) - math.ceil(index * count)
        assert shape.remaining(now_ms) == quota - used[index]
        expected = used[index] + amount <= quota
        assert shape.holds(amount, now_ms) is expected
        if expected:
            shape.spend(amount, now_ms)
            used[index] += amount


@given(RATES, st.sampled_from([100, 1000, 60_000]))
def test_windows_without_a_whole_count_hold_the_rate_together(per_minute: float, window_ms: int) -> None:
    shape, total = FixedWindow(per_minute, window_ms, 0), 0
    count = Fraction(str(per_minute)) * window_ms / 60_000
    for index in range(50):
        held = shape.remaining(index * window_ms)
        assert held in (math.floor(count), math.ceil(count))
        total += held
        assert 0 <= total - count * (index + 1) < 1


@given(RATES, st.sampled_from([250, 1000, 10_000]), ARRIVALS)
def test_a_sliding_log_admits_at_most_its_count_in_any_window(
    per_minute: float, window_ms: int, arrivals: list[tuple[int, int]]
) -> None:
    count = max(1, math.floor(Fraction(str(per_minute)) * window_ms / 60_000))
    given_out = taken(SlidingLog(per_minute, window_ms, 0), arrivals, count)
    for end_ms, _ in given_out:
        window = [amount for at_ms, amount in given_out if end_ms - window_ms < at_ms <= end_ms]
        assert sum(window) <= count


def test_a_sliding_log_rejects_only_amounts_that_exceed_its_count() -> None:
    log = SlidingLog(3, 60_000, 0)
    assert [at for at, _ in taken(log, [(at, 1) for at in (0, 10, 10, 10)])] == [0, 10, 20]
    assert not log.holds(1, 59_999)
    assert log.holds(1, 60_000)
    assert log.remaining(60_010) == 2


def test_a_window_of_a_second_has_a_sixtieth_of_the_rate() -> None:
    shape = FixedWindow(60_000, 1000, 0)
    assert sum(shape.holds(1, 0) and not shape.spend(1, 0) for _ in range(2000)) == 1000
    assert shape.wait_ms(1, 400) == shape.full_in_ms(400) == 600
    assert shape.remaining(1000) == 1000


def test_windows_count_from_their_start() -> None:
    shape = FixedWindow(2, 60_000, 500)
    shape.spend(2, 60_499)
    assert not shape.holds(1, 60_499)
    assert shape.wait_ms(1, 60_499) == 1
    assert shape.holds(2, 60_500)


def test_an_amount_above_every_count_needs_an_untouched_window_and_is_owed() -> None:
    shape = FixedWindow(60_000, 1000, 0)
    shape.spend(1, 0)
    assert not shape.holds(2500, 999)
    assert shape.wait_ms(2500, 0) == 1000
    shape.spend(2500, 1000)
    assert [shape.remaining(at) for at in (1000, 2000, 3000, 4000)] == [0, 0, 500, 1000]


def test_an_amount_above_the_count_of_a_log_needs_it_empty() -> None:
    log = SlidingLog(10, 60_000, 0)
    log.spend(1, 0)
    assert log.wait_ms(25, 1) == 59_999
    log.spend(25, 60_000)
    assert not log.holds(0, 60_000)
    assert log.wait_ms(1, 60_000) == log.full_in_ms(60_000) == 60_000


@EVERY_SHAPE
@given(RATES, st.sampled_from([250, 1000, 3000]), ARRIVALS, st.integers(1, 60))
def test_the_reported_wait_is_the_first_moment(
    make: Callable[[Rate, int], Shape],
    per_minute: float,
    window_ms: int,
    arrivals: list[tuple[int, int]],
    amount: int,
) -> None:
    shape = make(per_minute, window_ms)
    taken(shape, arrivals)
    now_ms = sum(gap_ms for gap_ms, _ in arrivals)
    wait_ms = shape.wait_ms(amount, now_ms)
    for later_ms in {*range(0, wait_ms, max(1, wait_ms // 200)), max(0, wait_ms - 1)}:
        if later_ms < wait_ms:
            assert not shape.clone().holds(amount, now_ms + later_ms)
    assert shape.holds(amount, now_ms + wait_ms)


@EVERY_SHAPE
@given(st.lists(RATES, min_size=2, max_size=5), st.sampled_from([250, 1000]), ARRIVALS)
def test_a_changing_rate_never_admits_more_than_the_highest(
    make: Callable[[Rate, int], Shape], rates: list[float], window_ms: int, arrivals: list[tuple[int, int]]
) -> None:
    shape, now_ms, given_out = make(rates[0], window_ms), 0, list[tuple[int, int]]()
    for step, (gap_ms, _) in enumerate(arrivals):
        now_ms += gap_ms
        if step % 7 == 0:
            shape.set_rate(rates[step // 7 % len(rates)], now_ms)
        while shape.holds(1, now_ms) and len(given_out) < 300:
            shape.spend(1, now_ms)
            given_out.append((now_ms, 1))
    highest = Fraction(str(max(rates)))
    held = max(Fraction(1), highest * window_ms / 60_000)
    for (begin_ms, _), (end_ms, _) in pairwise([(0, 0), *given_out]):
        window = sum(amount for at_ms, amount in given_out if begin_ms <= at_ms <= end_ms)
        assert window <= 2 * math.ceil(held) + highest * (end_ms - begin_ms) / 60_000


@EVERY_SHAPE
def test_a_copy_is_independent(make: Callable[[Rate, int], Shape]) -> None:
    shape = make(60, 1000)
    twin = shape.clone()
    twin.spend(1, 0)
    assert shape.holds(1, 0)
    assert not twin.holds(1, 0)


def test_a_lower_rate_keeps_a_bucket_up_to_its_capacity_and_a_higher_one_adds_nothing() -> None:
    bucket = TokenBucket(600, 1.0, 0)
    bucket.set_rate(120, 0)
    assert bucket.remaining(0) == 2
    bucket.set_rate(600, 0)
    assert bucket.remaining(0) == 2
    assert bucket.full_in_ms(0) == 800
