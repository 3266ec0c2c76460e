"""Fairlane runs large batches of LLM calls, and their evaluations, within what each provider allows.

``__init__.pyi`` lists the public names. Each loads its module when it is first used.
"""

from importlib import import_module
from pkgutil import get_data
from typing import Any

_LINES = (get_data(__name__, "__init__.pyi") or b"").decode().splitlines()

_HOMES = {words[-1]: words[1] for words in map(str.split, _LINES) if words[:1] == ["from"]}
"""The module of each public name."""

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll] - the stub is what it reads


def __getattr__(name: str) -> Any:
    """Load a public name; the interpreter calls this once for each."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
