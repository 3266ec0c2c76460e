"""Assertions that a row makes about its own output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.evaluators.assertions import AssertionsError, separated, share_met, value_problem
from fairlane.evaluators.schema import conforms, schema_problem
from fairlane.evaluators.scorers import score
from fairlane.model.evaluators import Assertions


def met(kind: str, output: str, value: Any = None) -> bool:
    return share_met([{"type": kind, "value": value}], output) == 1.0


@pytest.mark.parametrize(
    ("kind", "value", "good", "bad"),
    [
        ("equals", "Paris", "Paris", "Paris "),
        ("equals", 5, "5", "5.0"),
        ("equals", {"a": [1, 2]}, '{"a": [1, 2.0]}', '{"a": [true, 2]}'),
        ("contains", "Par", "in Paris", "in paris"),
        ("icontains", "PAR", "in paris", "in Rome"),
        ("contains-all", ["a", "b"], "b a", "a A"),
        ("contains-all", "a, b", "b a", "a A"),
        ("contains-any", ["x", "b"], "abc", "ac"),
        ("icontains-all", ["A", "B"], "b a", "a"),
        ("icontains-any", ["A", "X"], "a", "b"),
        ("starts-with", "Yes", "Yes, it is", "No. Yes"),
        ("regex", r"\d{3}", "abc 123", "12"),
        ("is-json", None, "[1]", "so: [1]"),
        ("is-json", {"type": "object", "required": ["a"]}, '{"a": 1}', "{}"),
        ("contains-json", None, "so: {nope} [1] is it", "so: {nope}"),
        ("contains-json", {"type": "array"}, 'it is {"a": [1]} or [2]', 'it is {"a": [1]}'),
    ],
)
def test_an_assertion_is_met_by_what_it_names_and_its_opposite_by_all_else(
    kind: str, value: Any, good: str, bad: str
) -> None:
    assert (met(kind, good, value), met(kind, bad, value)) == (True, False)
    assert (met(f"not-{kind}", good, value), met(f"not-{kind}", bad, value)) == (False, True)


def test_the_score_is_the_weighted_share_of_those_met() -> None:
    assertions = [
        {"type": "contains", "value": "a", "weight": 3},
        {"type": "contains", "value": "b"},
        {"type": "contains", "value": "c", "weight": 0},
    ]
    assert share_met(assertions, "a") == 0.75
    assert share_met(assertions, "ab") == 1.0
    assert share_met([], "anything") == 1.0


def test_a_row_without_its_assertions_or_with_malformed_ones_has_no_score_and_says_why() -> None:
    spec = Assertions(name="assertions", field="__assert")
    assert score(spec, "x", {}).error == "the row has no assertions in '__assert'"
    assert score(spec, "x", {"__assert": "x"}).error == "the row's assertions are no list"
    unknown = score(spec, "x", {"__assert": [{"type": "similar", "value": "y"}]})
    assert unknown.error == "assertion 1 (similar): there is no such assertion"
    assert score(spec, "x", {"__assert": [{"type": "contains", "value": "x"}]}).value == 1.0
    with pytest.raises(AssertionsError, match="assertion 2 has no type"):
        share_met([{"type": "equals", "value": ""}, {}], "")


def test_a_pattern_that_takes_ages_is_given_up() -> None:
    with pytest.raises(AssertionsError, match="without an end"):
        share_met([{"type": "regex", "value": "(a|aa)+$"}], "a" * 60 + "b")


def test_values_that_cannot_be_checked_are_known_beforehand() -> None:
    assert value_problem("contains", "") == "its value is empty"
    assert value_problem("contains-any", {}) == "its value is no list of texts"
    assert value_problem("regex", "(") is not None
    assert value_problem("is-json", {"oneOf": []}) == "schema has the keyword 'oneOf', which is not supported"
    assert value_problem("not-equals", 3) is None


def test_a_schema_is_held_to_in_its_depth() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[A-Z]", "minLength": 2},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
            "age": {"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 150},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    assert schema_problem(schema) is None
    assert conforms({"name": "Ann", "tags": ["a"], "age": 149.0}, schema)
    assert conforms({"name": "Ann", "age": None}, schema)
    for value in (
        {"name": "ann"},
        {"name": "A"},
        {"tags": []},
        {"name": "Ann", "tags": ["c"]},
        {"name": "Ann", "tags": ["a", "a", "a"]},
        {"name": "Ann", "age": 150},
        {"name": "Ann", "age": True},
        {"name": "Ann", "more": 1},
        [],
    ):
        assert not conforms(value, schema)
    assert conforms(1, True)
    assert not conforms(1, False)


@pytest.mark.parametrize(
    "schema", ["x", {"type": "text"}, {"required": "a"}, {"pattern": "("}, {"items": {"minimum": "1"}}]
)
def test_a_malformed_schema_is_reported(schema: object) -> None:
    assert schema_problem(schema) is not None


digits = st.integers(0, 4000)
"""How many zeros a number has: Python reads integers of up to 4,300 digits."""
numbers = st.builds(lambda sign, zeros: sign * 10**zeros, st.sampled_from([-1, 1]), digits) | st.floats(
    allow_nan=False, allow_infinity=False
)


@given(numbers, numbers, numbers | st.none())
def test_numbers_of_any_size_are_scored_or_have_a_reason(
    output: float, bound: float, weight: float | None
) -> None:
    kinds = {"integer", "number"} if isinstance(output, int) or output.is_integer() else {"number"}
    schema = {"type": sorted(kinds), "minimum": bound}
    plain = [{"type": "is-json", "value": schema}]
    assert share_met(plain, json.dumps(output)) == float(output >= bound)
    other = {"type": "contains", "value": "no such text", "weight": 1 if weight is None else weight}
    if weight is None or 0 <= weight <= 1e300:
        assert 0 <= share_met([*plain, other, other], json.dumps(output)) <= 1
        return
    with pytest.raises(AssertionsError, match="weight"):
        share_met([*plain, other, other], json.dumps(output))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a, b,,c ,", ["a", "b", "c"]),
        ('"a, b", c', ["a, b", "c"]),
        (r'"say ""x""" , "\"\\" ,"\n"', ['say "x"', '"\\', r"\n"]),
        ('a"b, c"d', ['a"b', 'c"d']),
        ('"", a', ["", "a"]),
        ('"a', []),
        ('"a" b', []),
        ('a, "b""', []),
        (" , ", []),
    ],
)
def test_texts_between_commas_are_those_of_promptfoo(text: str, parts: list[str]) -> None:
    assert separated(text) == parts
