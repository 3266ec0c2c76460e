"""Assertions that programs decide: JavaScript and Python."""

import json
from collections.abc import Mapping
from typing import Any

from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.programs.programs import Programs, is_program
from fairlane.apps.promptfoo.reading.places import is_number
from fairlane.apps.promptfoo.subjects import Result, Subject, located, points_of
from fairlane.core.json_answers import json_or

_SNAKE = {"pass_": "pass", "named_scores": "namedScores", "component_results": "componentResults"}


def judged_by_program(
    check: Mapping[str, Any], language: str, subject: Subject, programs: Programs, *, inverse: bool
) -> Result:
    """Check an output by a program. If the program fails, the output does not pass; the error is the
    reason.
    """
    value, threshold = str(check["value"]), check.get("threshold")
    arguments = [subject.output, subject.context(check.get("config"))]
    try:
        if value.startswith("file://") and is_program(value):
            path, function = located(value)
            said = programs.file(path, function, arguments, default="get_assert")
        else:
            said = programs.code(language, value.rstrip(), ("output", "context"), arguments)
        return graded(said, threshold, inverse=inverse)
    except ProgramError as error:
        return Result(False, 0.0, f"the {language} failed: {error}")


def graded(said: Any, threshold: float | None, *, inverse: bool = False) -> Result:
    """A program's verdict: a truth value, a number, or an object with ``pass`` and ``score``.

    Raises `ProgramError` for anything else.
    """
    if isinstance(said, str):
        said = _read(said)
    if isinstance(said, bool):
        return Result(said != inverse, float(said != inverse), f"it returned {str(said).lower()}")
    if is_number(said):
        enough = said >= threshold if threshold is not None else said > 0
        return Result(enough != inverse, float(said), f"it returned {said:g}")
    if isinstance(said, Mapping):
        named = {_SNAKE.get(str(name), str(name)): each for name, each in said.items()}
        passed, score = named.get("pass"), named.get("score")
        if isinstance(passed, bool):
            points = float(passed) if (points := points_of(score)) is None else points
            if threshold is not None and points < threshold:
                passed = False
            return Result(
                passed != inverse, points, str(named.get("reason") or "it did not pass"), _scores(named)
            )
    shown = json.dumps(said, ensure_ascii=False)[:200]
    raise ProgramError(f"it returned {shown}, which is no truth value, number, or object with pass and score")


def _read(said: str) -> Any:
    if said.lower() in ("true", "false"):
        return said.lower() == "true"
    return json_or(said, said)


def _scores(named: Mapping[str, Any]) -> dict[str, float]:
    scores = named.get("namedScores")
    if not isinstance(scores, Mapping):
        return {}
    found = {str(name): points_of(each) for name, each in scores.items()}
    return {name: points for name, points in found.items() if points is not None}
