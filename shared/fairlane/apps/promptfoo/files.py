"""The files that a configuration refers to: read as texts or as data, beside the file that names them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairlane.apps.promptfoo.problems import Place, Problems
from fairlane.apps.promptfoo.yaml12 import YamlError, parse_yaml

FILE = "file://"
DATA = frozenset((".yaml", ".yml", ".json"))
CODE = frozenset((".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".py", ".rb", ".sh", ".go"))
_GLOB = frozenset("*?[")
_DEPTH = 20


class Files:
    """Reads files for one configuration; what cannot be read becomes a problem where it is named."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def find(self, reference: str, place: Place) -> Path | None:
        """The file that ``reference`` names, if it is there and is none that would have to be run."""
        name = reference.removeprefix(FILE)
        path = place.file.parent / Path(name).expanduser()
        code = next((end for end in CODE if name.endswith(end) or f"{end}:" in name), None)
        if code:
            self._problems.add(place, f"{name} is a program, and programs are not run")
        elif path.is_file():
            return path.resolve()
        elif _GLOB & set(name):
            self._problems.add(place, f"{name} is a pattern: name each file")
        elif path.is_dir():
            self._problems.add(place, f"{name} is a folder: name each file")
        else:
            self._problems.add(place, f"there is no file {name}")
        return None

    def text(self, path: Path, place: Place) -> str | None:
        """A file's text, without a byte order mark."""
        try:
            return path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            self._problems.add(place, f"{path.name} is not UTF-8")
        except OSError as error:
            self._problems.add(place, f"{path.name} cannot be read: {error.strerror}")
        return None

    def data(self, path: Path, place: Place) -> Any:
        """A YAML or JSON file's document, with its references to its own parts resolved; else ``None``."""
        text = self.text(path, place)
        if text is None:
            return None
        if path.suffix not in DATA:
            self._problems.add(place, f"{path.name} is neither YAML nor JSON")
            return None
        try:
            document = json.loads(text) if path.suffix == ".json" else parse_yaml(text)
        except (ValueError, YamlError, RecursionError) as error:
            self._problems.add(place, f"{path.name} cannot be read: {' '.join(str(error).split())}")
            return None
        return self._resolved(document, document, Place(path), 0)

    def referred(self, value: Any, place: Place) -> tuple[Any, Place]:
        """``value`` itself, or the document that it names as ``file://…`` and where that begins."""
        if isinstance(value, str) and value.startswith(FILE):
            path = self.find(value, place)
            return (self.data(path, place), Place(path)) if path else (None, place)
        return value, place

    def _resolved(self, value: Any, document: Any, place: Place, depth: int) -> Any:
        if isinstance(value, list):
            return [self._resolved(each, document, place / n, depth) for n, each in enumerate(value)]
        if not isinstance(value, Mapping):
            return value
        target = value.get("$ref")
        if isinstance(target, str) and target.startswith("#/") and depth < _DEPTH:
            found = _pointed(document, target)
            if found is None:
                self._problems.add(place / "$ref", f"there is no {target} in this file")
                return None
            rest = {name: each for name, each in value.items() if name != "$ref"}
            merged = {**found, **rest} if rest and isinstance(found, Mapping) else found
            return self._resolved(merged, document, place, depth + 1)
        if target is not None:
            self._problems.add(
                place / "$ref", f"the reference {target} is not followed: only #/… of this file is"
            )
        return {
            str(name): self._resolved(each, document, place / str(name), depth)
            for name, each in value.items()
        }


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
