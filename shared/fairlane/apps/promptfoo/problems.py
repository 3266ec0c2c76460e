"""Collects everything unsupported in a configuration, with its places, to report it all at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fairlane.apps.promptfoo.yaml12 import line_of
from fairlane.core.errors import UnsupportedError

Key = str | int


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere in a file: the keys that lead there, or a line where there are none."""

    file: Path
    keys: tuple[Key, ...] = ()
    line: int | None = None

    def __truediv__(self, key: Key) -> Place:
        return Place(self.file, (*self.keys, key), self.line)

    def __str__(self) -> str:
        """``promptfooconfig.yaml:12: tests[0].assert[1]``."""
        line = self.line or line_of(self.file, self.keys)
        where = _shown(self.file) + (f":{line}" if line else "")
        path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys)
        return f"{where}: {path.lstrip('.')}" if path else where


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that cannot be run as it is written."""

    place: Place
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@dataclass(slots=True)
class Problems:
    """The problems found so far; one that occurs in many tests is listed once, with its count."""

    _found: dict[tuple[Path, str], tuple[Place, int]] = field(default_factory=dict)

    def add(self, place: Place, text: str) -> None:
        """Note a problem. Those of one file that read alike are one."""
        first, count = self._found.get((place.file, text), (place, 0))
        self._found[place.file, text] = (first, count + 1)

    def __iter__(self) -> Iterator[Problem]:
        for (_, text), (place, count) in self._found.items():
            yield Problem(place, text if count == 1 else f"{text} ({count} times)")

    def raise_if_any(self) -> None:
        """Raises `UnsupportedError` with all of them."""
        if self._found:
            raise UnsupportedError(tuple(self))


def _shown(file: Path) -> str:
    """A path as it is shortest: from here where it is below, else whole."""
    relative = os.path.relpath(file)
    return str(file) if relative.startswith("..") else relative
