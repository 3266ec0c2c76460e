"""Options of what scores a run's outputs, shared by the commands that submit or estimate one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fairlane.cli.runs.submitting.assignments import read_evaluator, read_judge
from fairlane.cli.runs.submitting.inputs import read_text
from fairlane.model.evaluators import EvaluatorSpec

_score_option = partial(typer.Option, rich_help_panel="What is scored")

Texts = list[str] | None


@dataclass(frozen=True, slots=True)
class Scored:
    """The options that say what scores the outputs."""

    evaluator: Annotated[Texts, _score_option(metavar="SPEC")] = None
    """exact_match:expected=FIELD, numeric_match:expected=FIELD, contains:text=TEXT, regex:pattern=PATTERN,
    json_valid:required=KEY,KEY, similarity:model=MODEL,expected=FIELD; more options after commas.
    Repeatable."""

    judge_model: Annotated[str | None, _score_option(metavar="MODEL")] = None
    """Model that judges each output."""

    judge_template: Annotated[str | None, _score_option(metavar="TEXT")] = None
    """Prompt of the judge: a template over the row and {{ output }}."""

    judge_template_file: Annotated[Path | None, _score_option(metavar="FILE")] = None
    """Prompt of the judge, from a file."""

    judge_choices: Annotated[
        str | None, _score_option(metavar="JSON", show_default='{"yes": 1, "no": 0}')
    ] = None
    """The judge's answers and their scores."""

    judge_param: Annotated[Texts, _score_option(metavar="K=V")] = None
    """As --param."""

    def evaluators(self) -> list[EvaluatorSpec]:
        """The evaluators, and the judge if one is described. Raises `SubmissionError`.

        Raises ``typer.BadParameter`` if half of a judge is described.
        """
        evaluators = [read_evaluator(each) for each in self.evaluator or ()]
        model, template, file = self.judge_model, self.judge_template, self.judge_template_file
        given = [model, template, file, self.judge_choices, *(self.judge_param or ())]
        if not any(part is not None for part in given):
            return evaluators
        if model is None:
            raise typer.BadParameter("a judge needs --judge-model MODEL")
        if (template is None) == (file is None):
            raise typer.BadParameter(
                "a judge needs one of --judge-template TEXT and --judge-template-file FILE"
            )
        text = template if file is None else read_text("--judge-template-file", file)
        return [*evaluators, read_judge(model, text or "", self.judge_choices, self.judge_param or ())]
