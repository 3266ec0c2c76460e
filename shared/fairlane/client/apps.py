"""Finds applications by their entry points, so that the client imports none of them."""

from importlib.metadata import entry_points
from typing import Any

from fairlane.core.errors import FairlaneError

GROUP = "fairlane.apps"


def load_app(name: str) -> Any:
    """The object that the entry point ``name`` in group ``fairlane.apps`` names.

    Raises `FairlaneError` where no installed distribution provides it.
    """
    found = entry_points(group=GROUP, name=name)
    if not found:
        raise FairlaneError(
            f"no installed package provides the application {name!r}: install Fairlane again, "
            f"so that its entry points in group {GROUP} are registered"
        )
    return next(iter(found)).load()
