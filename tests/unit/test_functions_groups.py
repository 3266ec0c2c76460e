"""What a function raises in a task group is read as what it raises alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import RateLimited as SlowDown
from fairlane.model.outcome import (
    NetworkFailure,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    TimedOut,
)
from fairlane_workers.providers.errors.groups import MOST_LEAVES, leaves, outcome_of_group
from fairlane_workers.providers.errors.throttling import Throttled, throttled
from tests.unit.test_functions_provider import outcome
from tests.unit.test_functions_throttling import over_http

TREES = st.recursive(
    st.integers(0, 99).map(lambda number: ValueError(str(number))),
    lambda inner: st.lists(inner, min_size=1, max_size=4).map(lambda found: ExceptionGroup("some", found)),
    max_leaves=12,
)


def in_a_group(*errors: BaseException) -> Any:
    """An async function whose task group fails by these."""

    async def fail(error: BaseException) -> None:
        raise error

    async def function(row: Any) -> None:
        async with asyncio.TaskGroup() as group:
            for error in errors:
                group.create_task(fail(error))

    return function


def alone(error: BaseException) -> Any:
    async def function(row: Any) -> None:
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SlowDown("later", retry_after=3), RateLimited),
        (over_http(429), RateLimited),
        (over_http(503), Overloaded),
        (over_http(500), ServerError),
        (ConnectionError("reset"), NetworkFailure),
        (TimeoutError("slow"), TimedOut),
        (ValueError("wrong"), PermanentFailure),
        (FileNotFoundError("none"), PermanentFailure),
    ],
)
def test_one_error_of_a_group_is_the_outcome_that_it_is_alone(error: Exception, kind: type) -> None:
    expected = outcome(alone(error))

    assert isinstance(expected, kind)
    assert outcome(in_a_group(error)) == expected
    assert outcome(alone(ExceptionGroup("outer", [ExceptionGroup("inner", [error])]))) == expected


@pytest.mark.parametrize(
    ("errors", "kind", "words"),
    [
        ([ConnectionError("reset"), ValueError("wrong")], PermanentFailure, "ValueError: wrong; Connect"),
        ([ConnectionError("reset"), SlowDown("later")], RateLimited, "RateLimited: later; ConnectionError"),
        ([TimeoutError("slow"), ConnectionError("reset")], TimedOut, "TimeoutError: slow; ConnectionError"),
    ],
)
def test_of_several_errors_the_one_that_waits_longest_decides_and_all_are_quoted(
    errors: list[Exception], kind: type, words: str
) -> None:
    found: Any = outcome(alone(ExceptionGroup("some", errors)))

    assert isinstance(found, kind)
    assert found.message.startswith(f"2 errors in a group: {words}")


def test_of_several_rate_limits_the_longest_wait_is_obeyed() -> None:
    errors = [SlowDown("later", retry_after=3), SlowDown("later", retry_after=9), SlowDown("later")]
    found = outcome(alone(ExceptionGroup("some", errors)))

    assert isinstance(found, RateLimited)
    assert found.retry_after_ms == 9000


def test_a_group_that_an_error_was_raised_from_is_read_too() -> None:
    error = RuntimeError("the batch failed")
    error.__cause__ = ExceptionGroup("some", [ValueError("wrong"), over_http(429)])

    assert throttled(error, 0) == Throttled()
    assert isinstance(outcome(alone(error)), RateLimited)


def test_a_cancellation_beside_other_errors_says_nothing() -> None:
    error = BaseExceptionGroup("some", [asyncio.CancelledError(), ConnectionError("reset")])

    assert isinstance(outcome(alone(error)), NetworkFailure)
    assert isinstance(leaves(BaseExceptionGroup("some", [asyncio.CancelledError()]))[0], BaseException)


def test_of_a_huge_or_deep_group_a_bounded_number_of_errors_is_read() -> None:
    deep: Exception = ConnectionError("reset")
    for _ in range(5000):
        deep = ExceptionGroup("deep", [deep])
    wide = ExceptionGroup("wide", [ConnectionError(str(number)) for number in range(10_000)])

    assert isinstance(outcome(alone(wide)), NetworkFailure)
    assert isinstance(outcome(alone(deep)), NetworkFailure)
    assert len(leaves(wide)) == MOST_LEAVES
    assert [str(each) for each in leaves(deep)] == ["reset"]


@given(TREES)
def test_the_leaves_of_any_tree_are_its_errors_in_order(tree: Exception) -> None:
    def flat(error: BaseException) -> list[BaseException]:
        if not isinstance(error, BaseExceptionGroup):
            return [error]
        return [leaf for each in error.exceptions for leaf in flat(each)]

    assert leaves(tree) == flat(tree)


KINDS: list[Outcome] = [
    PermanentFailure("for good"),
    PermanentFailure("perhaps", doubtful=True),
    RateLimited("rate", retry_after_ms=5),
    Overloaded("full", 503),
    ServerError("broken", 500),
    TimedOut("late"),
    NetworkFailure("reset"),
]


@given(st.lists(st.integers(0, len(KINDS) - 1), min_size=1, max_size=6))
def test_the_order_of_errors_does_not_change_what_a_group_is(kinds: list[int]) -> None:
    def decided(order: list[int]) -> Any:
        by_number = {id(error): KINDS[kind] for kind, error in zip(order, errors, strict=True)}
        return outcome_of_group(errors, lambda error: by_number[id(error)])

    errors = [ValueError() for _ in kinds]

    assert type(decided(kinds)) is type(KINDS[min(kinds)]) is type(decided(kinds[::-1]))
