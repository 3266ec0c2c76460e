"""Scorers that run in the process that reads a run's records, so that no worker has to import them."""

import copy
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairlane.core.errors import SubmissionError
from fairlane.evaluators.builders import FIELD, check_names
from fairlane.model.evaluators import EvaluatorSpec, read_score
from fairlane.model.job import JobState
from fairlane.model.record import Record


@dataclass(frozen=True, slots=True)
class ClientScorer:
    """A callable that scores each record while this process reads it. Made by `scorer`."""

    name: str
    function: Callable[..., Any]


def check_client_scorers(scorers: Iterable[object], evaluators: Sequence[EvaluatorSpec]) -> None:
    """Raise `SubmissionError` for anything but a client's scorer, and for the name of another evaluator."""
    for each in scorers:
        if not isinstance(each, ClientScorer):
            remedy = 'Use scorer(function, where="client").'
            raise SubmissionError(FIELD, each, "is no scorer of the client", remedy)
    check_names([*evaluators, *scorers])  # type: ignore[list-item] # it reads the names only


def scored(record: Record, scorers: Iterable[ClientScorer]) -> Record:
    """The record with the scores of these; one that fails is in ``score_errors``, with the reason."""
    scores, errors = dict(record.scores), dict(record.score_errors)
    for each in scorers:
        if record.state is not JobState.SUCCEEDED or record.output is None:
            scores[each.name] = None
            continue
        try:
            scores[each.name] = _number(_called(each.function, record))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a user's function may raise anything
            scores[each.name] = None
            errors[each.name] = f"{type(error).__name__}: {text_of(error)}"
    return replace(record, scores=scores, score_errors=errors)


def _number(answer: Any) -> float:
    """The score that a function returned; NumPy's scalars are numbers, too. Raises ``ValueError``."""
    own = getattr(answer, "item", None)
    return read_score(json.dumps(own() if callable(own) else answer))


def _called(function: Callable[..., Any], record: Record) -> Any:
    """Call the function with a copy of the row, as on a worker."""
    args, kwargs = _arguments(function, record.output, record.row)
    return function(*args, **copy.deepcopy(kwargs))


def _arguments(
    function: Callable[..., Any], output: str | None, row: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, as on a worker: ``output`` and ``row`` if it names one of them, else the output
    alone.
    """
    parameters = _signature(function).parameters.values()
    known = {"output": output, "row": row}
    named = (each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY))
    asked = {each.name: known[each.name] for each in named if each.name in known}
    return ((), asked) if asked else ((output,), {})


def misfit(function: Callable[..., Any]) -> str | None:
    """Why a function cannot be called as a scorer of the client; ``None`` if it can."""
    args, kwargs = _arguments(function, "", {})
    try:
        _signature(function).bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return None


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """The function's signature; any arguments if it has none, like some built-in functions."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return inspect.Signature([inspect.Parameter("given", inspect.Parameter.VAR_POSITIONAL)])


def text_of(error: BaseException) -> str:
    """What an error of a user's function says."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's class
        return "(it cannot be shown)"
