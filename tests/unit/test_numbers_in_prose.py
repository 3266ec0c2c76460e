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
        *("3-5", "3 to 5", "3, 4", "5 ± 0.1", "2024-01"),
        *({"low": 3, "high": 4}, "between $3 and $4", "#### 3 or 4", "2 of 3"),
    ],
)
def test_an_expected_field_with_several_numbers_gives_no_score(expected: Any) -> None:
    for output in ("4", "30", "5", "3"):
        result = matched(output, expected)
        assert result.value is None
        assert "several numbers" in (result.error or "")


@pytest.mark.parametrize(
    "expected",
    [
        *("9:30", "2024-01-05", "1/2/3", "1.234,56", "1.234.567", "3.5/4.5", "3,4", "1,00", "0,500"),
        *(r"\sqrt{2}", r"2\pi", "2π", "x^2", "x²", r"\frac{\pi}{2}", r"\frac{\sqrt{2}}{2}", r"3\sqrt{2}/2"),
        *(
            "0x10",
            "5!",
            "2^n",
            "2^{n+1}",
            "2e",
            "3x",
            "4i",
            "(a+b)/2",
            "π/2",
            "log(100)",
            "±2",
            r"\pm 2",
            "9①",
        ),
        *("2 and a half", "5'10\"", "12°30'", "#### \\sqrt{2}"),
    ],
)
def test_a_field_with_a_number_that_is_not_understood_gives_no_score(expected: str) -> None:
    for output in ("2", "30", "5", "3", "1", "0", expected):
        result = matched(output, expected)
        assert result.value is None
        assert "cannot be read" in (result.error or "")


@pytest.mark.parametrize(
    ("expected", "sign"),
    [
        *(("1 million", "million"), ("$1.5M", "M"), ("5k", "k"), ("5 k", "k"), ("2 dozen", "dozen")),
        *(
            ("3 billion dollars", "billion"),
            ("3万", "万"),
            ("5-million", "million"),
            (r"2\text{ million}", "million"),
        ),
    ],
)
def test_a_multiplier_is_named_and_not_left_out(expected: str, sign: str) -> None:
    result = matched("1", expected)
    assert result.value is None
    assert f"{sign!r} is not multiplied; write it in digits" in (result.error or "")


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
        *((9500, each) for each in (r"\boxed{9{,}500}", r"9\,500", r"\$9,\!500", r"9\text{,}500")),
        *(
            (1000, each)
            for each in (
                "1 000",
                "1\u00a0000",
                "1\u202f000",
                "1'000",
                "1’000",
                "1_000",
                "\uff11\uff10\uff10\uff10",
            )
        ),
        *((2.5, each) for each in ("2 1/2", "2½", "2 ½", r"2\frac{1}{2}", r"2 \frac12", "2 and 1/2")),
        *((0.5, each) for each in ("½", r"\frac12", r"\tfrac 1 2", "1 / 2", "1\u20442")),
        *((-0.5, each) for each in (r"\frac{-1}{2}", r"\frac{1}{-2}", "-½", "–1/2")),
        *((-5, each) for each in ("–5", "- 5", "minus 5", "x = - 5", "It is minus 5.", "negative 5", "$-$5")),
        *(
            (5, each)
            for each in (
                "x - 5",
                "10 minus 5",
                "The answer – 5",
                "It is 5!",
                "It is **5!** 🎉",
                "So 5! 🎉",
                "no. 5",
                "答案是5。",
                "\u0665",
            )
        ),
        *(
            (100, each)
            for each in ("100 cm^2", r"100\text{ cm}^2", "100 m²", "100cm²", "100 kg m/s^2", "100 K")
        ),
        *(("2^3", each) for each in ("8", "2^3", "2³", "2**3", "2^{3}")),
        *(("10⁻³", each) for each in ("0.001", r"10^{-3}", "1e-3")),
        *((300_000, each) for each in ("3×10⁵", "3·10<sup>5</sup>")),
        *((45, each) for each in ("45°", r"45^\circ", "45%", "45th", "45-year", "$45", "45€", "__45__")),
        *((6, each) for each in ("6, in x_{12}", "6 of H₂O", "6 in GPT-4o's CO_2")),
        (1e20, "1e20"),
        (0.1, "0.1"),
    ],
)
def test_a_number_matches_however_it_is_written(expected: Any, output: str) -> None:
    assert matched(output, expected) == Score(1.0)


@pytest.mark.parametrize(
    ("expected", "output"),
    [
        *(
            ("3/4", "4"),
            (4, "3/4"),
            ("3 x 10^5", "5"),
            (5, "3 x 10^5"),
            (10, "10^5"),
            ("50%", "0.5"),
            (2, "1/2"),
        ),
        *(
            (500, r"9{,}500"),
            (0, "1 000"),
            (5, "–5"),
            (2, "100 cm^2"),
            (2, "2½"),
            (2, r"\sqrt{2}"),
            (2, "x^2"),
        ),
        *(
            (5, "5k"),
            (1, "1 million"),
            (30, "9:30"),
            (5, "1,5"),
            (1, "2^n+1"),
            (2, r"\pi/2"),
            (3, "2^3"),
            (2, "2π"),
        ),
    ],
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


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (r"The answer is $\boxed{18}$. Let me verify: 9 x 2 = 18, with 2 steps", 18),
        ("#### 18\nI hope it is correct. 100%", 18),
        ("#### $18 dollars\nAll 3 steps hold.", 18),
        ("#### Final answer: **18**\n(2 steps)", 18),
        (r"\boxed{3} is wrong. So \boxed{18}. Check 2", 18),
        (r"#### 3" + "\n" + r"No: \boxed{18}, by step 2", 18),
        ("Put it into \\boxed{}: 18", 18),
        ("#### Step 1: add\n18", 18),
        ("#### 2. Add them\nso 18", 18),
        ("#### Conclusion\nIt is 18", 18),
    ],
)
def test_a_marked_number_is_the_answer_of_an_output(output: str, expected: int) -> None:
    assert matched(output, expected) == Score(1.0)


@pytest.mark.parametrize(
    "expected", ["Of 3: \\boxed{18}. Or 2", "3\n#### 18\n2 steps", "#### 3\n\\boxed{18}"]
)
def test_a_marked_number_is_the_answer_of_a_field(expected: str) -> None:
    assert matched("18", expected) == Score(1.0)


def test_a_box_without_a_number_is_no_number() -> None:
    assert matched(r"Of 5 apples: \boxed{\text{none}}", 5) == Score(0.0)


@given(st.text(st.sampled_from("0123456789.,/^*x eE-+$%{}\\frac#:"), max_size=30))
def test_any_signs_are_read_without_an_error(text: str) -> None:
    for number in numbers_in(text):
        assert number.value is None or isinstance(number.value, Fraction)
    assert matched(text, text).value in (None, 0.0, 1.0)


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "1",
            "1 ",
            "1,",
            "1,000",
            "1.",
            "1/",
            "10^",
            "1e9",
            r"\frac{1}",
            "-",
            "1 x ",
            "\\boxed{",
            "\\boxed{1",
        ),
        *(
            "2½",
            "= - 5",
            "5! ",
            "x^2 ",
            "\\sqrt{",
            "\\sqrt[",
            "x_{",
            "####1\n",
            "9" * 399 + "^9 ",
            "1 million ",
            "<sup>",
        ),
    ],
)
def test_a_hostile_text_is_searched_in_moderate_time(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    start = time.process_time()
    matched(text, text)
    assert time.process_time() - start < 5
