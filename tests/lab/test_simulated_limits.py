"""The simulated provider's limits are exact, and admit together or not at all."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.lab.simulator.limits.admission import Limits
from fairlane.lab.simulator.limits.shapes import TokenBucket
from fairlane.testing import SimulatedModel

RATES = st.one_of(st.integers(1, 60_000), st.decimals("0.01", "9999", places=2).map(float))
BURSTS = st.decimals("0.01", "20", places=2).map(float)
GAPS_MS = st.lists(st.integers(0, 3000) | st.integers(0, 25), max_size=60)


def allowed(
    taken: list[tuple[int, int]], amount: int, now_ms: int, rate: Fraction, capacity: Fraction
) -> bool:
    """Whether one more ``amount`` keeps every window that ends now within ``rate * t + capacity``."""
    if amount > capacity:
        return False
    in_window = Fraction(0)
    for at_ms, earlier in reversed(taken):
        in_window += earlier
        if in_window + amount > capacity + rate * (now_ms - at_ms):
            return False
    return True


def bounds(per_minute: float, burst: float) -> tuple[Fraction, Fraction]:
    rate = Fraction(str(per_minute)) / 60_000
    return rate, max(rate * 1000 * Fraction(str(burst)), Fraction(1))


@given(RATES, BURSTS, GAPS_MS)
def test_a_request_is_admitted_exactly_when_no_window_exceeds_rate_times_time_plus_burst(
    per_minute: float, burst: float, gaps_ms: list[int]
) -> None:
    rate, capacity = bounds(per_minute, burst)
    bucket = TokenBucket(per_minute, burst, now_ms=0)
    now_ms, taken = 0, list[tuple[int, int]]()
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        expected = allowed(taken, 1, now_ms, rate, capacity)
        assert bucket.take(1, now_ms) is expected
        if expected:
            taken.append((now_ms, 1))


@given(RATES, BURSTS, st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 400)), max_size=60))
def test_tokens_up_to_the_capacity_are_admitted_exactly_when_no_window_exceeds_the_rate(
    per_minute: float, burst: float, arrivals: list[tuple[int, int]]
) -> None:
    rate, capacity = bounds(per_minute, burst)
    bucket = TokenBucket(per_minute, burst, now_ms=0)
    now_ms, taken = 0, list[tuple[int, int]]()
    for gap_ms, wanted in arrivals:
        now_ms += gap_ms
        amount = min(wanted, int(capacity))
        expected = allowed(taken, amount, now_ms, rate, capacity)
        assert bucket.take(amount, now_ms) is expected
        if expected:
            taken.append((now_ms, amount))


@given(RATES, BURSTS, st.integers(1, 5000), st.lists(st.integers(0, 400), max_size=20))
def test_the_reported_wait_is_enough_and_a_millisecond_less_is_not(
    per_minute: float, burst: float, amount: int, spent: list[int]
) -> None:
    bucket = TokenBucket(per_minute, burst, now_ms=0)
    for earlier in spent:
        bucket.take(earlier, 0)
    wait_ms = bucket.wait_ms(amount, 0)
    if wait_ms:
        assert not bucket.holds(amount, wait_ms - 1)
    assert bucket.take(amount, wait_ms)


def test_an_amount_above_the_capacity_needs_a_full_bucket_and_is_owed() -> None:
    bucket = TokenBucket(60_000, 1.0, now_ms=0)
    assert bucket.take(1, 0)
    assert not bucket.take(2500, 0)
    assert bucket.take(2500, 1)
    assert not bucket.take(1, 1501)
    assert bucket.take(1, 1502)


def test_a_tenth_of_a_request_is_not_lost_to_rounding() -> None:
    bucket = TokenBucket(6, 1.0, now_ms=0)
    assert bucket.take(1, 0)
    for now_ms in range(1, 10_000, 7):
        assert not bucket.take(1, now_ms)
    assert bucket.take(1, 10_000)


def test_a_bucket_holds_at_least_one_request_however_short_its_burst() -> None:
    bucket = TokenBucket(1, 0.01, now_ms=0)
    assert bucket.take(1, 0)
    assert bucket.wait_ms(1, 0) == 60_000
    assert bucket.full_in_ms(0) == 60_000


@pytest.mark.parametrize(
    ("model", "axis"),
    [
        (SimulatedModel(requests_per_minute=60), "requests"),
        (SimulatedModel(tokens_per_minute=600), "tokens"),
        (SimulatedModel(max_concurrency=1), "concurrency"),
    ],
)
def test_admit_returns_the_exhausted_axis(model: SimulatedModel, axis: str) -> None:
    limits = Limits(model, 0)
    assert limits.admit(10, 0) is None
    assert limits.admit(10, 0) == axis


def test_a_request_that_one_axis_rejects_is_charged_on_none() -> None:
    limits = Limits(SimulatedModel(requests_per_minute=120, tokens_per_minute=600), 0)
    assert limits.admit(6, 0) is None
    assert limits.admit(6, 0) == "tokens"
    assert limits.levels(0)["requests"].remaining == 1
    assert limits.levels(0)["tokens"].remaining == 4
    assert limits.in_flight == 1


def test_a_released_call_leaves_room_for_another() -> None:
    limits = Limits(SimulatedModel(max_concurrency=1), 0)
    assert limits.admit(0, 0) is None
    limits.release()
    assert limits.admit(0, 0) is None


def test_the_wait_is_that_of_the_slower_axis() -> None:
    limits = Limits(SimulatedModel(requests_per_minute=60, tokens_per_minute=60), 0)
    assert limits.admit(1, 0) is None
    assert limits.wait_ms(1, 0) == 1000
    assert Limits(SimulatedModel(), 0).wait_ms(1, 0) == 0
