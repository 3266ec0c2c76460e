"""Estimates of what a call will cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.tokens import DEFAULT_OUTPUT_TOKENS, estimate_call, estimate_tokens

MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.just("user"), "content": st.text(max_size=50)}), max_size=5
)
PARAM = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("ä" * 8, 2)])
def test_four_characters_are_a_token(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(MESSAGES, st.integers(1, 5000))
def test_a_call_is_reserved_at_least_what_a_plain_count_charges(
    messages: list[dict[str, str]], limit: int
) -> None:
    characters = sum(len(message["content"]) for message in messages)
    estimate = estimate_call(messages, {"max_tokens": limit})
    assert estimate.input >= -(-characters // 4)
    assert (estimate.output, estimate.total) == (limit, estimate.input + limit)


@pytest.mark.parametrize(
    ("params", "output"),
    [
        ({}, DEFAULT_OUTPUT_TOKENS),
        ({"max_tokens": 64}, 64),
        ({"max_completion_tokens": 65}, 65),
        ({"max_tokens": 64, "max_completion_tokens": 65}, 65),
        ({"max_tokens": 64, "n": 3}, 192),
        ({"max_tokens": 0}, DEFAULT_OUTPUT_TOKENS),
        ({"max_tokens": -5}, DEFAULT_OUTPUT_TOKENS),
        ({"max_tokens": True}, DEFAULT_OUTPUT_TOKENS),
        ({"max_tokens": "64"}, DEFAULT_OUTPUT_TOKENS),
        ({"max_tokens": 64, "n": 0}, 64),
    ],
)
def test_the_output_is_the_limit_that_the_parameters_set(params: dict[str, Any], output: int) -> None:
    assert estimate_call([], params) == (estimate_call([], {}).input, output)


@given(MESSAGES, PARAM, PARAM, PARAM)
def test_an_estimate_is_of_positive_integers_whatever_the_parameters(
    messages: list[dict[str, str]], first: object, second: object, n: object
) -> None:
    estimate = estimate_call(messages, {"max_tokens": first, "max_completion_tokens": second, "n": n})
    assert {type(part) for part in estimate} == {int}
    assert min(estimate) > 0
