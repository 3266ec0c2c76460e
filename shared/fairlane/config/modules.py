"""Where a worker finds the modules of its operator: installed, on ``PYTHONPATH``, or where it was started."""

import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path


def search_here() -> None:
    """Let this process import modules of its working folder; installed ones take precedence."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


def not_found(modules: Iterable[str]) -> list[str]:
    """The modules whose first part is neither installed nor in the working folder. Imports nothing."""
    places = [*sys.path, str(Path.cwd())]
    names = {module: module.partition(".")[0] for module in modules}
    return [
        module
        for module, name in names.items()
        if name not in sys.builtin_module_names and PathFinder.find_spec(name, places) is None
    ]
