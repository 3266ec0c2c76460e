"""Scorers of the client are checked before anything runs, and change nothing that others read."""

from __future__ import annotations

import functools
import sys
from typing import Any

import pytest

from fairlane import scorer
from fairlane.core.errors import SubmissionError
from fairlane.evaluators.client_side import scored
from tests.support.records import make_record
from tests.support.stage import Stage


class Unshowable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def changing(row: dict[str, Any]) -> int:
    row["q"] = "CHANGED"
    row["deep"].append(1)
    return 1


def asked(row: dict[str, Any]) -> int:
    return int(row == {"q": "as it was", "deep": []})


def test_what_a_scorer_changes_in_its_row_is_seen_by_no_other() -> None:
    record = make_record(row={"q": "as it was", "deep": []}, output="yes")
    found = scored(record, [scorer(changing, where="client"), scorer(asked, where="client")])

    assert (found.row, found.scores["asked"]) == ({"q": "as it was", "deep": []}, 1.0)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unshowable(), "Unshowable: (it cannot be shown)"),
        (SystemExit(3), "SystemExit: 3"),
        (BaseExceptionGroup("some", [SystemExit(1)]), "BaseExceptionGroup: some (1 sub-exception)"),
    ],
)
def test_whatever_a_scorer_raises_is_its_records_error(error: BaseException, words: str) -> None:
    def fail(output: str) -> int:
        raise error

    found = scored(make_record(output="yes"), [scorer(fail, where="client")])
    assert (found.scores["fail"], found.score_errors["fail"]) == (None, words)


def test_an_interrupt_goes_through() -> None:
    def stop(output: str) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scored(make_record(output="yes"), [scorer(stop, where="client")])


def two(first: str, second: str) -> int:
    return 1


def more(output: str, other: str) -> int:
    return 1


@pytest.mark.parametrize("function", [lambda: 1, two, more, lambda *, other: 1, lambda **named: 1])
def test_a_function_that_cannot_be_called_is_refused_at_once(function: Any) -> None:
    with pytest.raises(SubmissionError, match="the client cannot call it") as caught:
        scorer(function, name="mine", where="client")
    assert "output and row" in caught.value.remedy


@pytest.mark.parametrize(
    "function",
    [
        len,
        lambda *any: 1,
        lambda text, other=1: 1,
        functools.partial(two, "x"),
        lambda row, *, output: 1,
        str,
    ],
)
def test_a_function_that_takes_the_output_is_taken(function: Any) -> None:
    found = scored(make_record(output="7"), [scorer(function, name="mine", where="client")])
    assert "mine" in found.scores
    assert "TypeError" not in found.score_errors.get("mine", "")


def test_outputs_that_only_the_client_scores_need_no_run(stage: Stage) -> None:
    with pytest.raises(SubmissionError, match="need no run") as caught:
        stage.client.submit([{"said": "x"}], output="said", evaluators=[scorer(len, where="client")])
    assert caught.value.value == "len"
    assert "evaluator that workers run" in caught.value.remedy


def answer(row: dict[str, Any]) -> str:
    return "yes"


class Answers:
    def method(self, row: dict[str, Any]) -> str:
        return "yes"


def test_the_task_may_be_the_function_itself(stage: Stage) -> None:
    run = stage.client.submit([{"q": 1}], task=answer)
    assert run.spec is not None
    assert run.spec.models == (f"python:{__name__}:answer",)


@pytest.mark.parametrize(
    "task",
    [
        *(
            "mods/fns.py:ok",
            "mods.fns:Class.method",
            "ok",
            "",
            "a:b:c",
            "mods.fns:",
            " m:f",
            "m:f()",
            "m:<lambda>",
        ),
        *(Answers, Answers().method, Answers.method, lambda row: 1, 5, ["m:f"], sys),
    ],
)
def test_a_task_that_names_no_function_is_refused_before_it_has_a_lane(stage: Stage, task: Any) -> None:
    before = set(stage.redis.keys())
    with pytest.raises(SubmissionError, match=r"function|workers cannot import|no name") as caught:
        stage.client.submit([{"q": 1}], task=task)
    assert caught.value.field == "task"
    assert "package.module:function" in caught.value.remedy
    assert set(stage.redis.keys()) == before


@pytest.mark.parametrize("model", ["python:<function f at 0x7f>", "python:mods/fns.py:ok", "python:m:C.f"])
def test_a_model_that_names_no_function_is_refused(stage: Stage, model: str) -> None:
    with pytest.raises(SubmissionError, match="names no function"):
        stage.client.submit([{"q": 1}], model=model)
