"""Decides which work takes time linear in small texts; all other work may last as long as a team likes. Pure.

Linear work is done at once, other work in child processes (`fairlane.sandbox`): expressions, filters and
loops of templates, regular expressions, JSON schemas, and everything about long texts.
"""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from fairlane.core.errors import TemplateError
from fairlane.evaluators.assertions import is_linear as assertions_are_linear
from fairlane.model.evaluators import (
    Assertions,
    CallSpec,
    Contains,
    ExactMatch,
    JsonValid,
    Judge,
    NumericMatch,
    PureSpec,
    Regex,
)
from fairlane.model.steps import Step
from fairlane.pipeline.conversation import recalled
from fairlane.pipeline.rendering import Rendering, RunItem

LINEAR_CHARS = 1 << 18
"""Most characters of texts on which linear work is done at once: that takes some milliseconds at most."""

VERDICT_PAIRS = 1 << 19
"""Most characters of a judge's answer times those of its choices: searching each choice at each word takes
some ten milliseconds."""

FEW_ANSWERS = 20
"""Most accepted answers of a row with which an output is compared at once."""

Row = Mapping[str, Any]


def has_linear_model(item: RunItem) -> bool:
    """Whether the model of an item's task is rendered without Jinja, to a text that is not long."""
    return _is_short(item.rendering.model_chars(item.cell, item.row))


def calls_linearly(item: RunItem, memory: Mapping[bytes, bytes] | None = None) -> bool:
    """Whether the call of an item's task is rendered without Jinja, to texts that are not long.

    ``memory``: what earlier items of a serial run stored.
    """
    names = None
    if memory is not None:
        if sum(map(len, memory.values())) > LINEAR_CHARS:
            return False
        try:
            names = recalled(item, memory)
        except TemplateError:  # the call cannot be rendered, which is known at once
            return True
    return _is_short(item.rendering.task_chars(item.cell, item.row, names))


def evaluates_linearly(rendering: Rendering, steps: Sequence[Step], row: Row, output: str) -> bool:
    """Whether the calls of evaluations are rendered without Jinja, to texts that are not long."""
    total = 0
    for step in steps:
        chars = rendering.evaluation_chars(step, row, output)
        if chars is None or (total := total + chars) > LINEAR_CHARS:
            return False
    return True


def completes_linearly(
    item: RunItem, output: str | None, memory: Mapping[bytes, bytes] | None = None
) -> bool:
    """Whether an item's task is completed in time linear in small texts; ``None``: it has no output."""
    spec, rendering = item.spec, item.rendering
    if not _is_short(rendering.model_chars(item.cell, item.row)) or _scores_sessions(item):
        return False
    if output is None:
        return True
    if len(output) > LINEAR_CHARS:
        return False
    if memory is not None and (
        sum(map(len, memory.values())) > LINEAR_CHARS or not _is_short(rendering.register_chars(item.row))
    ):
        return False
    scored = all(
        _scores_linearly(each, output, item.row) for each in spec.evaluators if not isinstance(each, CallSpec)
    )
    return scored and evaluates_linearly(rendering, spec.evals, item.row, output)


def ends_linearly(item: RunItem, step: int, answer: str | None, output: str) -> bool:
    """Whether evaluation ``step`` (from 1) of an output is completed in time linear in small texts."""
    if _scores_sessions(item) or not reads_linearly(item.spec.evals[step - 1], answer):
        return False
    after = [each for each in item.spec.evals if each.after == step]
    return evaluates_linearly(item.rendering, after, item.row, output)


def _is_short(chars: int | None) -> bool:
    return chars is not None and chars <= LINEAR_CHARS


def _scores_sessions(item: RunItem) -> bool:
    """Whether templates of sessions are rendered with an item, to know their tokens."""
    return any(isinstance(step.evaluator, Judge) for step in item.spec.session_evals)


def reads_linearly(step: Step, answer: str | None) -> bool:
    """Whether the answer to an evaluation is read in time linear in a small text."""
    if answer is None:
        return True
    if isinstance(step.evaluator, Judge):
        choices = sum(map(len, step.evaluator.choices))
        return len(answer) * choices <= VERDICT_PAIRS
    return len(answer) <= LINEAR_CHARS


def _accepts_few(expected: object) -> bool:
    """Whether an output is compared with few answers; with each of them, it is read once."""
    return not isinstance(expected, list) or len(expected) <= FEW_ANSWERS


def _scores_linearly(spec: PureSpec, output: str, row: Row) -> bool:
    match spec:
        case ExactMatch() | JsonValid():
            return True
        case Regex():
            return False
        case NumericMatch():
            return _accepts_few(row.get(spec.expected))
        case Contains():
            return len(spec.text or "") <= LINEAR_CHARS and _accepts_few(row.get(spec.expected or ""))
        case Assertions():
            return assertions_are_linear(row.get(spec.field), output, LINEAR_CHARS)
    assert_never(spec)
