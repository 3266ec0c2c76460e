"""What a function is called with, by its signature."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from fairlane.core.errors import FunctionMismatch
from fairlane_workers.functions.arguments import bind

TASK = {"row": {"q": 1}, "params": {"depth": 2}}
ASKED = TASK | {"messages": [{"role": "user", "content": "hello"}]}
SCORE = {"output": "yes", "row": {"q": 1}}
SESSION = {"session": [{"row": {"q": 1}, "output": "yes"}]}
CALL = {"row": {"args": [1, 2], "kwargs": {"c": 3}}, "params": {}}


def given(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    return bind(function, arguments)()


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (lambda row: row, TASK, {"q": 1}),
        (lambda row, params: (row, params), TASK, ({"q": 1}, {"depth": 2})),
        (lambda *, params: params, TASK, {"depth": 2}),
        (lambda messages: messages[0]["content"], ASKED, "hello"),
        (lambda row, output: (row, output), SCORE, ({"q": 1}, "yes")),
        (lambda session: len(session), SESSION, 1),
        (lambda row, retries=3: retries, TASK, 3),
        (lambda row, messages=None: messages, TASK, None),
    ],
)
def test_a_function_takes_by_name_what_its_signature_asks_for(
    function: Callable[..., Any], arguments: dict[str, Any], expected: Any
) -> None:
    assert given(function, arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"), [(TASK, {"q": 1}), (SCORE, "yes"), (SESSION, SESSION["session"])]
)
def test_one_that_names_none_of_them_takes_the_row_a_scorer_the_output(
    arguments: dict[str, Any], expected: Any
) -> None:
    assert given(lambda anything: anything, arguments) == expected
    assert given(lambda anything, /: anything, arguments) == expected
    assert given(lambda anything, other=1: anything, arguments) == expected


def test_one_that_needs_nothing_still_takes_the_one_thing() -> None:
    assert given(lambda text="": text, SCORE) == "yes"
    assert given(lambda *everything: everything, SCORE) == ("yes",)
    assert given(lambda: "nothing", SCORE) == "nothing"


def test_one_that_takes_any_names_gets_all() -> None:
    assert given(lambda **named: named, SCORE) == SCORE
    assert given(lambda text, **named: text, SCORE) == "yes"


def test_a_function_without_a_signature_gets_the_single_argument() -> None:
    assert given(max, {"session": [1, 3, 2]}) == 3


def test_a_partial_and_a_callable_object_are_functions_too() -> None:
    class Scorer:
        def __call__(self, output: str) -> str:
            return output

    assert given(Scorer(), SCORE) == "yes"
    assert given(functools.partial(lambda row, depth: depth, depth=5), TASK) == 5


def test_a_function_that_asks_for_what_there_is_not_sees_what_there_is() -> None:
    with pytest.raises(FunctionMismatch, match="asks for output; it may ask for params, row"):
        bind(lambda row, output: None, TASK)
    with pytest.raises(FunctionMismatch, match="asks for left, right"):
        bind(lambda left, right: None, TASK)


def test_a_call_hands_its_arguments_on_as_they_are() -> None:
    assert given(lambda *args, **kwargs: (args, kwargs), CALL) == ((1, 2), {"c": 3})


def test_a_row_with_more_than_a_calls_fields_is_a_row() -> None:
    row = {"args": [1], "kwargs": {}, "id": 7}

    assert given(lambda row: row, {"row": row, "params": {}}) == row


def test_a_celery_task_is_asked_for_what_its_function_takes() -> None:
    app = Celery("test", set_as_current=False)

    @app.task(shared=False)
    def plain(row: Any) -> Any:
        return row

    @app.task(shared=False, bind=True)
    def bound(self: Any, row: Any) -> Any:
        return self.name, row

    assert given(plain, TASK) == {"q": 1}
    assert given(bound, TASK) == (bound.name, {"q": 1})


def unwrapped(function: Any) -> Any:
    """What a decorator without ``functools.wraps`` makes of a function."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def test_a_task_that_hides_what_it_asks_for_gets_the_row_alone() -> None:
    assert given(unwrapped(lambda row: row), TASK) == TASK["row"]
    assert given(unwrapped(lambda any_name: any_name), TASK) == TASK["row"]
    assert given(unwrapped(lambda output, row: (output, row)), SCORE) == (SCORE["output"], SCORE["row"])
    assert given(lambda **named: named, TASK) == TASK
