"""Evaluators a run may carry: pure scorers that need no permit, and judges that are calls of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fairlane.errors import SubmissionError
from fairlane.evaluators.scorers import PatternError, compile_pattern
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

FIELD = "evaluators"

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
        remedy = "Name a row field as expected, or give a fixed text."
        raise SubmissionError(FIELD, given, "contains takes one of expected and text", remedy)
    if text == "":
        raise SubmissionError(FIELD, text, "contains: every output contains an empty text", "Give some text.")
    return _build(Contains, name=name, expected=expected, text=text, ignore_case=ignore_case)


def regex(pattern: str, *, expected: str | None = None, name: str = "regex") -> EvaluatorSpec:
    """1 if ``pattern`` is found in the output; with ``expected``, if its first group is that row field.

    A search is given up after `scorers.SEARCH_S`, and then has no score: patterns like ``(a+)+$`` take ages.
    """
    if not isinstance(pattern, str):
        raise SubmissionError(FIELD, pattern, "a pattern is a text", 'Give a str, like r"(\\d+)".')
    try:
        groups = compile_pattern(pattern).groups
    except PatternError as error:
        problem = f"regex: the pattern is no regular expression: {error}"
        raise SubmissionError(FIELD, pattern, problem, "Correct it.") from None
    if expected is not None and groups < 1:
        problem = "regex: the pattern has no group to compare with expected"
        raise SubmissionError(FIELD, pattern, problem, "Put ( ) around the part to compare.")
    return _build(Regex, name=name, pattern=pattern, expected=expected)


def json_valid(*, required: Sequence[str] = (), name: str = "json_valid") -> EvaluatorSpec:
    """1 if the output is JSON; with ``required``, an object that has all these keys."""
    if isinstance(required, str):
        raise SubmissionError(
            FIELD, required, "json_valid: required is a list of keys", f"Give [{required!r}]."
        )
    return _build(JsonValid, name=name, required=tuple(required))


def numeric_match(expected: str, *, tolerance: float = 1e-6, name: str = "numeric_match") -> EvaluatorSpec:
    """1 if the last number in the output is that of the row's field ``expected``, within ``tolerance``."""
    if isinstance(tolerance, float) and not math.isfinite(tolerance):
        raise SubmissionError(
            FIELD, tolerance, "numeric_match: the tolerance is no finite number", "Give one."
        )
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

    ``choices`` maps answers to scores; `judge.parse_choice` says how an answer is read. ``model`` is
    ``"<connection>:<model>"``. ``params`` default to temperature 0 and 64 tokens of answer: give your own, if
    only ``{}``, for a judge that reasons first or a model that refuses these.
    """
    _check_choices(choices)
    given = {"temperature": 0, "max_tokens": 64} if params is None else dict(params)
    return _build(Judge, name=name, model=model, template=template, choices=dict(choices), params=given)


def _check_choices(choices: Mapping[str, float]) -> None:
    if not isinstance(choices, Mapping) or not choices:
        remedy = 'Map answers to scores, like {"yes": 1, "no": 0}.'
        raise SubmissionError(FIELD, choices, "llm_judge: choices is no dict of answers", remedy)
    seen: set[str] = set()
    for answer, value in choices.items():
        if not isinstance(answer, str) or not any(map(str.isalnum, answer)):
            raise SubmissionError(
                FIELD, answer, "llm_judge: a choice has no letter or digit", "Name it by a word."
            )
        if answer.casefold() in seen:
            problem = "llm_judge: two choices differ in case alone, which answers are not held to"
            raise SubmissionError(FIELD, answer, problem, "Rename one of them.")
        seen.add(answer.casefold())
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            problem = "llm_judge: a score is a finite number"
            raise SubmissionError(FIELD, {answer: value}, problem, "Give a number, like 1 or 0.5.")


def check_names(evaluators: Iterable[EvaluatorSpec]) -> None:
    """Raises `SubmissionError` where two evaluators share a name: their scores would share a column."""
    seen: set[str] = set()
    for evaluator in evaluators:
        if evaluator.name in seen:
            problem = "two evaluators have this name"
            raise SubmissionError(FIELD, evaluator.name, problem, 'Give one of them another: name="…".')
        seen.add(evaluator.name)


def _build(kind: type[Spec], **fields: Any) -> Spec:
    try:
        return kind(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SubmissionError(
            FIELD, first.get("input"), f"{where}: {first['msg']}", f"See {kind.__name__}."
        ) from error
