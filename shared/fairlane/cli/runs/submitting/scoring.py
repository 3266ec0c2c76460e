"""Options of what scores a run's outputs, shared by the commands that submit or estimate one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fairlane.cli.runs.submitting.assignments import read_evaluator, read_judge
from fairlane.cli.runs.submitting.inputs import read_text
from fairlane.model.evaluators import EvaluatorSpec

_score_option = partial(typer.Option, rich_help_panel="What is scored")

Texts = list[str] | None

EvaluatorsOption = Annotated[
    Texts,
    _score_option(
        metavar="SPEC",
        help="exact_match:expected=FIELD, numeric_match:expected=FIELD, contains:text=TEXT, "
        "regex:pattern=PATTERN, json_valid:required=KEY,KEY, similarity:model=MODEL,expected=FIELD; more "
        "options after commas. Repeatable.",
    ),
]

JudgeTemplateOption = Annotated[
    str | None,
    _score_option(metavar="TEXT", help="Prompt of the judge: a template over the row and {{ output }}."),
]

JudgeTemplateFileOption = Annotated[
    Path | None, _score_option(metavar="FILE", help="Prompt of the judge, from a file.")
]

JudgeModelOption = Annotated[
    str | None, _score_option(metavar="MODEL", help="Model that judges each output.")
]

JudgeChoicesOption = Annotated[
    str | None,
    _score_option(
        metavar="JSON", help="The judge's answers and their scores.", show_default='{"yes": 1, "no": 0}'
    ),
]

JudgeParamsOption = Annotated[Texts, _score_option(metavar="K=V", help="As --param.")]


def read_evaluators(
    specs: Sequence[str] | None,
    model: str | None,
    template: str | None,
    template_file: Path | None,
    choices: str | None,
    params: Sequence[str] | None,
) -> list[EvaluatorSpec]:
    """The evaluators, and the judge if one is described. Raises ``typer.BadParameter`` if half of one is."""
    evaluators = [read_evaluator(each) for each in specs or ()]
    given = [model, template, template_file, choices, *(params or ())]
    if not any(part is not None for part in given):
        return evaluators
    if model is None:
        raise typer.BadParameter("a judge needs --judge-model MODEL")
    if (template is None) == (template_file is None):
        raise typer.BadParameter("a judge needs one of --judge-template TEXT and --judge-template-file FILE")
    text = template if template_file is None else read_text("--judge-template-file", template_file)
    return [*evaluators, read_judge(model, text or "", choices, list(params or ()))]
