"""Gates admit exactly when they say so, and never more than their limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.zoo.gates import NEVER, Bucket, FixedWindow, Gate, SlidingWindow

MINUTE_MS = 60_000
gaps = st.lists(st.integers(0, 5_000), min_size=1, max_size=60)


def make(kind: str) -> Gate:
    match kind:
        case "bucket":
            return Bucket(600, 2.0, 1, 0)
        case "window":
            return FixedWindow(600, 5_000, 1, 0, 0, 0.0)
        case _:
            return SlidingWindow(600, 5_000, 1)


@pytest.mark.parametrize("kind", ["bucket", "window", "sliding"])
@given(gaps=gaps)
def test_the_earliest_time_admits_and_a_moment_before_does_not(kind: str, gaps: list[int]) -> None:
    gate, now_ms = make(kind), 0.0
    for gap in gaps:
        now_ms += gap
        gate.spend(3, now_ms)
        at_ms = gate.earliest_ms(1, now_ms)
        assert at_ms < NEVER
        if at_ms > now_ms + 1:
            assert gate.earliest_ms(1, at_ms - 1) > at_ms - 1
        assert gate.earliest_ms(1, at_ms + 1e-3) == at_ms + 1e-3
        now_ms = at_ms + 1e-3


@pytest.mark.parametrize(("kind", "burst"), [("bucket", 20), ("window", 50), ("sliding", 50)])
def test_a_greedy_caller_gets_the_burst_and_the_rate(kind: str, burst: int) -> None:
    gate, now_ms, times = make(kind), 0.0, list[float]()
    while now_ms < MINUTE_MS:
        now_ms = gate.earliest_ms(1, now_ms)
        gate.spend(1, now_ms)
        times.append(now_ms)
    assert sum(at_ms == 0 for at_ms in times) == burst
    within = sum(at_ms < MINUTE_MS for at_ms in times)
    expected = 600 + (burst if kind == "bucket" else 0)
    assert abs(within - expected) <= 1


def test_others_take_their_share_first() -> None:
    bucket = Bucket(600, 1.0, 1, 0)
    bucket.set_rate(1.0, 0.5, 0)
    bucket.spend(10, 0)
    assert bucket.earliest_ms(1, 0) == pytest.approx(200, rel=1e-4)
    window = FixedWindow(600, MINUTE_MS, 1, 0, 0, 0.0)
    window.set_rate(1.0, 0.5, 0)
    window.spend(300, 0)
    assert window.earliest_ms(1, 0) == MINUTE_MS
    assert window.remaining(0) == 300, "a header shows also what others have not taken yet"
    assert window.remaining(MINUTE_MS / 2) == 150


def test_a_refund_comes_back_while_it_counts() -> None:
    window = FixedWindow(60, 10_000, 1, 0, 0, 0.0)
    window.spend(10, 1_000)
    window.refund(4, 1_000, 2_000)
    assert window.remaining(2_000) == 4
    window.refund(4, 1_000, 12_000)
    assert window.remaining(12_000) == 10
    sliding = SlidingWindow(60, 10_000, 1)
    sliding.spend(10, 1_000)
    sliding.refund(4, 1_000, 2_000)
    assert sliding.remaining(2_000) == 4


def test_an_amount_above_the_capacity_waits_for_a_full_bucket_and_is_owed() -> None:
    bucket = Bucket(60, 1.0, 1, 0)
    assert bucket.earliest_ms(5, 0) == 0
    bucket.spend(5, 0)
    assert bucket.earliest_ms(1, 0) == pytest.approx(5_000, rel=1e-4)


def test_refused_calls_that_count_cannot_close_a_bucket_for_good() -> None:
    bucket = Bucket(60, 1.0, 1, 0)
    for _ in range(100):
        bucket.spend(1, 0)
    assert bucket.earliest_ms(1, 0) == pytest.approx(3_000, rel=1e-4)
