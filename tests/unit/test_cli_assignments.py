"""``name=value`` options: parameters are JSON or plain words, evaluators are named with their options."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.cli.runs.submitting.assignments import read_evaluator, read_judge, read_params
from fairlane.core.errors import SubmissionError
from fairlane.evaluators.builders import contains, exact_match, json_valid, llm_judge, numeric_match, regex
from fairlane.model.evaluators import EvaluatorSpec

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(json_values)
def test_any_json_value_is_taken_as_it_is(value: object) -> None:
    assert read_params("--param", [f"key={json.dumps(value)}"]) == {"key": value}


def test_a_plain_word_needs_no_quotes() -> None:
    given = ["reasoning_effort=low", "stop=a=b", "user="]
    assert read_params("--param", given) == {"reasoning_effort": "low", "stop": "a=b", "user": ""}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["max_tokens"], "is not name=value"),
        (["=64"], "is not name=value"),
        (["a=1", "a=2"], "a is given twice"),
        (["temperature=0,5"], "Put double quotes around a text"),
        (["stop=[1"], "the value is not JSON"),
        pytest.param([f"stop={'[' * 100_000}"], "the value is not JSON", id="deep"),
        (["logprobs=True"], "JSON writes true"),
    ],
)
def test_what_is_no_parameter_is_reported(given: list[str], complaint: str) -> None:
    with pytest.raises(SubmissionError, match=complaint):
        read_params("--param", given)


@pytest.mark.parametrize(
    ("given", "spec"),
    [
        ("exact_match:expected=answer", exact_match("answer")),
        (
            "exact_match:expected=answer,ignore_case=true,strip=false,name=em",
            exact_match("answer", ignore_case=True, strip=False, name="em"),
        ),
        ("contains:text=yes, indeed", contains(text="yes, indeed")),
        ("numeric_match:expected=answer,tolerance=0.5", numeric_match("answer", tolerance=0.5)),
        (r"regex:pattern=(\d{1,3}) kg,expected=weight", regex(r"(\d{1,3}) kg", expected="weight")),
        ("json_valid", json_valid()),
        *(
            (f"json_valid:required={keys}", json_valid(required=["name", "age"]))
            for keys in ("name+age", "name,age", "name, age", '["name", "age"]', '["name","age"]')
        ),
        ('json_valid:required=["a,b+c"],name=j', json_valid(required=["a,b+c"], name="j")),
    ],
)
def test_an_evaluator_is_named_with_its_options(given: str, spec: EvaluatorSpec) -> None:
    assert read_evaluator(given) == spec


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("exact_mach:expected=answer", "Did you mean 'exact_match'"),
        ("bleu", "There are exact_match, contains, regex, json_valid, numeric_match"),
        ("llm_judge:model=sim:judge", "--judge-model"),
        ("exact_match", "missing a required argument: 'expected'"),
        ("exact_match:expectd=answer", "exact_match takes expected, ignore_case, strip, name"),
        ("exact_match:answer", "'answer' is no option"),
        ("exact_match:expected=answer,strip=no", "'no' is neither true nor false"),
        ("numeric_match:expected=answer,tolerance=small", "'small' is no number"),
        ('json_valid:required=["a"', "is not JSON"),
        ("json_valid:required=[1]", "is no list of texts"),
    ],
)
def test_what_is_no_evaluator_is_reported(given: str, complaint: str) -> None:
    with pytest.raises(SubmissionError, match=complaint):
        read_evaluator(given)


def test_a_judge_has_the_same_defaults_as_in_python() -> None:
    made = read_judge("sim:judge", "{{ output }}", None, [])
    assert made == llm_judge("sim:judge", "{{ output }}", {"yes": 1, "no": 0})


def test_a_judge_takes_choices_and_parameters_over_the_defaults() -> None:
    made = read_judge("sim:judge", "{{ output }}", '{"good": 1, "bad": -1}', ["max_tokens=900", "seed=1"])
    params = {"max_tokens": 900, "seed": 1}
    assert made == llm_judge("sim:judge", "{{ output }}", {"good": 1, "bad": -1}, params=params)


@pytest.mark.parametrize(
    "choices", ["yes", "[1]", '{"yes": "one"}', "{}", pytest.param("[" * 100_000, id="deep")]
)
def test_choices_are_an_object_of_numbers(choices: str) -> None:
    with pytest.raises(SubmissionError):
        read_judge("sim:judge", "{{ output }}", choices, [])
