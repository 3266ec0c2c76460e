"""Positions in a configuration's files: they read the files named there, and collect problems."""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from glob import glob
from pathlib import Path
from typing import Any, TypeGuard

from fairlane.apps.promptfoo.programs.programs import Programs, split_reference
from fairlane.apps.promptfoo.reading.yaml12 import YamlError, line_of, parse_json, parse_yaml
from fairlane.config.problems import did_you_mean
from fairlane.core.errors import UnsupportedError
from fairlane.core.paths import at_home
from fairlane.datasets.lines import MalformedFile

Key = str | int


def names(*lines: str) -> frozenset[str]:
    """The words of these lines."""
    return frozenset(word for line in lines for word in line.split())


FILE = "file://"
DATA = frozenset((".yaml", ".yml", ".json"))
CODE = frozenset((".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".py", ".rb", ".sh", ".go"))
MEDIA = names(".jpg .jpeg .png .gif .webp .bmp .wav .mp3 .ogg .m4a .flac .mp4 .webm")
"""Files whose variables hold their bytes as base64."""

MOST_BYTES = 32 * 1024 * 1024
"""Size of such a file."""

_GLOB = frozenset("*?[")
_DEPTH = 20


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
        """Note an omission that changes no result."""
        self._notes[text] += 1

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes, each text once, with its count."""
        return tuple(text if n == 1 else f"{text} ({n} times)" for text, n in self._notes.items())

    def __iter__(self) -> Iterator[str]:
        for (_, text), (place, count) in self._found.items():
            yield f"{place}: {text}" if count == 1 else f"{place}: {text} ({count} times)"

    @contextmanager
    def suppressed(self) -> Iterator[None]:
        """Drop problems and notes added within the block."""
        found, notes = self._found.copy(), self._notes.copy()
        yield
        self._found, self._notes = found, notes

    def raise_if_any(self) -> None:
        """Raises `UnsupportedError` with all of them."""
        if self._found:
            raise UnsupportedError(tuple(self))


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a file, by keys or by line. ``problems`` collects errors and omissions; ``programs`` call
    the programs named there.
    """

    file: Path
    problems: Problems
    programs: Programs
    keys: tuple[Key, ...] = ()
    line: int | None = None

    def __truediv__(self, key: Key) -> Place:
        return Place(self.file, self.problems, self.programs, (*self.keys, key), self.line)

    def __str__(self) -> str:
        """``promptfooconfig.yaml:12: tests[0].assert[1]``."""
        line = self.line or line_of(self.file, self.keys)
        where = _shown(self.file) + (f":{line}" if line else "")
        path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys)
        return f"{where}: {path.lstrip('.')}" if path else where

    def within(self, file: Path, line: int | None = None) -> Place:
        """The beginning, or a line, of another file."""
        return replace(self, file=file, keys=(), line=line)

    def refuse(self, text: str) -> None:
        """Add a problem: this cannot be run as it is written."""
        self.problems.add(self, text)

    def note(self, text: str) -> None:
        """Note an omission that changes no result."""
        self.problems.note(text)

    def check_names(self, names: Iterable[str], what: str, known: Collection[str]) -> None:
        """Refuse unknown names that resemble known ones, and note that others are left out."""
        for name in names:
            if name in known:
                continue
            if near := did_you_mean(name, sorted(known)):
                (self / name).refuse(f"{what} has no {name}: {near}")
            else:
                self.note(f"{self / name}: {name} of {what} means nothing, and is left out")

    def program(self, reference: str) -> tuple[Path, str | None] | None:
        """The file and the function that ``reference`` names, if it can be run here; else a problem."""
        name, function = split_reference(reference)
        path = self.file.parent / at_home(Path(name))
        if not path.is_file():
            self.refuse(f"there is no file {name}")
        elif problem := self.programs.problem(path.suffix):
            self.refuse(f"{name} is a program, and {problem}")
        else:
            return path.resolve(), function
        return None

    def matching(self, reference: str) -> list[Path]:
        """The files that a pattern such as ``prompts/*.txt`` names, sorted; a problem if there are none."""
        name = reference.removeprefix(FILE)
        pattern = str(self.file.parent / at_home(Path(name)))
        found = sorted(glob(pattern, recursive=True))  # noqa: PTH207  it may be absolute
        files = [Path(each).resolve() for each in found if Path(each).is_file()]
        if not files:
            self.refuse(f"no file matches {name}")
        return files

    def base64(self, path: Path) -> str | None:
        """A file's bytes as base64."""
        try:
            if path.stat().st_size <= MOST_BYTES:
                return b64encode(path.read_bytes()).decode()
            self.refuse(f"{path.name} is larger than {MOST_BYTES >> 20} MiB")
        except OSError as error:
            self.refuse(f"{path.name} cannot be read: {error.strerror}")
        return None

    def find(self, reference: str) -> Path | None:
        """The file that ``reference`` names, if it exists and is not a program."""
        name = reference.removeprefix(FILE)
        path = self.file.parent / at_home(Path(name))
        code = next((end for end in CODE if name.endswith(end) or f"{end}:" in name), None)
        if code:
            self.refuse(f"{name} is a program, and programs are not run here")
        elif path.is_file():
            return path.resolve()
        elif _GLOB & set(name):
            self.refuse(f"{name} is a pattern: name each file")
        elif path.is_dir():
            self.refuse(f"{name} is a folder: name each file")
        else:
            self.refuse(f"there is no file {name}")
        return None

    def text(self, path: Path) -> str | None:
        """A file's text, without a byte order mark."""
        try:
            return path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            self.refuse(f"{path.name} is not UTF-8")
        except OSError as error:
            self.refuse(f"{path.name} cannot be read: {error.strerror}")
        return None

    def data(self, path: Path) -> Any:
        """A YAML or JSON file's document, with its references to its own parts resolved; else ``None``."""
        text = self.text(path)
        if text is None:
            return None
        if path.suffix not in DATA:
            self.refuse(f"{path.name} is neither YAML nor JSON")
            return None
        try:
            document = parse_json(text) if path.suffix == ".json" else parse_yaml(text)
        except (ValueError, YamlError, MalformedFile, RecursionError) as error:
            self.refuse(f"{path.name} cannot be read: {' '.join(str(error).split())}")
            return None
        return _resolved(document, document, self.within(path), 0)

    def contents(self, path: Path) -> Any:
        """A YAML or JSON file's document; another file's text without blanks around it."""
        return self.data(path) if path.suffix in DATA else (self.text(path) or "").strip()

    def referred(self, value: Any) -> tuple[Any, Place]:
        """``value``, or the document that it names as ``file://…``, with its place."""
        if isinstance(value, str) and value.startswith(FILE):
            path = self.find(value)
            return (self.data(path), self.within(path)) if path else (None, self)
        return value, self

    def mapping(self, value: Any) -> Mapping[str, Any]:
        """``value`` if it is an object; empty for ``None``, and with a problem for anything else."""
        if value is None or isinstance(value, Mapping):
            return value or {}
        self.refuse("this is no object: write names with values, like {temperature: 0}")
        return {}


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number within the range of a float; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def is_pattern(reference: str) -> bool:
    """Whether a reference is a pattern that may name several files."""
    return bool(_GLOB & set(reference))


def with_texts(value: Any, place: Place, change: Callable[[str, Place], Any]) -> Any:
    """The document with ``change`` applied to each text."""
    if isinstance(value, str):
        return change(value, place)
    if isinstance(value, list):
        return [with_texts(each, place / number, change) for number, each in enumerate(value)]
    if isinstance(value, Mapping):
        return {name: with_texts(each, place / str(name), change) for name, each in value.items()}
    return value


def _resolved(value: Any, document: Any, place: Place, depth: int) -> Any:
    if isinstance(value, list):
        return [_resolved(each, document, place / n, depth) for n, each in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    target = value.get("$ref")
    if isinstance(target, str) and target.startswith("#/") and depth < _DEPTH:
        found = _pointed(document, target)
        if found is None:
            (place / "$ref").refuse(f"there is no {target} in this file")
            return None
        rest = {name: each for name, each in value.items() if name != "$ref"}
        merged = {**found, **rest} if rest and isinstance(found, Mapping) else found
        return _resolved(merged, document, place, depth + 1)
    if target is not None:
        (place / "$ref").refuse(f"the reference {target} is not followed: only #/… of this file is")
    return {str(name): _resolved(each, document, place / str(name), depth) for name, each in value.items()}


def _pointed(document: Any, pointer: str) -> Any:
    for part in pointer.removeprefix("#/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, Mapping):
            document = document.get(name)
        elif isinstance(document, list) and name.isdecimal() and int(name) < len(document):
            document = document[int(name)]
        else:
            return None
    return document


def _shown(file: Path) -> str:
    """The path relative to the working directory if inside it, else in full."""
    relative = os.path.relpath(file)
    return str(file) if relative.startswith("..") else relative
