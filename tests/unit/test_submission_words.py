"""A refused argument is called as `submit` calls it, with what to write in its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from fairlane import SubmissionError, criterion, numeric_match, similarity
from fairlane.cli.runs.submitting.assignments import OPTIONS, OWN_OPTIONS, read_options
from fairlane.client.submitting.options import SubmitOptions
from fairlane.client.submitting.submission import build_spec
from fairlane.core.errors import ConfigurationError
from fairlane.store.keys import Keys
from fairlane.store.write.budgets import Budgets

WRONG: list[tuple[str, Any]] = [
    ("ahead", -1),
    ("task_rate", -1),
    ("task_rate", "fast"),
    ("eval_rate", 1e-9),
    ("delay", -1),
    ("max_duration", 0),
    ("max_outage", -3),
    ("on_refusal", "wait"),
    ("budget_tokens", 0),
    ("budget_usd", 0),
    ("cache", "on"),
    ("cache_ttl", 0),
    ("run_serially", ""),
    ("run_serially", 1),
]


@pytest.mark.parametrize(("argument", "value"), WRONG)
def test_a_wrong_bound_is_named_as_its_argument_with_a_remedy(argument: str, value: Any) -> None:
    with pytest.raises(SubmissionError) as caught:
        build_spec("r1", "search", 1, prompt="{{ q }}", model="sim:fast", **{argument: value})
    assert caught.value.field == argument
    assert str(caught.value).startswith(f"{argument}: ")
    assert "Give " in str(caught.value)


@given(st.sampled_from(sorted({name for name, _ in WRONG})), st.sampled_from([b"x", [], {}]))
def test_no_value_of_another_type_names_a_part_of_the_spec(argument: str, value: Any) -> None:
    with pytest.raises(SubmissionError) as caught:
        build_spec("r1", "search", 1, prompt="{{ q }}", model="sim:fast", **{argument: value})
    assert caught.value.field == argument


@pytest.mark.parametrize("name", ["a\nb", "x" * 201, "\u202e"])
def test_a_wrong_name_is_refused_in_words(name: str) -> None:
    with pytest.raises(SubmissionError, match="a text of at most 200 characters") as caught:
        build_spec("r1", "search", 1, prompt="{{ q }}", model="sim:fast", name=name)
    assert "String" not in str(caught.value)
    assert "pattern" not in str(caught.value)


@pytest.mark.parametrize(
    ("build", "remedy"),
    [
        (lambda: numeric_match("a", tolerance=-1), "0 or more"),
        (lambda: similarity("sim:e", "a", threshold=2), "from -1 to 1"),
        (lambda: criterion("a b", "?"), "criterion"),
    ],
)
def test_a_wrong_evaluator_has_a_remedy(build: Any, remedy: str) -> None:
    with pytest.raises(SubmissionError, match=remedy):
        build()


def test_every_argument_of_submit_is_an_option_or_has_one_of_its_own() -> None:
    assert OPTIONS | OWN_OPTIONS.keys() >= SubmitOptions.__annotations__.keys()
    assert not OPTIONS & OWN_OPTIONS.keys()


@pytest.mark.parametrize("name", sorted(OWN_OPTIONS))
def test_an_argument_with_its_own_option_is_refused_with_that_option(name: str) -> None:
    with pytest.raises(SubmissionError) as caught:
        read_options([f"{name}=1"])
    assert f"Write {OWN_OPTIONS[name]}." in str(caught.value)


def test_a_misspelt_option_is_compared_with_all_arguments() -> None:
    with pytest.raises(SubmissionError, match=r"Did you mean 'max_concurrent'\?"):
        read_options(["max_concurent=2"])


@pytest.mark.parametrize(
    ("limits", "field", "remedy"),
    [
        ({"tokens": 0}, "teams.search.budgets.tokens", "whole number"),
        ({"usd": -1}, "teams.search.budgets.usd", "dollars"),
        ({"requests": 1.5}, "teams.search.budgets.requests", "whole number"),
    ],
)
def test_a_wrong_budget_is_named_with_a_remedy(
    redis: Redis, limits: dict[str, float], field: str, remedy: str
) -> None:
    with pytest.raises(ConfigurationError, match=remedy) as caught:
        Budgets(redis, Keys("test")).set("search", "day", limits)
    assert field in str(caught.value)
    assert "type=" not in str(caught.value)
