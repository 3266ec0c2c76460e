"""A number is read back as itself however it is written, whatever words stand around it."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from fairlane.evaluators.numbers import last_number, numbers_in
from fairlane.evaluators.scorers import Score, score
from fairlane.model.evaluators import NumericMatch

GROUPED = (",", "{,}", "\\,", " ", "\u00a0", "\u202f", "\u2009", "'", "’", "_")
MINUS = ("-", "−", "–", "minus ", "negative ", "- ")
BEFORE = (
    "",
    "It is ",
    "So x = ",
    "The answer: ",
    "**",
    "(",
    "$",
    "= ",
    "\\boxed{",
    "Of 3 eggs, 7 are left. It is ",
)
AFTER = (
    "",
    ".",
    ", all in.",
    "%",
    " kg",
    " cm^2",
    " m²",
    "**",
    ")",
    "$",
    "}",
    "° C",
    " of them",
    "\\%",
)
WORDS = st.text(
    st.characters(codec="utf-8", categories=("Lu", "Ll", "Lo", "Po", "Zs"), exclude_characters="/'!")
)


@st.composite
def written(draw: st.DrawFn) -> tuple[Fraction, str]:
    """A number that is not negative, and one of its accepted forms."""
    kind = draw(
        st.sampled_from(("whole", "grouped", "decimal", "fraction", "mixed", "power", "scaled", "exponent"))
    )
    whole = draw(st.integers(0, 10**12))
    match kind:
        case "whole":
            return Fraction(whole), str(whole)
        case "grouped":
            part = draw(st.sampled_from(("", ".5", ".25")))
            return Fraction(f"{whole}{part}"), f"{whole:,}".replace(
                ",", draw(st.sampled_from(GROUPED))
            ) + part
        case "decimal":
            digits = draw(st.integers(0, 999))
            return Fraction(f"{whole}.{digits:03}"), f"{whole}.{digits:03}"
        case "fraction":
            below = draw(st.integers(1, 999))
            form = draw(st.sampled_from(("{}/{}", "{} / {}", "\\frac{{{}}}{{{}}}", "\\dfrac{{{}}}{{{}}}")))
            return Fraction(whole, below), form.format(whole, below)
        case "mixed":
            below = draw(st.integers(2, 99))
            above = draw(st.integers(1, below - 1))
            form = draw(st.sampled_from(("{} {}/{}", "{}\\frac{{{}}}{{{}}}", "{} and {}/{}")))
            whole = draw(st.integers(1, 99))
            return whole + Fraction(above, below), form.format(whole, above, below)
        case "power":
            base, power = draw(st.integers(1, 99)), draw(st.integers(-9, 9))
            form = draw(st.sampled_from(("{}^{}", "{}^{{{}}}", "{}**{}")))
            return Fraction(base) ** power, form.format(base, power)
        case "scaled":
            power = draw(st.integers(-9, 9))
            form = draw(st.sampled_from(("{} x 10^{}", "{}×10^{{{}}}", "{} \\times 10^{{{}}}")))
            return whole * Fraction(10) ** power, form.format(whole, power)
    power = draw(st.integers(-9, 9))
    return whole * Fraction(10) ** power, f"{whole}e{power}"


@given(written(), st.sampled_from(BEFORE), st.sampled_from(AFTER))
def test_a_number_is_read_back_as_itself(number: tuple[Fraction, str], before: str, after: str) -> None:
    value, text = number
    assert last_number(f"{before}{text}{after}") == value


@given(written(), st.sampled_from(MINUS), st.sampled_from(("", "It is ", "x = ", "(")))
def test_a_minus_in_any_form_is_read(number: tuple[Fraction, str], minus: str, before: str) -> None:
    value, text = number
    assert last_number(f"{before}{minus}{text}") == -value


@given(written(), WORDS, WORDS)
def test_words_around_a_number_do_not_change_it(
    number: tuple[Fraction, str], before: str, after: str
) -> None:
    value, text = number
    read = [found.value for found in numbers_in(f"{before} is {text}, {after}")]
    assert read == [value]


@given(written())
def test_a_field_and_an_output_read_a_number_alike(number: tuple[Fraction, str]) -> None:
    _, text = number
    for output, expected in ((text, text), (f"#### {text}\n(by 2 steps)", f"So 7.\n#### {text}")):
        assert score(NumericMatch(name="n", expected="a"), output, {"a": expected}) == Score(1.0)


BREAKING = (
    "k",
    "M",
    " million",
    " thousand",
    "π",
    "\\pi",
    "\\sqrt{2}",
    "√3",
    "x",
    ",5",
    ":30",
    ".5.6",
    "!",
    "^n",
    "①",
    "万",
)


@given(st.integers(1, 999), st.sampled_from(BREAKING))
def test_a_number_that_goes_on_is_never_cut(number: int, rest: str) -> None:
    (found,) = numbers_in(f"{number}{rest}")
    assert found.value is None
    assert found.problem is not None
    assert last_number(f"It is {number}{rest}") in (None, *([number] if rest == "!" else []))


PIECES = st.lists(
    st.sampled_from(
        (
            *"0123456789.,'/^*_{}()$%!-–½²√π× \n",
            "\\frac",
            "\\sqrt",
            "\\boxed{",
            "####",
            "and",
            "minus",
            "x",
            "e",
            "k",
            "million",
        )
    ),
    max_size=25,
).map("".join)


@given(PIECES)
def test_any_signs_are_read_without_an_error(text: str) -> None:
    for found in numbers_in(text):
        assert found.value is None or found.problem is None
