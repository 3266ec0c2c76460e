"""Tests: those written in the configuration and those of files, each with what ``defaultTest`` adds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlane.apps.promptfoo.csv_cases import read_csv
from fairlane.apps.promptfoo.files import DATA, FILE, Files
from fairlane.apps.promptfoo.problems import Place, Problems

KEYS = frozenset(("description", "vars", "assert", "options", "threshold", "metadata"))

OPTIONS = frozenset(
    ("provider", "runSerially", "storeOutputAs", "disableVarExpansion", "disableDefaultAsserts")
)
_OPTION_REMEDIES = {
    "rubricPrompt": "judges are asked in words of ours",
    "transform": "outputs are scored as they are",
    "postprocess": "outputs are scored as they are",
    "prefix": "write it in the prompt",
    "suffix": "write it in the prompt",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A test as it is written, or one of `defaultTest`'s: with places, nothing of it rendered."""

    place: Place
    description: str
    variables: Mapping[str, tuple[Any, Place]]
    assertions: tuple[tuple[Any, Place], ...]
    options: Mapping[str, Any]
    threshold: float | None
    metadata: Mapping[str, Any]

    def after(self, default: Case) -> Case:
        """This one with what it leaves to the default."""
        own = {} if self.options.get("disableDefaultAsserts") else {"assertions": default.assertions}
        return Case(
            self.place,
            self.description,
            {**default.variables, **self.variables},
            (*own.get("assertions", ()), *self.assertions),
            {**default.options, **self.options},
            default.threshold if self.threshold is None else self.threshold,
            {**default.metadata, **self.metadata},
        )


class CaseReader:
    """Reads tests for one configuration."""

    def __init__(self, files: Files, problems: Problems) -> None:
        self._files, self._problems = files, problems

    def all(self, raw: Any, default: Any, place: Place) -> list[Case]:
        """Every test; without any, the one that ``defaultTest`` is."""
        where = place / "defaultTest"
        first = self._one(*self._files.referred(default or {}, where))
        found = list(self._listed(raw, place / "tests"))
        if raw in (None, []):
            found = [self._one({}, where)]
        return [test.after(first) for test in found]

    def _listed(self, raw: Any, place: Place) -> Iterator[Case]:
        if isinstance(raw, str):
            yield from self._of_file(raw, place)
        elif isinstance(raw, list):
            for number, each in enumerate(raw):
                if isinstance(each, str):
                    yield from self._of_file(each, place / number)
                else:
                    yield self._one(each, place / number)
        elif raw is not None:
            self._problems.add(place, "tests are a list, or the name of a file")

    def _of_file(self, reference: str, place: Place) -> Iterator[Case]:
        scheme, separator, _ = reference.partition("://")
        if separator and f"{scheme}://" != FILE:
            self._problems.add(place, f"tests from {scheme}:// are not supported: save them as a file")
            return
        path = self._files.find(reference, place)
        if path is None:
            return
        if path.suffix == ".csv":
            text = self._files.text(path, place)
            for line, each in read_csv(text or "", Place(path), self._problems):
                yield self._one(each, Place(path, line=line))
        elif path.suffix == ".jsonl":
            yield from self._lines(path, place)
        elif path.suffix in DATA:
            document = self._files.data(path, place)
            listed = isinstance(document, list)
            for number, each in enumerate(document if listed else [document]):
                yield self._one(each, Place(path) / number if listed else Place(path))
        else:
            self._problems.add(place, f"tests in a {path.suffix or 'nameless'} file are not supported")

    def _lines(self, path: Path, place: Place) -> Iterator[Case]:
        for number, line in enumerate((self._files.text(path, place) or "").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                yield self._one(json.loads(line), Place(path, line=number))
            except (ValueError, RecursionError) as error:
                self._problems.add(Place(path, line=number), f"this is no JSON: {error}")

    def _one(self, raw: Any, place: Place) -> Case:
        if not isinstance(raw, Mapping):
            if raw is not None:
                self._problems.add(place, "this is no test")
            raw = {}
        for name in raw.keys() - KEYS:
            self._problems.add(place / str(name), f"{name} of a test is not supported")
        return Case(
            place,
            str(raw.get("description") or ""),
            self._variables(raw.get("vars"), place / "vars"),
            self._assertions(raw.get("assert"), place / "assert"),
            self._options(raw.get("options"), place / "options"),
            self._threshold(raw.get("threshold"), place / "threshold"),
            self._mapping(raw.get("metadata"), place / "metadata"),
        )

    def _variables(self, raw: Any, place: Place) -> dict[str, tuple[Any, Place]]:
        if isinstance(raw, str):
            raw, place = self._files.referred(raw if raw.startswith(FILE) else f"{FILE}{raw}", place)
        found = self._mapping(raw, place)
        for name in found:
            if name.startswith("__") or name in ("output", "row"):
                self._problems.add(place / name, f"the variable {name} has a name that is taken: rename it")
        return {name: (value, place / name) for name, value in found.items()}

    def _assertions(self, raw: Any, place: Place) -> tuple[tuple[Any, Place], ...]:
        if raw is None:
            return ()
        if not isinstance(raw, list):
            self._problems.add(place, "assertions are a list")
            return ()
        return tuple((each, place / number) for number, each in enumerate(raw))

    def _options(self, raw: Any, place: Place) -> Mapping[str, Any]:
        options = self._mapping(raw, place)
        for name in options.keys() - OPTIONS:
            remedy = _OPTION_REMEDIES.get(name)
            problem = f"the option {name} of a test is not supported"
            self._problems.add(place / name, f"{problem}: {remedy}" if remedy else problem)
        return options

    def _threshold(self, raw: Any, place: Place) -> float | None:
        if raw is None or (isinstance(raw, int | float) and not isinstance(raw, bool)):
            return raw
        self._problems.add(place, "a threshold is a number")
        return None

    def _mapping(self, raw: Any, place: Place) -> Mapping[str, Any]:
        if raw is None or isinstance(raw, Mapping):
            return raw or {}
        self._problems.add(place, "this is no object")
        return {}
