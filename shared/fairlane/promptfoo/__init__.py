"""promptfoo's configurations: read into runs, or refused with all that is not supported."""

from fairlane.promptfoo.evaluation import Evaluation, PlannedRun, Wishes, read_evaluation
from fairlane.promptfoo.problems import Problem, UnsupportedError
from fairlane.promptfoo.verdicts import Verdict, verdict_of

__all__ = [
    "Evaluation",
    "PlannedRun",
    "Problem",
    "UnsupportedError",
    "Verdict",
    "Wishes",
    "read_evaluation",
    "verdict_of",
]
