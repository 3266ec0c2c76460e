"""Tests: those written in the configuration and those of files, each with what ``defaultTest`` adds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.programs.programs import is_program
from fairlane.apps.promptfoo.reading.case import Case
from fairlane.apps.promptfoo.reading.csv_cases import read_csv
from fairlane.apps.promptfoo.reading.filters import Filters
from fairlane.apps.promptfoo.reading.places import DATA, FILE, Place, is_number, is_pattern, names, with_texts
from fairlane.apps.promptfoo.reading.remote import SHEETS, read_huggingface, read_sheet
from fairlane.apps.promptfoo.reading.yaml12 import parse_json
from fairlane.datasets.lines import MalformedFile

KEYS = names(
    "description vars assert options threshold metadata assertScoringFunction prompts providers provider",
)
_REFUSED = {
    "providerOutput": "outputs that exist already are not scored: submit them with output=",
    "strategyId": "nothing is generated",
}

OPTIONS = names(
    "provider runSerially storeOutputAs disableVarExpansion disableDefaultAsserts transform postprocess",
    "transformVars prefix suffix rubricPrompt factuality",
)
_DISABLES = "disableConversationVar"


def read_tests(
    config: Mapping[str, Any],
    place: Place,
    filters: Filters,
    matching: Callable[[Sequence[Case], Case], Sequence[Case]],
    before: Callable[[Any, Sequence[Case], Any], tuple[Any, list[Case], Any]],
) -> list[Case]:
    """The tests that ``filters`` keep; if the configuration has none, ``defaultTest`` is the test.

    ``matching`` keeps the tests of earlier results, and gets ``defaultTest`` too. ``before`` may change
    ``defaultTest``, tests and scenarios.
    """
    raw, scenarios = config.get("tests"), config.get("scenarios")
    default, where = (place / "defaultTest").referred(config.get("defaultTest") or {})
    first = read_test(default, where)
    found = list(_listed(raw, place / "tests"))
    if raw in (None, []) and not scenarios:
        found = [replace(read_test({}, where), metadata=first.metadata)]
    if scenarios and filters.failing is not None:
        (place / "scenarios").refuse("earlier results choose no tests of scenarios: name them otherwise")
        filters = replace(filters, failing=None)
    found = (replace(filters, range=None) if scenarios else filters).tests(
        found, lambda tests: matching(tests, first)
    )
    default, found, scenarios = before(default, found, scenarios)
    first = read_test(default, where)
    found.extend(_scenarios(scenarios, place / "scenarios", filters))
    found = filters.ranged(found) if scenarios else found
    if filters.any and not found:
        (place / ("scenarios" if scenarios else "tests")).refuse("--filter-… leaves no test")
    return [test.with_defaults(first) for test in found]


def _scenarios(raw: Any, place: Place, filters: Filters) -> Iterator[Case]:
    """Each test of a scenario with each of its configurations."""
    raw, place = place.referred(raw)
    if not isinstance(raw, list | None):
        place.refuse("scenarios are a list")
        return
    for number, each in enumerate(raw or []):
        scenario, where = (place / number).referred(each)
        if not isinstance(scenario, Mapping):
            where.refuse("a scenario has a config and tests")
            continue
        config, said = (where / "config").referred(scenario.get("config") or [{}])
        tests = list(_listed(scenario.get("tests"), where / "tests")) or [read_test({}, where)]
        tests = filters.tests(tests, lambda tests: tests, scenario=number)
        if not isinstance(config, list):
            said.refuse("the config of a scenario is a list")
            continue
        for one in [read_test(one, said / n) for n, one in enumerate(config)]:
            yield from (test.with_defaults(one) for test in tests)


def _listed(raw: Any, place: Place) -> Iterator[Case]:
    if isinstance(raw, str):
        yield from _of_file(raw, place)
    elif isinstance(raw, list):
        for number, each in enumerate(raw):
            if isinstance(each, str):
                yield from _of_file(each, place / number)
            elif isinstance(each, Mapping) and isinstance(path := each.get("path"), str):
                yield from _of_file(path, place / number, each.get("config"))
            else:
                yield read_test(each, place / number)
    elif isinstance(raw, Mapping) and isinstance(path := raw.get("path"), str):
        yield from _of_file(path, place, raw.get("config"))
    elif raw is not None:
        place.refuse("tests are a list, or the name of a file")


def _of_file(reference: str, place: Place, config: Any = None) -> Iterator[Case]:
    scheme, separator, _ = reference.partition("://")
    if scheme == "huggingface" and separator:
        for number, each in enumerate(read_huggingface(reference, place)):
            yield read_test(each, place / number)
    elif reference.startswith(SHEETS):
        text = read_sheet(reference, place)
        for line, each in read_csv(text or "", place):
            yield read_test(each, place / f"line {line}")
    elif separator and f"{scheme}://" != FILE:
        place.refuse(f"tests from {scheme}:// are not supported: save them as a file")
    elif is_program(reference):
        yield from _of_program(reference, place, config)
    elif is_pattern(reference):
        for path in place.matching(reference):
            yield from _of_path(path, place)
    elif found := place.find(reference):
        yield from _of_path(found, place)


def _of_program(reference: str, place: Place, config: Any) -> Iterator[Case]:
    """The tests that a function returns."""
    program = place.program(reference)
    if program is None:
        return
    try:
        path, function = program
        arguments = (
            [] if config is None else [with_texts(config, place, lambda text, where: where.referred(text)[0])]
        )
        found = place.programs.file(path, function, arguments, default="generate_tests", values=True)
    except ProgramError as error:
        place.refuse(f"{reference}: {error}")
        return
    if not isinstance(found, list):
        place.refuse(f"{reference} returns no list of tests")
        return
    for number, each in enumerate(found):
        yield read_test(each, place / number)


def _of_path(path: Path, place: Place) -> Iterator[Case]:
    if path.suffix == ".csv":
        text = place.text(path)
        for line, each in read_csv(text or "", place.within(path)):
            yield read_test(each, place.within(path, line))
    elif path.suffix == ".jsonl":
        yield from _lines(path, place)
    elif path.suffix in DATA:
        document = place.data(path)
        listed = isinstance(document, list)
        for number, each in enumerate(document if listed else [document]):
            yield read_test(each, place.within(path) / number if listed else place.within(path))
    else:
        place.refuse(f"tests in a {path.suffix or 'nameless'} file are not supported")


def _lines(path: Path, place: Place) -> Iterator[Case]:
    for number, line in enumerate((place.text(path) or "").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield read_test(parse_json(line), place.within(path, number))
        except (ValueError, MalformedFile, RecursionError) as error:
            place.within(path, number).refuse(f"this is no JSON: {error}")


def read_test(raw: Any, place: Place) -> Case:
    """One test; its errors become problems."""
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
        _variables(raw.get("vars"), place / "vars"),
        _assertions(raw.get("assert"), place / "assert"),
        _options(raw.get("options"), place / "options"),
        _threshold(raw.get("threshold"), place / "threshold"),
        (place / "metadata").mapping(raw.get("metadata")),
        _scoring(raw.get("assertScoringFunction"), place / "assertScoringFunction"),
        _labels(raw.get("prompts"), place / "prompts"),
        _labels(raw.get("providers"), place / "providers"),
    )


def _scoring(raw: Any, place: Place) -> tuple[str, Place] | None:
    if raw is None:
        return None
    if isinstance(raw, str) and is_program(raw):
        return (raw, place) if place.program(raw) else None
    place.refuse("a scoring function is a file of JavaScript or Python")
    return None


def _labels(raw: Any, place: Place) -> tuple[str, ...] | None:
    if raw is None or (isinstance(raw, list) and all(isinstance(each, str) for each in raw)):
        return None if raw is None else tuple(raw)
    place.refuse("these are a list of labels")
    return None


def _variables(raw: Any, place: Place) -> dict[str, tuple[Any, Place]]:
    if isinstance(raw, str):
        raw, place = place.referred(raw if raw.startswith(FILE) else f"{FILE}{raw}")
    found = place.mapping(raw)
    for name in found:
        if name.startswith("__") or name in ("output", "row"):
            (place / name).refuse(f"the variable {name} has a name that is taken: rename it")
    return {name: (value, place / name) for name, value in found.items()}


def _assertions(raw: Any, place: Place) -> tuple[tuple[Any, Place], ...]:
    if isinstance(raw, str):
        raw, place = place.referred(raw)
    if raw is None:
        return ()
    if not isinstance(raw, list):
        place.refuse("assertions are a list")
        return ()
    return tuple((each, place / number) for number, each in enumerate(raw))


def _options(raw: Any, place: Place) -> Mapping[str, Any]:
    options = place.mapping(raw)
    for name in options.keys() & KEYS - OPTIONS:
        place.note(f"{place / name}: {name} belongs beside options, and is left out")
    if _DISABLES in options:
        (place / _DISABLES).refuse(f"the option {_DISABLES} of a test is not supported")
    place.check_names(options.keys() - KEYS - {_DISABLES}, "the options of a test", OPTIONS)
    return options


def _threshold(raw: Any, place: Place) -> float | None:
    if raw is None or is_number(raw):
        return raw
    place.refuse("a threshold is a number")
    return None
