"""Numbers in words round to the nearest, and to nothing that they are not."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.figures import counted, dollars, figure, latency, percent, short, took


def read(shown: str) -> Decimal:
    return Decimal(shown.replace(",", "").replace("$", ""))


@given(st.floats(-1e14, 1e14), st.integers(2, 6))
def test_a_figure_is_the_nearest_of_so_many_digits_and_keeps_its_whole_part(
    value: float, digits: int
) -> None:
    shown = figure(value, digits)
    exact = Decimal(value)
    if "e" not in shown:
        assert shown.strip("-0.,") or not value
    step = Decimal(10) ** (exact.adjusted() - digits + 1) if value else Decimal(1)
    assert abs(read(shown) - exact) <= max(min(step, Decimal(1)) / 2, step if abs(value) < 1 else Decimal(0))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((None, "–"), (0.0, "0"), (-0.0, "0"), (-0.25, "-0.25"), (1 / 3, "0.3333"), (9999.96, "10,000")),
        *((12_345.6, "12,346"), (123_456_789.0, "123,456,789"), (1e300, "1e+300"), (1e-12, "1e-12")),
        *((0.99999, "0.9999"), (-0.99999, "-0.9999"), (1.0, "1"), (1.00001, "1"), (float("inf"), "inf")),
    ],
)
def test_a_figure_has_no_exponent_where_its_digits_fit(value: float | None, shown: str) -> None:
    assert figure(value) == shown


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(0, 2))
def test_only_all_are_100_percent_and_only_none_are_0(part: int, whole: int, places: int) -> None:
    part = min(part, whole)
    shown = percent(part, whole, places)
    assert (Decimal(shown.strip("<")) == 100) is (part == whole)
    assert (shown.strip("0.") == "") is (part == 0)
    step = Decimal(1).scaleb(-places)
    if shown.startswith("<"):
        assert Decimal(100 * part) / whole < step
    elif part < whole:
        nearest = (Decimal(100 * part) / whole).quantize(step, ROUND_HALF_EVEN)
        assert abs(Decimal(shown) - nearest) <= step


def test_a_share_beyond_all_is_100_percent_or_more() -> None:
    assert (percent(1.004), percent(1.2), percent(0.9996, places=1), percent(3, 0)) == (
        "100",
        "120",
        "99.9",
        "0",
    )


@given(st.floats(1e-12, 1e9))
def test_an_amount_of_dollars_is_off_by_half_a_cent_or_half_a_percent_at_most(cost: float) -> None:
    shown = dollars(cost)
    assert "e" not in shown
    off = abs(read(shown) - Decimal(cost))
    assert off <= (Decimal("0.005") if cost >= 1 else Decimal(cost) * Decimal("0.005001"))
    assert len(shown.partition(".")[2]) >= 2


@pytest.mark.parametrize(
    ("cost", "shown"),
    [
        (None, "–"),
        (0.0, "$0.00"),
        (-1.5, "$-1.50"),
        (float("inf"), "–"),
        (0.0149, "$0.0149"),
        (1e-7, "$0.0000001"),
        (0.9999, "$1.00"),
        (12_345.678, "$12,345.68"),
    ],
)
def test_dollars_below_a_dollar_keep_the_digits_that_count(cost: float | None, shown: str) -> None:
    assert dollars(cost) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (999_999, "999,999"),
        (1_234_567, "1.23M"),
        (999_999_600, "1,000M"),
        (10**12, "1,000G"),
        (45_600_000_000, "45.6G"),
    ],
)
def test_a_short_count_has_no_exponent(count: int, shown: str) -> None:
    assert short(count) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0, "0 ms"),
        (0.2, "0.2 ms"),
        (850, "850 ms"),
        (999.6, "1 s"),
        (1_999, "2 s"),
        (12_345, "12.3 s"),
        (999_950, "1,000 s"),
    ],
)
def test_a_latency_has_three_digits(milliseconds: float, shown: str) -> None:
    assert latency(milliseconds) == shown


def test_a_duration_is_rounded_down_on_both_sides_of_a_minute() -> None:
    assert (took(59_990), took(60_000), took(3_599_999)) == ("59.9 s", "1:00 min", "59:59 min")


def test_one_is_no_plural() -> None:
    assert (counted(1, "call"), counted(2, "call"), counted(1_000, "retry", "retries")) == (
        "1 call",
        "2 calls",
        "1,000 retries",
    )
