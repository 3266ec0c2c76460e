"""Finds the function of a name: imported from an allowed module, or one of a Celery application's tasks."""

import functools
import importlib
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from celery import Celery, Task

from fairlane.core.errors import FunctionNotFound
from fairlane.model.evaluators import FUNCTION

_FUNCTION = re.compile(FUNCTION)


class Catalog(Protocol):
    """Finds the functions that a worker runs."""

    def find(self, name: str) -> Callable[..., Any]:
        """The function of that name. May import, so it takes time. Raises `FunctionNotFound`."""
        ...


class ImportedFunctions:
    """Functions of the modules that an operator allows, and of the modules below these.

    A function must be defined there: one that an allowed module only imports is not found.
    """

    def __init__(self, modules: Iterable[str]) -> None:
        self._modules = tuple(modules)
        self._found: dict[str, Callable[..., Any]] = {}

    def find(self, name: str) -> Callable[..., Any]:
        """See `Catalog.find`; a function is looked up once."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._look_up(name)
        return found

    def _look_up(self, name: str) -> Callable[..., Any]:
        if not _FUNCTION.fullmatch(name):
            raise FunctionNotFound(f"{name!r} names no function: write package.module:function")
        module, attribute = _parts(name)
        if not allows(self._modules, module):
            raise FunctionNotFound(_refusal(module), claimed=False)
        try:
            found = getattr(importlib.import_module(module), attribute, None)
        except SystemExit as error:
            raise FunctionNotFound(f"module {module!r} ends the process: {_described(error)}") from error
        except BaseException as error:
            raise FunctionNotFound(f"module {module!r} cannot be imported: {_described(error)}") from error
        if found is None:
            raise FunctionNotFound(f"module {module!r} has no {attribute!r}")
        if not callable(found):
            raise FunctionNotFound(f"{name!r} is a {type(found).__name__}, not a function")
        home = _defining_module(found)
        if not allows(self._modules, home):
            raise FunctionNotFound(f"{name!r} is defined elsewhere: {_refusal(home)}")
        return unwrapped(found)


class AppTasks:
    """The tasks of a Celery application, by their registered names."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def find(self, name: str) -> Callable[..., Any]:
        """See `Catalog.find`; the form ``package.module:function`` works, too."""
        tasks: Any = self._app.tasks
        for known in (name, name.replace(":", ".")):
            if known in tasks and not known.startswith("celery."):
                found: Callable[..., Any] = tasks[known]
                return found
        problem = (
            f"{self._app.main!r} has no task {name!r}" if self._app.main else f"there is no task {name!r}"
        )
        raise FunctionNotFound(problem, claimed=False)

    def names(self) -> tuple[str, ...]:
        """The application's own tasks, without Celery's and without relays of limited tasks."""
        tasks: Any = self._app.tasks
        own = (name for name in tasks if not name.startswith("celery."))
        return tuple(sorted(name for name in own if not getattr(tasks[name], "relays", False)))


def allows(modules: Iterable[str], module: str) -> bool:
    """Whether a module is one of ``modules``, or below one."""
    return any(module == each or module.startswith(f"{each}.") for each in modules)


def claims(modules: Iterable[str], name: str) -> bool:
    """Whether a worker with these ``modules``, or tasks of these names, must have the function."""
    listed = tuple(modules)
    return allows(listed, _parts(name)[0]) or name.replace(":", ".") in listed


def unwrapped(function: Any) -> Callable[..., Any]:
    """The Celery task inside a `fairlane.celery.LimitedTask`; any other function itself."""
    task = getattr(function, "task", None)
    found: Callable[..., Any] = task if isinstance(task, Task) else function
    return found


def _parts(name: str) -> tuple[str, str]:
    module, _, attribute = name.rpartition(":" if ":" in name else ".")
    return module, attribute


def _defining_module(found: Any) -> str:
    """The module where a function is defined."""
    while isinstance(found, functools.partial):
        found = found.func
    found = unwrapped(found)
    if isinstance(found, Task):  # perhaps a proxy, which belongs to Celery itself
        found = found.run
    return str(getattr(found, "__module__", None) or type(found).__module__)


def _refusal(module: str) -> str:
    return f"module {module!r} is not in worker.modules of this worker"


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
