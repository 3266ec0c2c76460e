"""Builds scorers from Python functions that workers import, and from any callable of the client."""

import inspect
import sys
from collections.abc import Callable
from typing import Any, Literal, overload

from fairlane.core.errors import SubmissionError
from fairlane.evaluators.builders import FIELD, build
from fairlane.evaluators.client_side import ClientScorer, misfit
from fairlane.model.evaluators import EvaluatorSpec, FunctionScorer, Level


@overload
def scorer(
    function: str | Callable[..., Any],
    *,
    name: str | None = None,
    lane: str | None = None,
    level: Level = "item",
    where: Literal["workers"] = "workers",
) -> EvaluatorSpec: ...


@overload
def scorer(
    function: Callable[..., Any], *, name: str | None = None, where: Literal["client"]
) -> ClientScorer: ...


def scorer(
    function: str | Callable[..., Any],
    *,
    name: str | None = None,
    lane: str | None = None,
    level: Level = "item",
    where: Literal["workers", "client"] = "workers",
) -> EvaluatorSpec | ClientScorer:
    """A score that a Python function returns: a number or a truth value.

    ``function`` is ``"package.module:function"`` or the function itself, of a module that workers import and
    the operator allows (``worker.modules``). It takes ``output`` and ``row`` by these names, or the output
    alone; with ``level="session"`` ``session``, a list of ``{"row", "output"}`` in order. It may be async,
    and may raise `fairlane.RateLimited`. ``lane`` names the lane of its calls; by default it has one of its
    own. ``name`` defaults to the function's.

    With ``where="client"`` any callable scores in the process that reads the run's records, each time that it
    reads them. Redis keeps only their statistics, once all records were read, for other processes and pages.
    """
    if where not in ("workers", "client"):
        raise SubmissionError(FIELD, where, "scorer: where is neither", 'Give "workers" or "client".')
    if where == "client":
        return _of_client(function, name, lane, level)
    instead = 'use scorer(function, where="client")'
    named = function if isinstance(function, str) else importable_name(function, FIELD, instead, "scorer: ")
    own = named.replace(":", ".").rpartition(".")[2][:64]
    return build(FunctionScorer, name=own if name is None else name, function=named, lane=lane, level=level)


def _of_client(function: object, name: str | None, lane: str | None, level: Level) -> ClientScorer:
    if not callable(function):
        remedy = "Give the function itself; workers take the name of one."
        raise SubmissionError(FIELD, function, "scorer: the client's function is no callable", remedy)
    if inspect.iscoroutinefunction(function):
        remedy = "Write it without async, or name it for the workers."
        raise SubmissionError(FIELD, function, "scorer: the client's function is async", remedy)
    if lane is not None or level != "item":
        problem = "scorer: lanes and sessions are the workers'"
        raise SubmissionError(FIELD, lane or level, problem, "Leave lane and level out.")
    if (unfit := misfit(function)) is not None:
        remedy = "Let it take output and row by these names, or the output alone."
        raise SubmissionError(FIELD, function, f"scorer: the client cannot call it: {unfit}", remedy)
    own = str(getattr(function, "__name__", type(function).__name__)).strip("<>")
    checked = build(FunctionScorer, name=own[:64] if name is None else name, function="client:scorer")
    return ClientScorer(checked.name, function)


def importable_name(function: object, field: str, instead: str, what: str = "") -> str:
    """``module:function`` of a function that another process can import.

    Raises `SubmissionError` for ``field``, whose problem begins with ``what`` and whose remedy says what to
    do ``instead``.
    """
    remedy = f"Put it into a module of worker.modules, or {instead}."
    if not callable(function) or isinstance(function, type):
        raise SubmissionError(field, function, f"{what}is no function", remedy)
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not path:
        problem = f"{what}a {type(function).__name__} has no name that workers can import"
        raise SubmissionError(field, function, problem, remedy)
    found = getattr(sys.modules.get(module), path, None)
    if module in ("__main__", "builtins") or found is not function:
        where = "the program itself" if module == "__main__" else f"module {module!r}"
        problem = f"{what}workers cannot import {path!r} from {where}"
        raise SubmissionError(field, function, problem, remedy)
    return f"{module}:{path}"
