"""Evaluators: what their constructors refuse, how outputs are scored and how judges' answers are read."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

import fairlane
from fairlane.core.errors import SubmissionError
from fairlane.evaluators.builders import (
    check_names,
    contains,
    exact_match,
    json_valid,
    llm_judge,
    numeric_match,
    regex,
)
from fairlane.evaluators.judge import parse_choice
from fairlane.evaluators.numbers import last_number
from fairlane.evaluators.scorers import Score, score
from fairlane.model.evaluators import EVALUATORS, EvaluatorSpec, Judge, Regex

OF_OTHER_NAMES = {"assertions": None, "function": "scorer"}
"""The builders of two kinds: `fairlane eval` makes the first, and the second is named after what it does."""

KINDS = [each.model_fields["kind"].default for each in EVALUATORS]

YES_NO = {"yes": 1.0, "no": 0.0}
RIGHT = Score(1.0)
WRONG = Score(0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_evaluator_has_a_public_builder_of_its_name(kind: str) -> None:
    name = OF_OTHER_NAMES.get(kind, kind)
    assert name is None or name in fairlane.__all__, (
        "write it in evaluators/builders.py and fairlane/__init__.pyi"
    )


def judge(**changes: Any) -> Any:
    return llm_judge(**{"model": "sim:judge", "template": "{{ output }}", "choices": YES_NO, **changes})


@pytest.mark.parametrize(
    ("evaluator", "kind"),
    [
        (exact_match(expected="answer"), "exact_match"),
        (contains(text="a"), "contains"),
        (regex("a"), "regex"),
        (json_valid(), "json_valid"),
        (numeric_match(expected="answer"), "numeric_match"),
        (judge(), "llm_judge"),
    ],
)
def test_an_evaluator_is_named_by_its_kind_and_travels_as_json(evaluator: EvaluatorSpec, kind: str) -> None:
    assert (evaluator.kind, evaluator.name) == (kind, kind)
    adapter: TypeAdapter[EvaluatorSpec] = TypeAdapter(EvaluatorSpec)
    assert adapter.validate_json(adapter.dump_json(evaluator)) == evaluator


@pytest.mark.parametrize(
    "build",
    [
        lambda: contains(),
        lambda: contains(expected="a", text="b"),
        lambda: contains(text=""),
        lambda: contains(text="\u200b\ufeff"),
        lambda: regex("("),
        lambda: regex("a", expected="answer"),
        lambda: regex(7),  # type: ignore[arg-type]
        lambda: regex("a" * 1001),
        lambda: json_valid(required="answer"),
        lambda: numeric_match("answer", tolerance=-1),
        lambda: numeric_match("answer", tolerance=math.inf),
        lambda: numeric_match("answer", tolerance=math.nan),
        lambda: exact_match(7),  # type: ignore[arg-type]
        lambda: exact_match("answer", name="a name"),
        lambda: exact_match("answer", name=""),
        lambda: judge(choices={}),
        lambda: judge(choices=["yes"]),
        lambda: judge(choices={"yes": math.nan}),
        lambda: judge(choices={"yes": math.inf}),
        lambda: judge(choices={"yes": 10**400}),
        lambda: judge(choices={"yes": "1"}),
        lambda: judge(choices={" ": 1}),
        lambda: judge(choices={None: 1}),
        lambda: judge(choices={"Yes": 1, "yes": 0}),
        lambda: judge(choices={f"c{n}": n for n in range(101)}),
    ],
)
def test_a_bad_argument_is_refused_with_its_remedy(build: Any) -> None:
    with pytest.raises(SubmissionError) as caught:
        build()
    assert caught.value.field == "evaluators"
    assert caught.value.remedy


def test_two_evaluators_cannot_share_a_name() -> None:
    check_names([regex("a"), regex("b", name="second")])
    with pytest.raises(SubmissionError, match="two evaluators") as caught:
        check_names([regex("a"), json_valid(), regex("b")])
    assert caught.value.value == "regex"


def test_a_judge_sends_no_parameter_that_a_model_may_reject() -> None:
    assert judge().params == {}
    assert judge(params={"seed": 1}).params == {"seed": 1}


@pytest.mark.parametrize(
    ("options", "reasons"),
    [
        ({}, True),
        ({"params": {"max_tokens": 64}}, None),
        ({"params": {"max_completion_tokens": 4000}}, True),
        ({"params": {"max_tokens": 64}, "reasons": True}, True),
        ({"reasons": False}, False),
    ],
)
def test_a_judge_gives_reasons_where_its_answer_has_room(
    options: dict[str, Any], reasons: bool | None
) -> None:
    assert judge(**options).reasons is reasons


def test_a_rubric_brings_its_template_and_its_choices() -> None:
    made = llm_judge("sim:judge", rubric="It names {{ city }}.")
    assert isinstance(made, Judge)
    assert made.choices == {"pass": 1.0, "fail": 0.0}
    assert "<rubric>\nIt names {{ city }}.\n</rubric>" in made.template
    assert "{{ output }}" in made.template


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "template is missing"),
        ({"template": "{{ output }}"}, "choices is missing"),
        ({"choices": {"yes": 1}}, "template is missing"),
        ({"rubric": " "}, "rubric"),
        ({"rubric": "kind", "choices": {"yes": 1}}, "rubric"),
        ({"rubric": "kind", "level": "session"}, "rubric"),
    ],
)
def test_a_judge_needs_a_rubric_or_a_template_with_choices(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SubmissionError, match=problem) as caught:
        llm_judge("sim:judge", **options)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("options", "output", "expected", "result"),
    [
        ({}, "18", "18", RIGHT),
        ({}, " 18\n", "18", RIGHT),
        ({}, "18", 18, RIGHT),
        ({}, "18", 18.0, RIGHT),
        ({}, "0.5", 0.5, RIGHT),
        ({}, "true", True, RIGHT),
        ({}, '["a"]', ["a"], RIGHT),
        ({}, "19", "18", WRONG),
        ({}, "Yes", "yes", WRONG),
        ({"ignore_case": True}, "STRASSE", "straße", RIGHT),
        ({"strip": False}, "18\n", "18", WRONG),
    ],
)
def test_exact_match_compares_texts(
    options: dict[str, Any], output: str, expected: Any, result: Score
) -> None:
    assert score(exact_match("answer", **options), output, {"answer": expected}) == result


@pytest.mark.parametrize(
    ("spec", "output", "result"),
    [
        (contains("answer"), "It is Paris.", RIGHT),
        (contains("answer"), "It is paris.", WRONG),
        (contains("answer", ignore_case=True), "It is PARIS.", RIGHT),
        (contains(text="is"), "It is.", RIGHT),
        (contains(text="was"), "It is.", WRONG),
        (regex(r"P\w+s"), "It is Paris.", RIGHT),
        (regex(r"p\w+s"), "It is Paris.", WRONG),
        (regex(r"is (\w+)", expected="answer"), "It is Paris.", RIGHT),
        (regex(r"is (\w+)", expected="answer"), "It is Rome.", WRONG),
        (regex(r"is (\w+)", expected="answer"), "It was Paris.", WRONG),
        (regex(r"is (\w+)?", expected="answer"), "It is ", WRONG),
        (json_valid(), ' {"a": [1, null]}\n', RIGHT),
        (json_valid(), "1", RIGHT),
        (json_valid(), "", WRONG),
        (json_valid(), "{'a': 1}", WRONG),
        (json_valid(), "NaN", WRONG),
        (json_valid(), '{"a": 1, "b": {"a": 2, "a": 3}}', WRONG),
        (json_valid(), '{"a": [1], "a": [1]}', RIGHT),
        (json_valid(fenced=True), '{"a": 1, "a": 2}', WRONG),
        (json_valid(), "```json\n{}\n```", WRONG),
        (json_valid(), "[" * 100_000, WRONG),
        (json_valid(), "9" * 5000, WRONG),
        (json_valid(required=["a"]), '{"a": 1}', RIGHT),
        (json_valid(required=["a", "b"]), '{"a": 1}', WRONG),
        (json_valid(required=["a"]), '["a"]', WRONG),
    ],
)
def test_an_output_is_scored(spec: Any, output: str, result: Score) -> None:
    assert score(spec, output, {"answer": "Paris"}) == result


@pytest.mark.parametrize(
    "spec",
    [
        exact_match("answer"),
        contains("answer"),
        numeric_match("answer"),
        regex("(a)", expected="answer"),
    ],
)
@pytest.mark.parametrize("row", [{}, {"answer": None}])
def test_a_row_without_what_is_expected_has_no_score(spec: Any, row: dict[str, Any]) -> None:
    result = score(spec, "a 1", row)
    assert result.value is None
    assert "answer" in (result.error or "")


def test_an_expectation_that_cannot_be_compared_gives_no_score() -> None:
    assert score(numeric_match("answer"), "18", {"answer": "eighteen"}).value is None
    assert score(contains("answer"), "18", {"answer": ""}).value is None
    assert score(contains("answer"), "18", {"answer": "\u200b"}).value is None


def test_a_pattern_that_no_constructor_made_gives_no_score() -> None:
    result = score(Regex(name="r", pattern="("), "a", {})
    assert result.value is None
    assert (result.error or "").startswith("the pattern ")


def test_a_group_that_no_constructor_checked_gives_no_score() -> None:
    assert score(Regex(name="r", pattern="a", expected="answer"), "a", {"answer": "a"}).value is None


def test_a_pattern_that_searches_for_ages_is_given_up() -> None:
    result = score(regex("(a?){40}(a+)+c"), "a" * 50_000, {})
    assert result.value is None
    assert "simplify its repeats" in (result.error or "")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("18", 18),
        ("#### 18", 18),
        ("The answer is 18.", 18),
        ("It costs $1,234.50, all in.", 1234.5),
        ("-7", -7),
        ("−7", -7),
        ("x = -7", -7),
        ("-$7", -7),
        ("$-7", -7),
        ("+7", 7),
        ("10-7", 7),
        ("10 - 7", 7),
        ("(3)-7", 7),
        ("pages 5–7", 7),
        ("50%", 50),
        (r"\boxed{18}", 18),
        ("**18**", 18),
        ("so <<3*6=18>>18 eggs", 18),
        ("18kg", 18),
        ("€18", 18),
        ("18 of GPT4", 18),
        ("0.5", 0.5),
        (".5", 0.5),
        ("so...18", 18),
        ("1.5e3", 1500),
        ("2E-2", 0.02),
        ("3 eggs", 3),
        ("70,000", 70000),
        ("1,234,567.89", 1234567.89),
        ("3, 4", 4),
        ("3,4", None),
        ("12,3456", None),
        ("first 1 then 2", 2),
        ("no number", None),
        ("", None),
        ("-", None),
        ("9" * 400, None),
        ("1" + " " * 200_000, None),
    ],
)
def test_the_last_number_of_a_text_counts(text: str, number: float | None) -> None:
    found = last_number(text)
    assert (None if found is None else float(found)) == number


@given(
    st.integers(-(10**12), 10**12), st.sampled_from(["{}", "${}", "so it is {:,}.", "#### {}\n", "= {:.2f}"])
)
def test_a_number_is_found_however_it_is_written(number: int, form: str) -> None:
    assert last_number(f"First 5, then {form.format(number)}") == number


@given(st.text(max_size=60))
def test_any_text_has_a_finite_last_number_or_none(text: str) -> None:
    number = last_number(text)
    assert number is None or math.isfinite(number)


@pytest.mark.parametrize(
    ("output", "expected", "result"),
    [
        ("So she makes $18.", "She makes 18.\n#### 18", RIGHT),
        ("18.0000001", 18, RIGHT),
        ("18.1", 18, WRONG),
        ("-18", 18, WRONG),
        ("none", 18, WRONG),
        ("70,000", 70000.0, RIGHT),
    ],
)
def test_numeric_match_compares_last_numbers(output: str, expected: Any, result: Score) -> None:
    assert score(numeric_match("answer"), output, {"answer": expected}) == result


def test_a_tolerance_is_absolute() -> None:
    assert score(numeric_match("answer", tolerance=0.5), "18.5", {"answer": 18}) == RIGHT
    assert score(numeric_match("answer", tolerance=0.5), "18.6", {"answer": 18}) == WRONG


@given(
    st.text(max_size=40),
    st.one_of(st.none(), st.text(max_size=10), st.floats(allow_nan=False), st.booleans()),
)
def test_scoring_never_raises(output: str, expected: object) -> None:
    for spec in (
        exact_match("a"),
        contains("a"),
        numeric_match("a"),
        regex("(.)", expected="a"),
        json_valid(),
    ):
        assert score(spec, output, {"a": expected}).value in (None, 0.0, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("yes", 1),
        ("No.", 0),
        (' "YES" ', 1),
        ("**Yes**", 1),
        ("_yes_", 1),
        ("[[no]]", 0),
        ("Verdict: yes", 1),
        ("The output matches: no.", 0),
        ('{"choice": "yes"}', 1),
        ("Yes. The answer is right.", 1),
        ("Yes, there is no mistake in it.", 1),
        ("There is no mistake in it, so: yes", 1),
        ("There is no mistake in it, so yes.", 1),
        ("Yes\n\nThere is no mistake.", 1),
        ("There is no doubt.\nVerdict: **Yes**\n", 1),
        ("<think>yes yes no</think>\nno", 0),
        ("yes yes yes", 1),
    ],
)
def test_a_judges_choice_is_found(answer: str, value: float) -> None:
    assert parse_choice(answer, YES_NO) == Score(value)


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("", "none of yes, no"),
        ("maybe", "the judge answered 'maybe', none of yes, no"),
        ("nobody knows yesterday", "none of"),
        ("x" * 5000, "…"),
        ("It could be yes or it could be no, hard to tell", "several of yes, no"),
        ("No, I mean yes", "several of"),
        ("yes/no", "several of"),
    ],
)
def test_an_answer_without_one_choice_has_no_score(answer: str, shown: str) -> None:
    result = parse_choice(answer, YES_NO)
    assert result.value is None
    assert shown in (result.error or "")
    assert len(result.error or "") < 400


@pytest.mark.parametrize(
    ("choices", "answer", "value"),
    [
        ({"correct": 1, "incorrect": 0}, "This is incorrect.", 0),
        ({"correct": 1, "not correct": 0}, "It is not  correct", 0),
        ({"A": 1, "A+": 2}, "A+.", 2),
        ({"A": 1, "A+": 2}, "Grade: A", 1),
        ({"1": 1, "10": 10}, "Score: 10", 10),
        ({"4": 4, "5": 5}, "4/5", 4),
        ({"4": 4, "5": 5}, "Score: 4/5", 4),
        ({"1": 1, "-1": -1}, "-1", -1),
        ({"1": 1, "5": 5}, "1.5", None),
        ({"0": 0, "1": 1}, "-1", None),
        ({"Straße": 1}, "STRASSE", 1),
        ({"(a)": 1, "(b)": 0}, "(b)", 0),
        ({}, "yes", None),
        ({" ": 1}, " ", None),
    ],
)
def test_a_choice_is_found_as_a_whole_word(
    choices: dict[str, float], answer: str, value: float | None
) -> None:
    assert parse_choice(answer, choices).value == value


WORDS = st.text(st.characters(categories=["Lu", "Ll", "Nd"]), min_size=1, max_size=6)


@given(st.dictionaries(WORDS, st.floats(-5, 5), min_size=1, max_size=5), st.data())
def test_a_choice_alone_is_always_understood(choices: dict[str, float], data: st.DataObject) -> None:
    if len({choice.casefold() for choice in choices}) < len(choices):
        return
    choice = data.draw(st.sampled_from(list(choices)))
    around = data.draw(st.sampled_from(["{}", "{}.", "**{}**", "Answer: {}", "Well…\n{}\n"]))
    assert parse_choice(around.format(choice), choices).value == choices[choice]


@given(st.text(max_size=80), st.dictionaries(st.text(max_size=5), st.floats(-5, 5), max_size=4))
def test_any_answer_has_a_choices_score_or_an_error(answer: str, choices: dict[str, float]) -> None:
    result = parse_choice(answer, choices)
    assert (result.value is None) == (result.error is not None)
    assert result.value is None or result.value in choices.values()


def test_a_judge_is_data() -> None:
    assert isinstance(judge(), Judge)


@given(
    st.text("eé\u0301a\u2000 ", min_size=1), st.sampled_from("\u200b\u034f\ufe0f\u2060"), st.integers(0, 9)
)
def test_an_invisible_sign_anywhere_makes_no_difference(text: str, sign: str, place: int) -> None:
    marked = f"{text[:place]}{sign}{text[place:]}"
    for expected, output in ((text, marked), (marked, text)):
        for evaluator in (exact_match("answer"), contains("answer")):
            assert score(evaluator, f"a{output}", {"answer": f"a{expected}"}) == RIGHT
