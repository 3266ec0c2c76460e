"""Binds arguments to a user's function by the names of its parameters."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from celery import Task

from fairlane.core.errors import FunctionMismatch

# The argument of a function that takes one thing under another name: the first of these that exists.
_FIRST = ("output", "session", "row")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def is_call(arguments: Mapping[str, Any]) -> bool:
    """Whether these are a call's arguments: its row holds ``args`` and ``kwargs`` and nothing else."""
    row = arguments.get("row")
    if not isinstance(row, Mapping) or row.keys() != {"args", "kwargs"} or "output" in arguments:
        return False
    return isinstance(row["args"], list) and isinstance(row["kwargs"], dict)


def is_scoring(arguments: Mapping[str, Any]) -> bool:
    """Whether these are the arguments of a scorer."""
    return "output" in arguments or "session" in arguments


def bind(function: Callable[..., Any], arguments: Mapping[str, Any]) -> functools.partial[Any]:
    """The function with its arguments. Raises `FunctionMismatch`.

    ``arguments`` holds row, params and messages for a task, row and output for a scorer, session for a scorer
    of sessions. A function that names none of them and takes one thing gets the row, as a task of
    nothing but ``*args, **kwargs`` does; a scorer gets the output, or the session. A call's ``args``
    and ``kwargs`` are passed unchanged.
    """
    if is_call(arguments):
        row = arguments["row"]
        return functools.partial(function, *row["args"], **row["kwargs"])
    parameters = _parameters(function)
    if parameters is None:
        return functools.partial(function, _first(arguments))
    if not is_scoring(arguments) and _is_variadic(parameters):
        return functools.partial(function, _first(arguments))
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        positional = [each for each in parameters if each.kind in _POSITIONAL and each.name not in arguments]
        if not _required(positional):
            return functools.partial(function, **arguments)
    asked = [each for each in parameters if each.kind in _NAMED and each.name in arguments]
    missing = [each.name for each in _required(parameters) if each not in asked]
    if not missing:
        if asked or not parameters:
            return functools.partial(function, **{each.name: arguments[each.name] for each in asked})
        return _bind_first(function, parameters, arguments)
    if len(missing) == 1 and not asked and _takes_one(parameters):
        return functools.partial(function, _first(arguments))
    known = ", ".join(sorted(arguments))
    raise FunctionMismatch(f"the function asks for {', '.join(missing)}; it may ask for {known}")


def _bind_first(
    function: Callable[..., Any], parameters: list[inspect.Parameter], arguments: Mapping[str, Any]
) -> functools.partial[Any]:
    """A function without required parameters gets the first argument if it takes any by position."""
    takes = any(each.kind in (*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL) for each in parameters)
    return functools.partial(function, _first(arguments)) if takes else functools.partial(function)


def _is_variadic(parameters: list[inspect.Parameter]) -> bool:
    """Whether it has only ``*args, **kwargs``, like a decorator that hides its function's parameters."""
    kinds = [each.kind for each in parameters]
    return kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]


def _takes_one(parameters: list[inspect.Parameter]) -> bool:
    required = _required(parameters)
    return len(required) == 1 and required[0].kind in _POSITIONAL


def _required(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        each for each in parameters if each.default is inspect.Parameter.empty and each.kind not in variable
    ]


def _first(arguments: Mapping[str, Any]) -> Any:
    return next((arguments[name] for name in _FIRST if name in arguments), None)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """The parameters that a caller sees; ``None`` if they cannot be read, as of some built-in functions."""
    target = function.run if isinstance(function, Task) else function
    try:
        return list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        return None
