"""Tries a submission's evaluators on its first rows, before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fairlane.core.errors import SubmissionError
from fairlane.model.evaluators import Agent, EvaluatorSpec, Judge
from fairlane.model.run import RunSpec
from fairlane.model.steps import Step
from fairlane.pipeline.rendering import Rendering
from fairlane.templates.template import referenced_variables

Row = Mapping[str, Any]

_GIVEN = frozenset({"output", "criterion", "criteria", "session"})
"""What an evaluator's template reads beside the row. What it makes of an output cannot be tried yet."""


def try_evaluator(
    spec: RunSpec,
    rendering: Rendering,
    evaluator: EvaluatorSpec,
    rows: Sequence[Row],
    render: Callable[[str, object, Callable[[Row], object], Sequence[Row], frozenset[str]], None],
    require: Callable[[str, str, Sequence[Row]], None],
) -> None:
    """Raise `SubmissionError` for an evaluator that finds its fields in none of ``rows``.

    ``render`` tries a template on rows, and ``require`` demands a field in one of them.
    """
    field = f"evaluators[{evaluator.name!r}]"
    if (when := getattr(evaluator, "when", None)) is not None:
        rows = [row for row in rows if row.get(when)]  # those that it scores, perhaps none of the first
    if rows and (expected := getattr(evaluator, "expected", None)) is not None:
        require(f"{field}.expected", expected, rows)
    if not isinstance(evaluator, Judge | Agent):
        return
    for step in [each for each in spec.evals if each.evaluator is evaluator][:1]:
        judge = partial(rendering.evaluation, step, output="")
        render(f"{field}.template", evaluator.template, judge, rows, _GIVEN)
    for step in [each for each in spec.session_evals if each.evaluator is evaluator]:
        session = partial(_session, rendering, step)
        render(f"{field}.template", evaluator.template, session, rows, _GIVEN)
    _require_output(f"{field}.template", evaluator, spec.output_field)


def _session(rendering: Rendering, step: Step, row: Row) -> None:
    rendering.session(step, [{"row": dict(row), "output": ""}])


def _require_output(field: str, evaluator: Judge | Agent, output_field: str | None) -> None:
    """Raise `SubmissionError` for a template that cannot show what it is to judge.

    The whole row shows outputs that were there before, and so does the field that holds them.
    """
    session = isinstance(evaluator, Judge) and evaluator.level == "session"
    shows = {"session"} if session else {"output", output_field}
    if not session and output_field is not None:
        shows.add("row")
    if shows.isdisjoint(referenced_variables(evaluator.template)):
        name = "session" if session else "output"
        problem = f"does not show the {name} that it judges: every score would be of the same text"
        remedy = f"Put {{{{ {name} }}}} into it. To send it as it is, submit with check=False (--no-check)."
        raise SubmissionError(field, evaluator.template, problem, remedy)
