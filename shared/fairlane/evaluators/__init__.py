"""Evaluators a run may carry: pure scorers that need no permit, and judges that are calls of their own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fairlane.errors import SubmissionError
from fairlane.evaluators.spec import (
    Contains,
    EvaluatorSpec,
    ExactMatch,
    JsonValid,
    Judge,
    NumericMatch,
    Regex,
)

__all__ = ["contains", "exact_match", "json_valid", "llm_judge", "numeric_match", "regex"]

Spec = TypeVar("Spec", bound=BaseModel)


def exact_match(
    expected: str, *, ignore_case: bool = False, strip: bool = True, name: str = "exact_match"
) -> EvaluatorSpec:
    """1 if the output is the text of the row's field ``expected``, else 0."""
    return _build(ExactMatch, name=name, expected=expected, ignore_case=ignore_case, strip=strip)


def contains(
    expected: str | None = None, *, text: str | None = None, ignore_case: bool = False, name: str = "contains"
) -> EvaluatorSpec:
    """1 if the output contains the row's field ``expected``, or the fixed ``text``; give one of them."""
    if (expected is None) == (text is None):
        given = {"expected": expected, "text": text}
        raise SubmissionError(
            "evaluators",
            given,
            "contains takes one of expected and text",
            "Name a row field, or a fixed text.",
        )
    return _build(Contains, name=name, expected=expected, text=text, ignore_case=ignore_case)


def regex(pattern: str, *, expected: str | None = None, name: str = "regex") -> EvaluatorSpec:
    """1 if ``pattern`` is found in the output; with ``expected``, if its first group is that row field.

    Refuses patterns that could search for ages, like ``(a+)+$``: they would stop a worker with all it does.
    """
    try:
        groups = safe_pattern(pattern).compiled.groups
    except UnsafePatternError as error:
        remedy = (
            "Let the next character decide where each repeat ends, or see Python's re module for the syntax."
        )
        raise SubmissionError("evaluators", pattern, str(error), remedy) from None
    except TypeError:
        raise SubmissionError("evaluators", pattern, "a pattern is a text", "Give a str.") from None
    if expected is not None and groups < 1:
        raise SubmissionError(
            "evaluators", pattern, "has no group to compare with expected", "Put ( ) around a part."
        )
    return _build(Regex, name=name, pattern=pattern, expected=expected)


def json_valid(*, required: Sequence[str] = (), name: str = "json_valid") -> EvaluatorSpec:
    """1 if the output is JSON; with ``required``, an object that has all these keys."""
    return _build(JsonValid, name=name, required=tuple(required))


def numeric_match(expected: str, *, tolerance: float = 1e-6, name: str = "numeric_match") -> EvaluatorSpec:
    """1 if the last number in the output is that of the row's field ``expected``, within ``tolerance``."""
    return _build(NumericMatch, name=name, expected=expected, tolerance=tolerance)


def llm_judge(
    model: str,
    template: str,
    choices: Mapping[str, float],
    *,
    params: Mapping[str, Any] | None = None,
    name: str = "llm_judge",
) -> EvaluatorSpec:
    """An LLM call that sees the row's fields and ``output``, and answers with one of ``choices``.

    ``choices`` maps answers to scores, ``model`` is ``"<connection>:<model>"``, and ``params`` default to
    temperature 0 and a short answer.
    """
    for answer, value in choices.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise SubmissionError("evaluators", {answer: value}, "a score must be a finite number", "")
    given = {"temperature": 0, "max_tokens": 64} if params is None else dict(params)
    return _build(Judge, name=name, model=model, template=template, choices=dict(choices), params=given)


def check_names(evaluators: Iterable[EvaluatorSpec]) -> None:
    """Raises `SubmissionError` where two evaluators share a name: their scores would share a column."""
    seen: set[str] = set()
    for evaluator in evaluators:
        if evaluator.name in seen:
            problem = "two evaluators have this name"
            raise SubmissionError(
                "evaluators", evaluator.name, problem, 'Give one of them another: name="…".'
            )
        seen.add(evaluator.name)


def _build(kind: type[Spec], **fields: Any) -> Spec:
    try:
        return kind(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SubmissionError("evaluators", first.get("input"), f"{where}: {first['msg']}", "") from error
