"""The files that a configuration refers to: read as texts or as data, beside the file that names them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from glob import glob
from pathlib import Path
from typing import Any

from fairlane.apps.promptfoo.programs.programs import Programs, split_reference
from fairlane.apps.promptfoo.reading.problems import Place
from fairlane.apps.promptfoo.reading.yaml12 import YamlError, parse_yaml

FILE = "file://"
DATA = frozenset((".yaml", ".yml", ".json"))
CODE = frozenset((".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".py", ".rb", ".sh", ".go"))
MEDIA = frozenset(
    (
        *(".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".wav"),
        *(".mp3", ".ogg", ".m4a", ".flac", ".mp4", ".webm"),
    )
)
"""Files whose variables hold their bytes as base64."""

MOST_BYTES = 32 * 1024 * 1024
"""Size of such a file."""

_GLOB = frozenset("*?[")
_DEPTH = 20


def with_texts(value: Any, place: Place, change: Callable[[str, Place], Any]) -> Any:
    """A document in which each text is what ``change`` makes of it."""
    if isinstance(value, str):
        return change(value, place)
    if isinstance(value, list):
        return [with_texts(each, place / number, change) for number, each in enumerate(value)]
    if isinstance(value, Mapping):
        return {name: with_texts(each, place / str(name), change) for name, each in value.items()}
    return value


class Files:
    """Reads files for one configuration; what cannot be read becomes a problem where it is named."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs

    def program(self, reference: str, place: Place) -> tuple[Path, str | None] | None:
        """The file and the function that ``reference`` names, if it can be run here; else a problem."""
        name, function = split_reference(reference)
        path = place.file.parent / Path(name).expanduser()
        if not path.is_file():
            place.refuse(f"there is no file {name}")
        elif problem := self.programs.problem(path.suffix):
            place.refuse(f"{name} is a program, and {problem}")
        else:
            return path.resolve(), function
        return None

    def matching(self, reference: str, place: Place) -> list[Path]:
        """The files that a pattern such as ``prompts/*.txt`` names, sorted; a problem if there are none."""
        name = reference.removeprefix(FILE)
        found = sorted(glob(str(place.file.parent / name), recursive=True))  # noqa: PTH207  it may be absolute
        files = [Path(each).resolve() for each in found if Path(each).is_file()]
        if not files:
            place.refuse(f"no file matches {name}")
        return files

    def base64(self, path: Path, place: Place) -> str | None:
        """A file's bytes as base64."""
        try:
            if path.stat().st_size <= MOST_BYTES:
                return b64encode(path.read_bytes()).decode()
            place.refuse(f"{path.name} is larger than {MOST_BYTES >> 20} MiB")
        except OSError as error:
            place.refuse(f"{path.name} cannot be read: {error.strerror}")
        return None

    def find(self, reference: str, place: Place) -> Path | None:
        """The file that ``reference`` names, if it is there and is none that would have to be run."""
        name = reference.removeprefix(FILE)
        path = place.file.parent / Path(name).expanduser()
        code = next((end for end in CODE if name.endswith(end) or f"{end}:" in name), None)
        if code:
            place.refuse(f"{name} is a program, and programs are not run here")
        elif path.is_file():
            return path.resolve()
        elif _GLOB & set(name):
            place.refuse(f"{name} is a pattern: name each file")
        elif path.is_dir():
            place.refuse(f"{name} is a folder: name each file")
        else:
            place.refuse(f"there is no file {name}")
        return None

    def text(self, path: Path, place: Place) -> str | None:
        """A file's text, without a byte order mark."""
        try:
            return path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            place.refuse(f"{path.name} is not UTF-8")
        except OSError as error:
            place.refuse(f"{path.name} cannot be read: {error.strerror}")
        return None

    def data(self, path: Path, place: Place) -> Any:
        """A YAML or JSON file's document, with its references to its own parts resolved; else ``None``."""
        text = self.text(path, place)
        if text is None:
            return None
        if path.suffix not in DATA:
            place.refuse(f"{path.name} is neither YAML nor JSON")
            return None
        try:
            document = json.loads(text) if path.suffix == ".json" else parse_yaml(text)
        except (ValueError, YamlError, RecursionError) as error:
            place.refuse(f"{path.name} cannot be read: {' '.join(str(error).split())}")
            return None
        return self._resolved(document, document, place.within(path), 0)

    def referred(self, value: Any, place: Place) -> tuple[Any, Place]:
        """``value`` itself, or the document that it names as ``file://…`` and where that begins."""
        if isinstance(value, str) and value.startswith(FILE):
            path = self.find(value, place)
            return (self.data(path, place), place.within(path)) if path else (None, place)
        return value, place

    def is_pattern(self, reference: str) -> bool:
        """Whether a reference is a pattern that may name several files."""
        return bool(_GLOB & set(reference))

    def _resolved(self, value: Any, document: Any, place: Place, depth: int) -> Any:
        if isinstance(value, list):
            return [self._resolved(each, document, place / n, depth) for n, each in enumerate(value)]
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
            return self._resolved(merged, document, place, depth + 1)
        if target is not None:
            (place / "$ref").refuse(f"the reference {target} is not followed: only #/… of this file is")
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
