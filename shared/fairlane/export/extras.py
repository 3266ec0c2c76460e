"""Libraries that not everybody needs: loaded where they are used, or named with their extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fairlane.errors import FairlaneError


class MissingExtra(FairlaneError, ImportError):
    """What was asked for needs a library that is not installed. ``extra`` is the extra that brings it."""

    def __init__(self, what: str, library: str, extra: str) -> None:
        super().__init__(f"{what} needs {library}, which is not installed: pip install 'fairlane[{extra}]'")
        self.extra = extra


def library(module: str, what: str, extra: str) -> Any:
    """An optional module. Raises `MissingExtra`."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtra(what, module.partition(".")[0], extra) from error
