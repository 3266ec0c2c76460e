"""Finds the function of a name: imported from an allowed module, or one of a Celery application's tasks."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from celery import Celery, Task

from fairlane.celery import LimitedTask
from fairlane.errors import FairlaneError
from fairlane.evaluators.spec import FUNCTION

_FUNCTION = re.compile(FUNCTION)


class Unavailable(FairlaneError, LookupError):
    """There is no such function here. Unless ``claimed``, another worker may have it."""

    def __init__(self, message: str, *, claimed: bool = True) -> None:
        super().__init__(message)
        self.claimed = claimed


class Catalog(Protocol):
    """Where a worker finds functions."""

    def find(self, name: str) -> Callable[..., Any]:
        """The function of that name. May import, so it takes time. Raises `Unavailable`."""
        ...


class ImportedFunctions:
    """Functions of the modules that an operator allows, and of the modules below these.

    A function must be defined there: what an allowed module has merely imported stays out of reach.
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
            raise Unavailable(f"{name!r} names no function: write package.module:function")
        module, attribute = _parts(name)
        if not allows(self._modules, module):
            raise Unavailable(_refusal(module), claimed=False)
        try:
            found = getattr(importlib.import_module(module), attribute, None)
        except Exception as error:
            raise Unavailable(f"module {module!r} cannot be imported: {_told(error)}") from error
        except SystemExit as error:
            raise Unavailable(f"module {module!r} ends the process: {_told(error)}") from error
        if found is None:
            raise Unavailable(f"module {module!r} has no {attribute!r}")
        if not callable(found):
            raise Unavailable(f"{name!r} is a {type(found).__name__}, not a function")
        home = _home(found)
        if not allows(self._modules, home):
            raise Unavailable(f"{name!r} is defined elsewhere: {_refusal(home)}")
        return unwrapped(found)


class AppTasks:
    """The tasks of a Celery application, by the names they are registered under."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def find(self, name: str) -> Callable[..., Any]:
        """See `Catalog.find`; ``package.module:function`` is found, too."""
        tasks: Any = self._app.tasks
        for known in (name, name.replace(":", ".")):
            if known in tasks and not known.startswith("celery."):
                found: Callable[..., Any] = tasks[known]
                return found
        told = f"{self._app.main!r} has no task {name!r}" if self._app.main else f"there is no task {name!r}"
        raise Unavailable(told, claimed=False)

    def names(self) -> tuple[str, ...]:
        """Its own tasks, without Celery's."""
        tasks: Any = self._app.tasks
        return tuple(sorted(name for name in tasks if not name.startswith("celery.")))


def allows(modules: Iterable[str], module: str) -> bool:
    """Whether a module is one of ``modules``, or below one."""
    return any(module == each or module.startswith(f"{each}.") for each in modules)


def claims(modules: Iterable[str], name: str) -> bool:
    """Whether a worker with these ``modules``, or tasks of these names, has to know the function."""
    listed = tuple(modules)
    return allows(listed, _parts(name)[0]) or name.replace(":", ".") in listed


def unwrapped(function: Any) -> Callable[..., Any]:
    """A task that callers send through Fairlane is called itself here."""
    found: Callable[..., Any] = function.task if isinstance(function, LimitedTask) else function
    return found


def _parts(name: str) -> tuple[str, str]:
    module, _, attribute = name.rpartition(":" if ":" in name else ".")
    return module, attribute


def _home(found: Any) -> str:
    """The module where a function is defined."""
    while isinstance(found, functools.partial):
        found = found.func
    found = unwrapped(found)
    if isinstance(found, Task):  # perhaps a proxy, which belongs to Celery itself
        found = found.run
    return str(getattr(found, "__module__", None) or type(found).__module__)


def _refusal(module: str) -> str:
    return f"module {module!r} is not in worker.modules of this worker"


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
