"""Options of the commands that submit, rehearse or estimate a run; the client has a default for each."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fairlane.cli.runs.submitting.assignments import read_evaluator, read_judge
from fairlane.cli.runs.submitting.inputs import read_text
from fairlane.model.decision import RetryPolicy
from fairlane.model.evaluators import EvaluatorSpec
from fairlane.model.run import OnRefusal

call_option = partial(typer.Option, rich_help_panel="Execution")

CheckOption = Annotated[
    bool,
    typer.Option(
        "--check/--no-check",
        help="Before anything is written, try templates and evaluators on the first rows, and check "
        "parameters, models and keys.",
    ),
]

WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Show progress, and return when the run is over.")
]

MaxConcurrentOption = Annotated[
    int | None, call_option(metavar="N", min=1, help="Most calls of a run at once.")
]

PriorityOption = Annotated[
    int,
    call_option(
        metavar="N",
        min=-100,
        max=100,
        help="Runs with a higher number take precedence among the team's runs.",
    ),
]

TimeoutOption = Annotated[
    float | None, call_option(metavar="SECONDS", help="Longest time for a call.", show_default="120")
]

MaxAttemptsOption = Annotated[
    int | None,
    call_option(
        metavar="N",
        min=1,
        max=100,
        help="Failed calls before a job fails; a 429 does not count.",
        show_default=str(RetryPolicy().max_attempts),
    ),
]

OnRefusalOption = Annotated[
    OnRefusal,
    call_option(
        help="If a model rejects the first five calls alike: fail its other jobs uncalled, or hold them "
        "until `fairlane resume`."
    ),
]


def retry_of(max_attempts: int | None) -> RetryPolicy | None:
    """The policy with this option; ``None`` without it."""
    return None if max_attempts is None else RetryPolicy(max_attempts=max_attempts)


_score_option = partial(typer.Option, rich_help_panel="Evaluators")


@dataclass(frozen=True, slots=True)
class EvaluatorOptions:
    """Options for the evaluators of a run."""

    evaluator: Annotated[list[str] | None, _score_option(metavar="SPEC")] = None
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

    judge_param: Annotated[list[str] | None, _score_option(metavar="K=V")] = None
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
