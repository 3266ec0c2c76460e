"""Tests: those written in the configuration and those of files, each with what ``defaultTest`` adds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.programs.programs import is_program
from fairlane.apps.promptfoo.reading.case import Case
from fairlane.apps.promptfoo.reading.csv_cases import read_csv
from fairlane.apps.promptfoo.reading.files import DATA, FILE, Files, with_texts
from fairlane.apps.promptfoo.reading.problems import Place
from fairlane.apps.promptfoo.reading.remote import ROWS_URL, SHEETS, SHEETS_URL, read_huggingface, read_sheet
from fairlane.apps.promptfoo.selecting.filters import Filters

KEYS = frozenset(
    (
        *("description", "vars", "assert", "options", "threshold", "metadata", "assertScoringFunction"),
        *("prompts", "providers", "provider"),
    )
)
_REFUSED = {
    "providerOutput": "outputs that exist already are not scored: submit them with output=",
    "strategyId": "nothing is generated",
}

OPTIONS = frozenset(
    (
        *("provider", "runSerially", "storeOutputAs", "disableVarExpansion", "disableDefaultAsserts"),
        *("transform", "postprocess", "transformVars", "prefix", "suffix", "rubricPrompt", "factuality"),
    )
)
_DISABLES = "disableConversationVar"


class CaseReader:
    """Reads tests for one configuration."""

    def __init__(self, files: Files, rows_url: str = ROWS_URL, sheets_url: str = SHEETS_URL) -> None:
        self._files, self._rows_url, self._sheets_url = files, rows_url, sheets_url

    def all(
        self,
        config: Mapping[str, Any],
        place: Place,
        filters: Filters,
        matching: Callable[[Sequence[Case], Case], Sequence[Case]],
        before: Callable[..., tuple[Any, list[Case], Any]],
    ) -> list[Case]:
        """Every test that ``filters`` leave; without any test, the one that ``defaultTest`` is.

        ``matching`` keeps those of earlier results, which may need what ``defaultTest`` has. ``before`` may
        change ``defaultTest``, tests and scenarios; its last argument reads a test.
        """
        raw, scenarios = config.get("tests"), config.get("scenarios")
        default, where = self._files.referred(config.get("defaultTest") or {}, place / "defaultTest")
        first = self.one(default, where)
        found = list(self._listed(raw, place / "tests"))
        if raw in (None, []) and not scenarios:
            found = [replace(self.one({}, where), metadata=first.metadata)]
        if scenarios and filters.failing is not None:
            (place / "scenarios").refuse("earlier results choose no tests of scenarios: name them otherwise")
            filters = replace(filters, failing=None)
        found = (replace(filters, range=None) if scenarios else filters).tests(
            found, lambda tests: matching(tests, first)
        )
        default, found, scenarios = before(default, found, scenarios, self.one)
        first = self.one(default, where)
        found.extend(self._scenarios(scenarios, place / "scenarios", filters))
        found = filters.ranged(found) if scenarios else found
        if filters.any and not found:
            (place / ("scenarios" if scenarios else "tests")).refuse("--filter-… leaves no test")
        return [test.after(first) for test in found]

    def _scenarios(self, raw: Any, place: Place, filters: Filters) -> Iterator[Case]:
        """Each test of a scenario with each set of what it configures."""
        raw, place = self._files.referred(raw, place)
        if not isinstance(raw, list | None):
            place.refuse("scenarios are a list")
            return
        for number, each in enumerate(raw or []):
            scenario, where = self._files.referred(each, place / number)
            if not isinstance(scenario, Mapping):
                where.refuse("a scenario has a config and tests")
                continue
            config, said = self._files.referred(scenario.get("config") or [{}], where / "config")
            tests = list(self._listed(scenario.get("tests"), where / "tests")) or [self.one({}, where)]
            tests = filters.tests(tests, lambda tests: tests, scenario=number)
            sets = (
                [self.one(one, said / n) for n, one in enumerate(config)] if isinstance(config, list) else []
            )
            for one in sets:
                yield from (test.after(one) for test in tests)

    def _listed(self, raw: Any, place: Place) -> Iterator[Case]:
        if isinstance(raw, str):
            yield from self._of_file(raw, place)
        elif isinstance(raw, list):
            for number, each in enumerate(raw):
                if isinstance(each, str):
                    yield from self._of_file(each, place / number)
                elif isinstance(each, Mapping) and isinstance(path := each.get("path"), str):
                    yield from self._of_file(path, place / number, each.get("config"))
                else:
                    yield self.one(each, place / number)
        elif isinstance(raw, Mapping) and isinstance(path := raw.get("path"), str):
            yield from self._of_file(path, place, raw.get("config"))
        elif raw is not None:
            place.refuse("tests are a list, or the name of a file")

    def _of_file(self, reference: str, place: Place, config: Any = None) -> Iterator[Case]:
        scheme, separator, _ = reference.partition("://")
        if scheme == "huggingface" and separator:
            for number, each in enumerate(read_huggingface(reference, self._rows_url, place)):
                yield self.one(each, place / number)
            return
        if reference.startswith(SHEETS):
            text = read_sheet(reference, self._sheets_url, place)
            for line, each in read_csv(text or "", place):
                yield self.one(each, place / f"line {line}")
            return
        if separator and f"{scheme}://" != FILE:
            place.refuse(f"tests from {scheme}:// are not supported: save them as a file")
            return
        if is_program(reference):
            yield from self._of_program(reference, place, config)
            return
        if self._files.is_pattern(reference):
            for path in self._files.matching(reference, place):
                yield from self._of_path(path, place)
            return
        if found := self._files.find(reference, place):
            yield from self._of_path(found, place)

    def _of_program(self, reference: str, place: Place, config: Any) -> Iterator[Case]:
        """The tests that a function returns."""
        program = self._files.program(reference, place)
        if program is None:
            return
        try:
            path, function = program
            arguments = (
                []
                if config is None
                else [with_texts(config, place, lambda text, where: self._files.referred(text, where)[0])]
            )
            found = self._files.programs.values(path, function, arguments, default="generate_tests")
        except ProgramError as error:
            place.refuse(f"{reference}: {error}")
            return
        if not isinstance(found, list):
            place.refuse(f"{reference} returns no list of tests")
            return
        for number, each in enumerate(found):
            yield self.one(each, place / number)

    def _of_path(self, path: Path, place: Place) -> Iterator[Case]:
        if path.suffix == ".csv":
            text = self._files.text(path, place)
            for line, each in read_csv(text or "", place.within(path)):
                yield self.one(each, place.within(path, line))
        elif path.suffix == ".jsonl":
            yield from self._lines(path, place)
        elif path.suffix in DATA:
            document = self._files.data(path, place)
            listed = isinstance(document, list)
            for number, each in enumerate(document if listed else [document]):
                yield self.one(each, place.within(path) / number if listed else place.within(path))
        else:
            place.refuse(f"tests in a {path.suffix or 'nameless'} file are not supported")

    def _lines(self, path: Path, place: Place) -> Iterator[Case]:
        for number, line in enumerate((self._files.text(path, place) or "").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                yield self.one(json.loads(line), place.within(path, number))
            except (ValueError, RecursionError) as error:
                place.within(path, number).refuse(f"this is no JSON: {error}")

    def one(self, raw: Any, place: Place) -> Case:
        """One test; what is wrong with it becomes a problem."""
        if not isinstance(raw, Mapping):
            if raw is not None:
                place.refuse("this is no test")
            raw = {}
        for name in raw.keys() & _REFUSED.keys():
            (place / name).refuse(f"{name} of a test is not supported: {_REFUSED[name]}")
        place.check_names(raw.keys() - _REFUSED.keys(), "a test", KEYS)
        provider = raw.get("provider")
        if provider is not None:
            (place / "provider").refuse(
                "provider of a test is not supported: name it in providers, and its label here"
            )
        return Case(
            place,
            str(raw.get("description") or ""),
            self._variables(raw.get("vars"), place / "vars"),
            self._assertions(raw.get("assert"), place / "assert"),
            self._options(raw.get("options"), place / "options"),
            self._threshold(raw.get("threshold"), place / "threshold"),
            self._mapping(raw.get("metadata"), place / "metadata"),
            self._scoring(raw.get("assertScoringFunction"), place / "assertScoringFunction"),
            self._labels(raw.get("prompts"), place / "prompts"),
            self._labels(raw.get("providers"), place / "providers"),
        )

    def _scoring(self, raw: Any, place: Place) -> tuple[str, Place] | None:
        if raw is None:
            return None
        if isinstance(raw, str) and is_program(raw):
            return (raw, place) if self._files.program(raw, place) else None
        place.refuse("a scoring function is a file of JavaScript or Python")
        return None

    def _labels(self, raw: Any, place: Place) -> tuple[str, ...] | None:
        if raw is None or (isinstance(raw, list) and all(isinstance(each, str) for each in raw)):
            return None if raw is None else tuple(raw)
        place.refuse("these are a list of labels")
        return None

    def _variables(self, raw: Any, place: Place) -> dict[str, tuple[Any, Place]]:
        if isinstance(raw, str):
            raw, place = self._files.referred(raw if raw.startswith(FILE) else f"{FILE}{raw}", place)
        found = self._mapping(raw, place)
        for name in found:
            if name.startswith("__") or name in ("output", "row"):
                (place / name).refuse(f"the variable {name} has a name that is taken: rename it")
        return {name: (value, place / name) for name, value in found.items()}

    def _assertions(self, raw: Any, place: Place) -> tuple[tuple[Any, Place], ...]:
        if isinstance(raw, str):
            raw, place = self._files.referred(raw, place)
        if raw is None:
            return ()
        if not isinstance(raw, list):
            place.refuse("assertions are a list")
            return ()
        return tuple((each, place / number) for number, each in enumerate(raw))

    def _options(self, raw: Any, place: Place) -> Mapping[str, Any]:
        options = self._mapping(raw, place)
        for name in options.keys() & KEYS - OPTIONS:
            place.note(f"{place / name}: {name} belongs beside options, and is left out")
        if _DISABLES in options:
            (place / _DISABLES).refuse(f"the option {_DISABLES} of a test is not supported")
        place.check_names(options.keys() - KEYS - {_DISABLES}, "the options of a test", OPTIONS)
        return options

    def _threshold(self, raw: Any, place: Place) -> float | None:
        if raw is None or (isinstance(raw, int | float) and not isinstance(raw, bool)):
            return raw
        place.refuse("a threshold is a number")
        return None

    def _mapping(self, raw: Any, place: Place) -> Mapping[str, Any]:
        if raw is None or isinstance(raw, Mapping):
            return raw or {}
        place.refuse("this is no object")
        return {}
