"""Collects everything unsupported in a configuration, with its places, to report it all at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairlane.apps.promptfoo.reading.yaml12 import line_of
from fairlane.config.problems import did_you_mean
from fairlane.core.errors import UnsupportedError

Key = str | int


@dataclass(slots=True)
class Problems:
    """The problems found so far; one that occurs in many tests is listed once, with its count."""

    _found: dict[tuple[Path, str], tuple[Place, int]] = field(default_factory=dict)
    _notes: Counter[str] = field(default_factory=Counter)

    def add(self, place: Place, text: str) -> None:
        """Add a problem. Those of one file that read alike are one."""
        first, count = self._found.get((place.file, text), (place, 0))
        self._found[place.file, text] = (first, count + 1)

    def note(self, text: str) -> None:
        """Note what is left out without changing a result."""
        self._notes[text] += 1

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noted, each text once, with its count."""
        return tuple(text if n == 1 else f"{text} ({n} times)" for text, n in self._notes.items())

    def __iter__(self) -> Iterator[str]:
        for (_, text), (place, count) in self._found.items():
            yield f"{place}: {text}" if count == 1 else f"{place}: {text} ({count} times)"

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """Drops what is added and noted within the block."""
        found, notes = self._found.copy(), self._notes.copy()
        yield
        self._found, self._notes = found, notes

    def raise_if_any(self) -> None:
        """Raises `UnsupportedError` with all of them."""
        if self._found:
            raise UnsupportedError(tuple(self))


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere in a file: the keys that lead there, or a line where there are none.

    ``problems`` collects what is wrong there, and what is left out.
    """

    file: Path
    problems: Problems
    keys: tuple[Key, ...] = ()
    line: int | None = None

    def __truediv__(self, key: Key) -> Place:
        return replace(self, keys=(*self.keys, key))

    def __str__(self) -> str:
        """``promptfooconfig.yaml:12: tests[0].assert[1]``."""
        line = self.line or line_of(self.file, self.keys)
        where = _shown(self.file) + (f":{line}" if line else "")
        path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys)
        return f"{where}: {path.lstrip('.')}" if path else where

    def within(self, file: Path, line: int | None = None) -> Place:
        """The beginning, or a line, of a file that is named here."""
        return Place(file, self.problems, line=line)

    def refuse(self, text: str) -> None:
        """Add a problem: this cannot be run as it is written."""
        self.problems.add(self, text)

    def note(self, text: str) -> None:
        """Note what is left out without changing a result."""
        self.problems.note(text)

    def check_names(self, names: Iterable[str], what: str, known: Collection[str]) -> None:
        """Each name that promptfoo does not know is a typing error, or left out."""
        for name in names:
            if name in known:
                continue
            if near := did_you_mean(name, sorted(known)):
                (self / name).refuse(f"{what} has no {name}: {near}")
            else:
                self.note(f"{self / name}: {name} of {what} means nothing, and is left out")


def _shown(file: Path) -> str:
    """A path as it is shortest: from here where it is below, else whole."""
    relative = os.path.relpath(file)
    return str(file) if relative.startswith("..") else relative
