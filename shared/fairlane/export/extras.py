"""Loads optional libraries when they are used; an error names the extra that installs one."""

from importlib import import_module
from typing import Any

from fairlane.core.errors import MissingExtra


def library(module: str, what: str, extra: str) -> Any:
    """An optional module. Raises `MissingExtra`."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtra(what, module.partition(".")[0], extra) from error
