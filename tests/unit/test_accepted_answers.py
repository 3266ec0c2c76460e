"""Expected fields that list accepted answers, hold objects or are empty; and differences that nobody sees."""

from __future__ import annotations

import json
import unicodedata
from string import ascii_letters
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.evaluators.builders import contains, exact_match, numeric_match, regex
from fairlane.evaluators.scorers import Score, score
from fairlane.pipeline.linear import FEW_ANSWERS, LINEAR_CHARS, _scores_linearly

RIGHT, WRONG = Score(1.0), Score(0.0)
ANSWER = regex(r"Answer: (\w+)", expected="a")
ALL: Any = (exact_match("a"), contains("a"), ANSWER, numeric_match("a"))


def scored(spec: Any, output: str, expected: Any) -> Score:
    return score(spec, output, {"a": expected})


@pytest.mark.parametrize(
    ("spec", "output", "expected", "result"),
    [
        (exact_match("a"), "Paris", ["Paris", "paris"], RIGHT),
        (exact_match("a"), "paris", ["Paris", "paris"], RIGHT),
        (exact_match("a"), "Rome", ["Paris", "paris"], WRONG),
        (exact_match("a", ignore_case=True), "PARIS", ["Lutetia", "paris"], RIGHT),
        (exact_match("a"), "2", [1, 2.0, True], RIGHT),
        (exact_match("a"), '["Paris","Rome"]', ["Paris", "Rome"], RIGHT),
        (exact_match("a"), '["Rome", "Paris"]', ["Paris", "Rome"], WRONG),
        (contains("a"), "It is Paris.", ["Lutetia", "Paris"], RIGHT),
        (contains("a"), "the cafe\u0301 there", "caf\u00e9", RIGHT),
        (contains("a"), "Pa\u200bris", "Paris", RIGHT),
        (ANSWER, "Answer: cafe\u0301", "caf\u00e9", RIGHT),
        (contains("a"), "It is Rome.", ["Lutetia", "Paris"], WRONG),
        (ANSWER, "Answer: B", ["A", "B"], RIGHT),
        (ANSWER, "Answer: C", ["A", "B"], WRONG),
        (numeric_match("a"), "It is 0.5", [2, "1/2"], RIGHT),
        (numeric_match("a"), "It is 3", [2, "1/2"], WRONG),
    ],
)
def test_a_list_means_any_of_its_answers(spec: Any, output: str, expected: Any, result: Score) -> None:
    assert scored(spec, output, expected) == result


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.kind)
@pytest.mark.parametrize("expected", [[], [{"x": 1}], [["x"]], ["x", None], ""])
def test_an_expectation_that_accepts_nothing_gives_no_score(spec: Any, expected: Any) -> None:
    for output in ("", "x", "1", json.dumps(expected)):
        result = scored(spec, output, expected)
        assert result.value is None
        assert "field 'a'" in (result.error or "")


@pytest.mark.parametrize("spec", [exact_match("a"), ANSWER], ids=lambda spec: spec.kind)
def test_spaces_alone_are_an_empty_answer(spec: Any) -> None:
    assert scored(spec, "", " \n").value is None


def test_an_answer_that_cannot_be_read_leaves_the_others() -> None:
    assert scored(numeric_match("a"), "2", ["5k", 2]) == RIGHT
    assert scored(numeric_match("a"), "3", ["5k", 2]).value is None


@given(st.lists(st.text(ascii_letters, min_size=1), min_size=1), st.data())
def test_each_answer_of_a_list_is_right(answers: list[str], data: st.DataObject) -> None:
    output = data.draw(st.sampled_from(answers))
    assert scored(exact_match("a"), output, answers) == RIGHT
    assert scored(contains("a"), f"<{output}>", answers) == RIGHT
    assert scored(exact_match("a"), f"{output}!", answers) == WRONG


@pytest.mark.parametrize(
    ("output", "right"),
    [
        *(
            ('{"a":1,"b":"x"}', True),
            ('{"b": "x", "a": 1.0}', True),
            ('```json\n{"a": 1,\n "b": "x"}\n```', True),
        ),
        *(
            ('{"a":1}', False),
            ('{"a":1,"b":"X"}', False),
            ('{"a":true,"b":"x"}', False),
            ("a", False),
            ("", False),
        ),
    ],
)
def test_an_object_is_compared_as_json(output: str, right: bool) -> None:
    assert scored(exact_match("a"), output, {"a": 1, "b": "x"}) == (RIGHT if right else WRONG)


def test_case_is_ignored_inside_an_object() -> None:
    assert scored(exact_match("a", ignore_case=True), '{"K":["X",1]}', {"k": ["x", 1]}) == RIGHT


def test_an_output_of_many_brackets_is_wrong() -> None:
    assert scored(exact_match("a"), "[" * 100_000, {"a": 1}) == WRONG


JSON_OBJECTS = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda part: st.lists(part)
    ),
)


@given(JSON_OBJECTS, st.sampled_from((None, 2)), st.booleans())
def test_the_json_of_an_object_is_right_in_any_form(value: Any, indent: int | None, ascii_only: bool) -> None:
    reordered = dict(reversed(value.items()))
    written = json.dumps(reordered, indent=indent, ensure_ascii=ascii_only)
    assert scored(exact_match("a"), written, value) == RIGHT


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        *(("Paris\u200b", "Paris"), ("\ufeffParis", "Paris"), ("a\u00a0b", "a b"), ("a\u202fb", "a\u2009b")),
        *(("cafe\u0301", "caf\u00e9"), ("a\r\nb", "a\nb"), ("co\u00adop", "coop"), ("a\u200db", "ab")),
    ],
)
def test_invisible_differences_do_not_count(output: str, expected: str) -> None:
    assert scored(exact_match("a"), output, expected) == RIGHT
    assert scored(exact_match("a"), expected, output) == RIGHT
    assert scored(exact_match("a", strip=False), output, expected) == WRONG


@pytest.mark.parametrize("output", ["Paris.", '"Paris"', "**Paris**", "Pa ris", "P\u00e1ris"])
def test_visible_differences_count(output: str) -> None:
    assert scored(exact_match("a"), output, "Paris") == WRONG


@given(st.text())
def test_a_text_equals_its_normal_forms(text: str) -> None:
    result = scored(exact_match("a"), unicodedata.normalize("NFD", text), unicodedata.normalize("NFC", text))
    assert result.value in (1.0, None)


@pytest.mark.parametrize(
    "output", ["Answer: A\nWait, no.\nAnswer: B", "The format is 'Answer: X'.\nAnswer: B", "Answer: B"]
)
def test_the_last_match_of_a_pattern_is_compared(output: str) -> None:
    assert scored(ANSWER, output, "B") == RIGHT


def test_the_search_for_the_last_match_has_an_end() -> None:
    result = scored(regex("((a?){40}(a+)+c|b)", expected="a"), "b" + "a" * 50_000, "b")
    assert result.value is None
    assert "simplify its repeats" in (result.error or "")


@pytest.mark.parametrize("spec", [contains("a"), numeric_match("a")], ids=lambda spec: spec.kind)
def test_a_long_list_of_answers_is_compared_in_a_child(spec: Any) -> None:
    assert _scores_linearly(spec, "x" * LINEAR_CHARS, {"a": ["x"] * FEW_ANSWERS})
    assert not _scores_linearly(spec, "x", {"a": ["x"] * (FEW_ANSWERS + 1)})
