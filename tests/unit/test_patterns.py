"""Which regular expressions may be searched, and in how long a text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.evaluators.pattern import UnsafePatternError, safe_pattern

MILLION = 1_000_000

ATOMS = st.sampled_from(["a", "b", "ab", "[ab]", ".", "[^a]", r"\w", r"\b", "^a", "b$", "é"])
REPEATS = st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}", "{0,5}", "{3,}"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})")
        | st.tuples(inner, REPEATS).map(lambda two: f"({two[0]}){two[1]}")
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "yes",
        r"\b(yes|no)\b",
        r"####\s*(-?[\d,]+)",
        r"(?i)final answer is:?\s*\$?([\d,.]+)",
        r"\d{4}-\d{2}-\d{2}",
        r"^(?:\d{1,3}\.){3}\d{1,3}$",
        r"^\s*\{[\s\S]*\}\s*$",
        "(?:foo|foobar)+",
        "(?P<a>x)(?=y)(?<!z)",
        "[^a-zé-ü]",
    ],
)
def test_a_pattern_of_linear_time_is_searched_in_long_texts(pattern: str) -> None:
    assert safe_pattern(pattern).max_chars == MILLION


@pytest.mark.parametrize(
    "pattern",
    [
        r"answer.*?(\d+)",
        r"(\d+)$",
        r"(?s)<answer>(.*?)</answer>",
        r"\\boxed\{([^}]*)\}",
        r"[\w.+-]+@[\w-]+\.[\w.-]+",
        r"```json\n([\s\S]*?)```",
        r'"(?:[^"\\]|\\.)*"',
        r"(?:\w+ )*x",
        r"(?:,\s*\w+)+;",
        r"-?\d+(?:,\d{3})*(?:\.\d+)?",
        r"(?m)^#+\s+.+$",
        r"(?>a+)b",
        r"(.)\1x",
    ],
)
def test_a_pattern_of_quadratic_time_is_searched_in_an_answers_length(pattern: str) -> None:
    assert 3_000 < safe_pattern(pattern).max_chars <= MILLION


@pytest.mark.parametrize("pattern", ["a*a*b", ".*foo.*bar", r"\s*\s*x"])
def test_repeats_that_overlap_shorten_the_text(pattern: str) -> None:
    assert 500 <= safe_pattern(pattern).max_chars < 1_000


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a*)*b",
        "(a|a)*b",
        "(a|ab|b)*c",
        r"(\w+\s?)*$",
        r"(\s*\w+)*$",
        r"(.*,){20}x",
        "(x?){40}",
        "(a{1,30}){1,30}b",
        "(?:a{0,9}){9}b",
        "a?" * 30 + "a" * 30,
        "a*a*a*b",
        ".*a.*b.*c",
        r"(a)(\1+)+",
        "(?:a(?=a+))+b",
        "(?:x(?:a|b)*(?:b|c)*)+d",
        "(?P<x>a)(?(x)b|c)",
    ],
)
def test_a_pattern_that_may_take_for_ever_is_refused(pattern: str) -> None:
    with pytest.raises(UnsafePatternError):
        safe_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(", "[", "a{2,1}", r"\1", "(?P<1>a)", "*", "(" * 500 + ")" * 500])
def test_a_text_that_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(UnsafePatternError, match="no regular expression"):
        safe_pattern(pattern)


@given(PATTERNS, st.text("ab\né ", max_size=30))
def test_a_pattern_that_is_accepted_means_what_re_says(pattern: str, text: str) -> None:
    try:
        safe = safe_pattern(pattern)
    except UnsafePatternError:
        return
    assert safe.compiled == re.compile(pattern)
    assert (safe.compiled.search(text) is None) == (re.search(pattern, text) is None)


@given(PATTERNS, st.sampled_from(["a", "b", "ab", "aab", "aba", " "]), st.sampled_from(["!", "a", "\n"]))
@pytest.mark.timeout(120)
def test_a_pattern_that_is_accepted_ends_on_texts_made_to_stall_it(pattern: str, pump: str, end: str) -> None:
    try:
        safe = safe_pattern(pattern)
    except UnsafePatternError:
        return
    text = (pump * safe.max_chars)[: min(safe.max_chars, 2_000) - 1] + end
    safe.compiled.search(text)
