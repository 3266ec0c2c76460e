"""MLflow's data and environment variables, read for Fairlane."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from fairlane.compat.mlflow import MlflowBounds, evaluate, mlflow_bounds
from fairlane.compat.mlflow_examples import check_outputs, read_examples
from fairlane.core.errors import ConfigurationError, MissingExtra, SubmissionError
from fairlane.model.decision import RetryPolicy

CASE = {"inputs": {"q": "x"}, "outputs": {"a": 1}, "expectations": {"expected_response": "y"}}


def test_the_variables_bound_both_parts_of_an_evaluation() -> None:
    environ = {
        "MLFLOW_GENAI_EVAL_MAX_WORKERS": "5",
        "MLFLOW_GENAI_EVAL_PREDICT_RATE_LIMIT": "2.5",
        "MLFLOW_GENAI_EVAL_SCORER_RATE_LIMIT": "0",
        "MLFLOW_GENAI_EVAL_MAX_RETRIES": "0",
        "MLFLOW_GENAI_EVAL_ASYNC_TIMEOUT": "300",
        "MLFLOW_GENAI_EVAL_LLM_TIMEOUT": " 60 ",
    }
    bounds = MlflowBounds(5, 2.5, 0.0, RetryPolicy(max_attempts=1), 300.0, 60.0)
    assert mlflow_bounds(environ) == bounds
    assert mlflow_bounds({"MLFLOW_GENAI_EVAL_PREDICT_RATE_LIMIT": "AUTO"}) == MlflowBounds()
    assert mlflow_bounds({"MLFLOW_GENAI_EVAL_MAX_WORKERS": ""}) == MlflowBounds()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("MAX_WORKERS", "0", "a whole number from 1 on"),
        ("MAX_WORKERS", "1.5", "a whole number from 1 on"),
        ("MAX_RETRIES", "-1", "a whole number from 0 on"),
        ("PREDICT_RATE_LIMIT", "fast", "a number from 0 on"),
        ("SCORER_RATE_LIMIT", "inf", "a number from 0 on"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"MLFLOW_GENAI_EVAL_{name}.*{why}"):
        mlflow_bounds({f"MLFLOW_GENAI_EVAL_{name}": value})


def test_a_case_becomes_a_row_of_its_inputs_and_expectations() -> None:
    (example,) = read_examples([CASE])
    assert example.row() == {"q": "x", "expected_response": "y", "outputs": '{"a": 1}'}
    assert example.as_data() == CASE


def test_a_frame_is_read_and_its_gaps_are_no_outputs() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([CASE, {"inputs": {"q": "z"}}])
    first, second = read_examples(frame)
    assert first.as_data() == CASE
    assert (second.outputs, second.expectations) == (None, None)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("x", "no list"),
        (None, "no list"),
        ([], "no example"),
        ([{"q": 1}], r"data\[0\].inputs"),
        ([1], r"data\[0\]"),
    ],
)
def test_other_data_is_refused_by_name(data: Any, why: str) -> None:
    with pytest.raises(SubmissionError, match=why):
        read_examples(data)


def test_a_case_without_an_output_or_a_way_to_one_is_named() -> None:
    with pytest.raises(SubmissionError, match=r"data\[1\].outputs.*predict_fn"):
        check_outputs(read_examples([CASE, {"inputs": {"q": "x"}}]))


def test_without_mlflow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtra, match=r"fairlane\[mlflow\]"):
        evaluate([CASE], [])
