"""Collects everything unsupported in a configuration, with its places, to report it all at once."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fairlane.apps.promptfoo.reading.yaml12 import line_of
from fairlane.config.problems import did_you_mean
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
    _notes: dict[str, int] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """Note what is left out without changing a result."""
        self._notes[text] = self._notes.get(text, 0) + 1

    def unknown(self, place: Place, what: str, known: Collection[str]) -> None:
        """A name that promptfoo does not know, the last of ``place``: left out, or a typing error."""
        name = str(place.keys[-1])
        if near := did_you_mean(name, sorted(known)):
            self.add(place, f"{what} has no {name}: {near}")
        else:
            self.note(f"{place}: {name} of {what} means nothing, and is left out")

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noted, each text once, with its count."""
        return tuple(text if n == 1 else f"{text} ({n} times)" for text, n in self._notes.items())

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
