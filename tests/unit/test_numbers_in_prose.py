"""Numbers in outputs and expected fields are read exactly; a field with several numbers matches none."""

from __future__ import annotations

import time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.evaluators.builders import numeric_match
from fairlane.evaluators.numbers import last_number, numbers_in
from fairlane.evaluators.scorers import Score, score


def matched(output: str, expected: Any, **options: Any) -> Score:
    return score(numeric_match("answer", **options), output, {"answer": expected})


@pytest.mark.parametrize(
    "expected",
    [
        *(
            "9:30",
            "3-5",
            "3 to 5",
            "3, 4",
            "2024-01-05",
            "1/2/3",
            "1.234,56",
            "1 000",
            "1 3/4",
            "2^5",
            "5 ± 0.1",
        ),
        *([3, 4], {"low": 3, "high": 4}, "between $3 and $4", "#### 3 or 4", "3.5/4.5", "2 of 3"),
    ],
)
def test_an_expected_field_with_several_numbers_gives_no_score(expected: Any) -> None:
    for output in ("4", "30", "5", "3"):
        result = matched(output, expected)
        assert result.value is None
        assert "several numbers" in (result.error or "")


def test_a_long_field_is_quoted_in_part() -> None:
    error = matched("1", "1 2 " * 1000).error or ""
    assert error.endswith("…'")
    assert len(error) < 200


@pytest.mark.parametrize("expected", ["3/0", r"\frac{1}{0}", "9" * 500, "none", True])
def test_an_expected_field_without_a_number_gives_no_score(expected: Any) -> None:
    assert matched("0", expected) == Score(None, "the row's field 'answer' holds no number")


@pytest.mark.parametrize(
    ("expected", "output"),
    [
        *(
            ("3/4", each)
            for each in ("0.75", "3/4", "It is 3/4.", r"\boxed{\frac{3}{4}}", "6/8", ".75", "= 3/4 m")
        ),
        *((0.75, each) for each in ("3/4", r"$\dfrac{3}{4}$", "75/100")),
        *(("-3/4", each) for each in ("-0.75", "-3/4", r"-\frac{3}{4}")),
        *(
            ("3 x 10^5", each)
            for each in ("300000", "3e5", "300,000", "3×10^5", r"3 \times 10^{5}", "3*10**5")
        ),
        *((300_000, each) for each in ("3 x 10^5", "3·10^5", "so 3E5", "0.3 x 10^6")),
        *(("10^3", each) for each in ("1000", "1e3", "10**3", "1,000")),
        *(("2.5 x 10^-3", each) for each in ("0.0025", "2.5e-3", "2.5 × 10^−3")),
        *(("1,000", each) for each in ("1000", "1,000", "$1,000.00")),
        *(("50%", each) for each in ("50", "50%", "50 %")),
        ("A long way: 16 - 3 - 4 = <<16-3-4=9>>9\n#### 9", "9"),
        (r"So 3 + 4 = 7 and $x = \boxed{7}$.", "7"),
        (r"\boxed{\frac{1}{2}}", "0.5"),
        ("18 eggs, that is 18", "18"),
        (1e20, "1e20"),
        (0.1, "0.1"),
    ],
)
def test_a_number_matches_however_it_is_written(expected: Any, output: str) -> None:
    assert matched(output, expected) == Score(1.0)


@pytest.mark.parametrize(
    ("expected", "output"),
    [("3/4", "4"), (4, "3/4"), ("3 x 10^5", "5"), (5, "3 x 10^5"), (10, "10^5"), ("50%", "0.5"), (2, "1/2")],
)
def test_a_part_of_a_number_does_not_match(expected: Any, output: str) -> None:
    assert matched(output, expected) == Score(0.0)


@pytest.mark.parametrize(
    ("output", "expected", "tolerance", "value"),
    [
        ("1.01", "1.00", 0.01, 1.0),
        ("0.99", 1, 0.01, 1.0),
        ("1.0100001", "1.00", 0.01, 0.0),
        ("0.3", 0.1, 0.2, 1.0),
        ("0.4", 0.7, 0.3, 1.0),
        ("1000000.1", 1_000_000, 0.1, 1.0),
        ("1/3", "0.333333", 1e-6, 1.0),
        ("5", 5, 0.0, 1.0),
    ],
)
def test_a_tolerance_includes_its_boundary(
    output: str, expected: Any, tolerance: float, value: float
) -> None:
    assert matched(output, expected, tolerance=tolerance) == Score(value)


DECIMALS = st.decimals(-1000, 1000, places=3, allow_nan=False)


@given(DECIMALS, st.decimals(0, 10, places=3), st.booleans())
def test_every_boundary_matches_and_nothing_beyond(number: Decimal, tolerance: Decimal, above: bool) -> None:
    sign = 1 if above else -1
    for beyond, value in ((Decimal(0), 1.0), (Decimal("0.0001"), 0.0)):
        output = f"It is {number + sign * (tolerance + beyond)}."
        assert matched(output, str(number), tolerance=float(tolerance)) == Score(value)


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**9))
def test_a_fraction_is_its_value(above: int, below: int) -> None:
    assert last_number(f"x = {above}/{below}") == Fraction(above, below)


@given(st.text(st.sampled_from("0123456789.,/^*x eE-+$%{}\\frac#:"), max_size=30))
def test_any_signs_are_read_without_an_error(text: str) -> None:
    for number in numbers_in(text):
        assert number is None or isinstance(number, Fraction)
    assert matched(text, text).value in (None, 0.0, 1.0)


@pytest.mark.parametrize(
    "piece", ["1", "1 ", "1,", "1,000", "1.", "1/", "10^", "1e9", r"\frac{1}", "-", "1 x ", "\\boxed{"]
)
def test_a_hostile_text_is_searched_in_moderate_time(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    start = time.process_time()
    matched(text, text)
    assert time.process_time() - start < 5
