"""Scorers that run in the process that reads a run's records: any callable, which no worker need import."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairlane.core.errors import SubmissionError
from fairlane.evaluators.builders import FIELD, check_names
from fairlane.model.evaluators import EvaluatorSpec
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.results import read_score


@dataclass(frozen=True, slots=True)
class ClientScorer:
    """A callable that scores each record while this process reads it. Made by `scorer`."""

    name: str
    function: Callable[..., Any]


def check_client_scorers(scorers: Iterable[object], evaluators: Sequence[EvaluatorSpec]) -> None:
    """Raise `SubmissionError` for what is no client's scorer, or has the name of another evaluator."""
    for each in scorers:
        if not isinstance(each, ClientScorer):
            remedy = 'Use scorer(function, where="client").'
            raise SubmissionError(FIELD, each, "is no scorer of the client", remedy)
    check_names([*evaluators, *scorers])  # type: ignore[list-item] # only the names are looked at


def scored(record: Record, scorers: Iterable[ClientScorer]) -> Record:
    """The record with the scores of these; one that fails is in ``score_errors``, with the reason."""
    scores, errors = dict(record.scores), dict(record.score_errors)
    for each in scorers:
        if record.state is not JobState.SUCCEEDED or record.output is None:
            scores[each.name] = None
            continue
        try:
            scores[each.name] = _number(_called(each.function, record))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            scores[each.name] = None
            errors[each.name] = f"{type(error).__name__}: {error}"
    return replace(record, scores=scores, score_errors=errors)


def _number(answer: Any) -> float:
    """The score that a function returned; NumPy's scalars are numbers, too. Raises ``ValueError``."""
    own = getattr(answer, "item", None)
    return read_score(json.dumps(own() if callable(own) else answer))


def _called(function: Callable[..., Any], record: Record) -> Any:
    """As on a worker: it gets ``output`` and ``row`` if it names one of them, else the output alone."""
    parameters = inspect.signature(function).parameters
    known = {"output": record.output, "row": record.row}
    asked = {
        name: value
        for name, value in known.items()
        if name in parameters and parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY
    }
    return function(**asked) if asked else function(record.output)
