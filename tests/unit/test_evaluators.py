"""Evaluators: constructors refuse nonsense, scorers never raise, judges' answers are read with care."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.errors import SubmissionError
from fairlane.evaluators import (
    check_names,
    contains,
    exact_match,
    json_valid,
    llm_judge,
    numeric_match,
    regex,
)
from fairlane.evaluators.judge import parse_choice
from fairlane.evaluators.scorers import last_number, score

YES_NO = {"yes": 1.0, "no": 0.0}


@pytest.mark.parametrize(
    ("spec", "output", "row", "value"),
    [
        (exact_match("a"), " 18\n", {"a": "18"}, 1.0),
        (exact_match("a"), "18", {"a": 18}, 1.0),
        (exact_match("a"), "18", {"a": 18.0}, 1.0),
        (exact_match("a", strip=False), " 18", {"a": "18"}, 0.0),
        (exact_match("a", ignore_case=True), "YES", {"a": "yes"}, 1.0),
        (exact_match("a"), "YES", {"a": "yes"}, 0.0),
        (contains("a"), "it is 18 eggs", {"a": "18"}, 1.0),
        (contains(text="Sorry", ignore_case=True), "sorry, no", {}, 1.0),
        (regex(r"####\s*(\d+)", expected="a"), "so\n#### 18", {"a": 18}, 1.0),
        (regex(r"####\s*(\d+)", expected="a"), "so\n#### 19", {"a": 18}, 0.0),
        (regex(r"^no"), "yes", {}, 0.0),
        (json_valid(), '{"a": 1}', {}, 1.0),
        (json_valid(), "{a: 1}", {}, 0.0),
        (json_valid(required=["a", "b"]), '{"a": 1}', {}, 0.0),
        (json_valid(required=["a"]), "[1]", {}, 0.0),
        (numeric_match("a"), "Total: $1,234.50.", {"a": "1234.5"}, 1.0),
        (numeric_match("a"), "from 3 to 18", {"a": 18}, 1.0),
        (numeric_match("a"), "no idea", {"a": 18}, 0.0),
        (numeric_match("a", tolerance=0.5), "18.4", {"a": 18}, 1.0),
    ],
)
def test_a_scorer_gives_its_score(spec: Any, output: str, row: dict[str, Any], value: float) -> None:
    assert score(spec, output, row).value == value


@pytest.mark.parametrize(
    "spec", [exact_match("a"), contains("a"), regex("(x)", expected="a"), numeric_match("a")]
)
def test_a_row_without_the_expected_field_has_no_score_and_says_why(spec: Any) -> None:
    result = score(spec, "x", {"b": 1})
    assert result.value is None
    assert "'a'" in (result.error or "")


def test_an_expected_field_without_a_number_is_told() -> None:
    assert score(numeric_match("a"), "18", {"a": "eighteen"}).error


@given(output=st.text(), expected=st.text() | st.integers() | st.none() | st.lists(st.text(), max_size=2))
def test_no_output_makes_a_scorer_raise(output: str, expected: Any) -> None:
    for spec in (
        exact_match("a"),
        contains("a"),
        regex("(.)", expected="a"),
        json_valid(),
        numeric_match("a"),
    ):
        value = score(spec, output, {"a": expected}).value
        assert value is None or value in (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234.5", 1234.5),
        ("it cost $-3.", -3.0),
        ("#### 18.", 18.0),
        ("12%", 12.0),
        ("10-3", 3.0),
        ("−4 degrees", -4.0),
        (".5", 0.5),
        ("3e2", 300.0),
        ("nothing", None),
        ("9" * 400, None),
    ],
)
def test_the_last_number_is_found_as_people_write_it(text: str, number: float | None) -> None:
    assert last_number(text) == number


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("yes", 1.0),
        (" Yes. ", 1.0),
        ("**No**", 0.0),
        ("They differ, so\nno", 0.0),
        ("Not yes at first sight.\nVerdict: no", 0.0),
        ("I say yes because it is right", 1.0),
        ("yes or no", None),
        ("maybe", None),
        ("nobody knows", None),
        ("", None),
    ],
)
def test_a_judges_answer_is_read(answer: str, value: float | None) -> None:
    result = parse_choice(answer, YES_NO)
    assert result.value == value
    assert (result.error is None) == (value is not None)


def test_the_longer_of_two_choices_wins_where_one_contains_the_other() -> None:
    assert parse_choice("It is not correct", {"correct": 1, "not correct": 0}).value == 0.0


@given(
    answer=st.text(), choices=st.dictionaries(st.text(min_size=1), st.floats(0, 1), min_size=1, max_size=4)
)
def test_no_answer_makes_the_reader_raise(answer: str, choices: dict[str, float]) -> None:
    value = parse_choice(answer, choices).value
    assert value is None or value in choices.values()


@pytest.mark.parametrize(
    "make",
    [
        lambda: contains(),
        lambda: contains("a", text="b"),
        lambda: regex("("),
        lambda: regex("x", expected="a"),
        lambda: regex(7),  # type: ignore[arg-type]
        lambda: llm_judge("sim:judge", "{{ output }}", {}),
        lambda: llm_judge("sim:judge", "{{ output }}", {"yes": float("nan")}),
        lambda: llm_judge("sim:judge", "{{ output }}", {"yes": True}),
        lambda: exact_match("a", name="two words"),
        lambda: exact_match(7),  # type: ignore[arg-type]
        lambda: numeric_match("a", tolerance=-1),
        lambda: check_names([exact_match("a"), exact_match("b")]),
    ],
)
def test_a_senseless_evaluator_is_refused_in_our_words(make: Any) -> None:
    with pytest.raises(SubmissionError) as caught:
        make()
    assert caught.value.field == "evaluators"


def test_a_judge_is_short_and_cold_unless_told_otherwise() -> None:
    spec: Any = llm_judge("sim:judge", "{{ output }}", YES_NO)
    assert spec.params == {"temperature": 0, "max_tokens": 64}
    assert llm_judge("sim:judge", "x", YES_NO, params={}).params == {}  # type: ignore[union-attr]
