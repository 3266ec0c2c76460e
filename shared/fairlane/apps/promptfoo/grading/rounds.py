"""Runs graders in rounds: all that they ask at once goes out together, and each is sent its answers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from fairlane.apps.promptfoo.grading.asks import Ask, Grader
from fairlane.apps.promptfoo.subjects import CheckError, Result

Key = TypeVar("Key", bound=Hashable)
Asker = Callable[[Sequence[Ask]], Sequence[Any]]
"""Answers asks in their order: a text or a number, or a `CheckError` where there is no answer."""


def grade(graders: Mapping[Key, Grader], ask: Asker) -> dict[Key, Result | CheckError]:
    """The result of each grader, or why there is none."""
    graded: dict[Key, Result | CheckError] = {}
    waiting: dict[Key, tuple[Grader, Sequence[Ask]]] = {}
    for key, grader in graders.items():
        _advance(key, grader, None, waiting, graded)
    while waiting:
        round_, waiting = waiting, {}
        answers = iter(ask([each for _, asks in round_.values() for each in asks]))
        for key, (grader, asks) in round_.items():
            own = [next(answers) for _ in asks]
            failed = next((each for each in own if isinstance(each, CheckError)), None)
            if failed is not None:
                grader.close()
                graded[key] = failed
            else:
                _advance(key, grader, own, waiting, graded)
    return graded


def _advance(
    key: Key,
    grader: Grader,
    answers: Sequence[Any] | None,
    waiting: dict[Key, tuple[Grader, Sequence[Ask]]],
    graded: dict[Key, Result | CheckError],
) -> None:
    try:
        waiting[key] = (grader, grader.send(answers) if answers is not None else next(grader))
    except StopIteration as ended:
        graded[key] = ended.value
    except CheckError as error:
        graded[key] = error
