"""What a team writes to score outputs is bounded before it is worked on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.evaluators.assertions import MOST_ASSERTIONS, AssertionsError, check
from fairlane.evaluators.patterns import (
    MOST_COPIES,
    PatternError,
    SearchError,
    compile_pattern,
    copies,
    search,
)

BOMBS = [
    "(?:a{1000}){1000}",
    "(?:a{1000}){4000}",
    "((((a{99}){99}){99}){99})",
    "a{99}{99}{99}",
    "(a{,4000}){,4000}",
    "(a{4000,}){4000,}",
    "(?x)# [\n (?:a{1000}){4000}",
    "(?#[)(?:a{1000}){4000}",
    "[(](?:a{1000}){4000}",
    "(?x)#(\n(?:a{1000})#)\n{4000}",
    "(?i:(?:a{1000})){4000}",
    "(?V1)[a[b](?:a{1000}){4000}",
    "(?:[]]{1000}){4000}",
    "a{99999999999999999999}",
    "(?:(?:x{200}y|z){10}){10}",
]
USUAL = [
    r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}",
    r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
    r"(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
    r"\p{L}{2,50}\s\{\d{1,3}\}",
    r"(?i)answer:\s*(-?\d+(?:\.\d{1,6})?)",
    r"(?x) \d{3} - \d{4}  # a telephone",
    r"^.{1,2000}$",
    r"{not counted} {x}",
]


@pytest.mark.parametrize("pattern", BOMBS)
def test_a_pattern_that_would_take_long_to_compile_is_refused_before(pattern: str) -> None:
    with pytest.raises(PatternError, match="copies"):
        compile_pattern(pattern)
    with pytest.raises(SearchError, match="lower their numbers"):
        search(pattern, "a")


@pytest.mark.parametrize("pattern", USUAL)
def test_usual_patterns_are_compiled(pattern: str) -> None:
    assert compile_pattern(pattern) is not None


def test_a_long_pattern_is_refused() -> None:
    with pytest.raises(PatternError, match="at most 10,000"):
        compile_pattern("a" * 10_001)


def grown(inner: st.SearchStrategy[tuple[str, int]]) -> st.SearchStrategy[tuple[str, int]]:
    """Patterns of others, with the parts that they have when written out."""
    repeated = st.tuples(inner, st.integers(1, 60)).map(
        lambda made: (f"(?:{made[0][0]}){{{made[1]}}}", made[0][1] * made[1])
    )
    joined = st.lists(inner, min_size=1, max_size=3).map(
        lambda made: ("".join(text for text, _ in made), sum(size for _, size in made))
    )
    return repeated | joined


ATOMS = st.sampled_from(["a", r"\d", "[a-z]", "[(]", r"\(", "[]x]", r"[\]]", "."]).map(lambda text: (text, 1))


@given(st.recursive(ATOMS, grown, max_leaves=8))
def test_no_pattern_has_more_parts_than_are_counted(made: tuple[str, int]) -> None:
    pattern, size = made
    if size > MOST_COPIES:
        assert copies(pattern) > MOST_COPIES
    elif "{" in pattern:
        assert copies(pattern) >= size


@given(st.text(st.sampled_from("a()[]{}1234,\\?:*+|^-x#\n"), max_size=40))
def test_any_text_is_counted(pattern: str) -> None:
    assert 1 <= max(1, copies(pattern)) <= MOST_COPIES + 1


def test_a_row_has_a_bounded_number_of_assertions() -> None:
    one = {"type": "contains", "value": "a"}
    assert len(check([one] * MOST_ASSERTIONS, "a")) == MOST_ASSERTIONS
    with pytest.raises(AssertionsError, match="at most 1,000"):
        check([one] * (MOST_ASSERTIONS + 1), "a")


def test_all_assertions_of_a_row_have_one_time_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr("fairlane.evaluators.assertions.time.thread_time", lambda: next(now) / 10)
    with pytest.raises(AssertionsError, match="assertion 6: those before it took"):
        check([{"type": "contains", "value": "a"}] * 20, "a")


HOSTILE = {
    "unclosed": "[0," * 200_000,
    "unclosed, then long": "[" * 900 + "0," * 100_000,
    "texts without an end": '["' + "a" * 300_000 + '["a' * 100,
    "starts before a long text": "[" * 999 + '"' + "a" * 300_000,
    "objects": '{"a":' * 100_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_json_is_sought_within_a_text_in_a_bounded_number_of_passes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, scanned = HOSTILE[name], 0

    class Counting(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
            nonlocal scanned
            try:
                value, end = super().raw_decode(s, idx)
            except json.JSONDecodeError as error:
                scanned += error.pos - idx
                raise
            scanned += end - idx
            return value, end

    monkeypatch.setattr("fairlane.evaluators.assertions.json.JSONDecoder", Counting)
    assert not check([{"type": "contains-json"}], output)[0].met
    assert scanned <= 18 * len(output) + 20_000


@given(
    before=st.text(st.sampled_from('[]{}",:0a '), max_size=30),
    value=st.dictionaries(st.text(max_size=3), st.integers(), min_size=1, max_size=3),
)
def test_json_behind_other_text_is_found(before: str, value: dict[str, int]) -> None:
    if '"' not in before and "[" not in before and "{" not in before:
        assert check([{"type": "contains-json"}], f"{before}{json.dumps(value)} end")[0].met
