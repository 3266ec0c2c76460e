"""How long a failed call waits: two ways to draw it, both bounded, both a function of attempt and random
source.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fairlane.model.decision import ADDED_JITTER_S, RetryPolicy

ATTEMPTS = st.integers(1, 100)
SEEDS = st.integers(0, 2**32)
ROUNDED_MS = 0.5

policies = st.tuples(st.floats(0, 100), st.floats(0, 1000)).map(
    lambda pair: {"initial_delay": min(pair), "max_delay": max(pair)}
)


class Extreme(random.Random):
    """Draws the least or the most that it may."""

    def __init__(self, most: bool) -> None:
        super().__init__()
        self._most = most

    def uniform(self, a: float, b: float) -> float:
        return b if self._most else a


@given(policies, ATTEMPTS, SEEDS)
def test_full_jitter_is_between_nothing_and_the_bounded_exponential(
    bounds: dict[str, float], attempts: int, seed: int
) -> None:
    policy = RetryPolicy.model_validate(bounds)
    ceiling_ms = 1000 * min(policy.max_delay, policy.initial_delay * 2 ** (attempts - 1))
    assert 0 <= policy.delay_ms(attempts, random.Random(seed)) <= ceiling_ms + ROUNDED_MS


@given(policies, ATTEMPTS, SEEDS)
def test_added_jitter_is_the_exponential_and_up_to_half_a_second_within_the_maximum(
    bounds: dict[str, float], attempts: int, seed: int
) -> None:
    policy = RetryPolicy.model_validate({**bounds, "jitter": "added"})
    exponential = policy.initial_delay * 2 ** (attempts - 1)
    least_ms, most_ms = (
        1000 * min(each, policy.max_delay) for each in (exponential, exponential + ADDED_JITTER_S)
    )
    delay_ms = policy.delay_ms(attempts, random.Random(seed))
    assert least_ms - ROUNDED_MS <= delay_ms <= most_ms + ROUNDED_MS


@given(policies, st.integers(1, 99), st.booleans(), st.sampled_from(["full", "added"]))
def test_the_same_draw_is_never_shorter_for_a_later_attempt(
    bounds: dict[str, float], attempts: int, most: bool, jitter: str
) -> None:
    policy, draw = RetryPolicy.model_validate({**bounds, "jitter": jitter}), Extreme(most)
    assert policy.delay_ms(attempts, draw) <= policy.delay_ms(attempts + 1, draw)


def test_fr_002_the_added_formula_is_min_of_exponential_plus_jitter_and_maximum() -> None:
    policy = RetryPolicy(jitter="added")
    assert (policy.initial_delay, policy.max_delay, policy.max_attempts) == (1.0, 60.0, 3)
    least = [policy.delay_ms(n, Extreme(most=False)) for n in range(1, 9)]
    most = [policy.delay_ms(n, Extreme(most=True)) for n in range(1, 9)]
    assert least == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]
    assert most == [1500, 2500, 4500, 8500, 16_500, 32_500, 60_000, 60_000]


def test_full_jitter_is_what_a_policy_has_that_says_nothing() -> None:
    policy = RetryPolicy()
    assert policy.jitter == "full"
    assert [policy.delay_ms(n, Extreme(most=False)) for n in (1, 5)] == [0, 0]
    assert [policy.delay_ms(n, Extreme(most=True)) for n in (1, 2, 7)] == [1000, 2000, 60_000]


def test_a_jitter_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValidationError, match="jitter"):
        RetryPolicy.model_validate({"jitter": "none"})
