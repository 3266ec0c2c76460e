"""The guides' tables agree with the code: events, keys, settings, constants, outcomes, benchmarks."""

from __future__ import annotations

import ast
import pkgutil
import re
from pathlib import Path
from typing import Any, get_args

import pytest

import fairlane
from fairlane.config.settings import Settings
from fairlane.core.events import Event
from fairlane.model.outcome import Outcome
from fairlane.model.run import RunRef
from fairlane.store.keys import Keys
from tests.benchmarks.__main__ import BENCHMARKS
from tests.support.constraints import LANE_CONSTRAINTS
from tests.support.documents import DECISION_INDEX, DECISIONS, ROOT, coded, headings, table, tables

GLOSSARY = ROOT / "docs" / "glossary.md"
LOGS = ROOT / "docs" / "logs.md"
REDIS = ROOT / "docs" / "redis.md"
INTERVALS = ROOT / "docs" / "intervals.md"
CONSTRAINTS = ROOT / "docs" / "constraints.md"
OUTCOMES = ROOT / "docs" / "outcomes.md"
EVALUATORS = ROOT / "docs" / "evaluators.md"
BENCHMARKS_PAGE = ROOT / "docs" / "benchmarks.md"
SOURCES = [path for part in ("shared", "scheduler", "workers") for path in (ROOT / part).rglob("*.py")]

TOPICS = {"Core", "Limits", "Teams", "Runs", "Providers", "Operation"}


def _first(rows: list[dict[str, str]]) -> list[str]:
    """The codes of each row's first cell, in order."""
    return [code for row in rows for code in coded(next(iter(row.values())))]


def _title(path: Path) -> str:
    """A decision's title, without its number."""
    return headings(path)[0].partition(": ")[2]


def _head(path: Path, name: str) -> str:
    """The value of one line of a decision's head, empty where it has no such line."""
    head = path.read_text(encoding="utf-8").partition("\n## ")[0]
    found = re.search(rf"^{name}: (.+)$", head, re.MULTILINE)
    return found[1] if found else ""


def _linked(value: str) -> str:
    """The file that a value of a head links to, empty where it links to none."""
    found = re.search(r"\((.+)\)", value)
    return found[1] if found else ""


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_a_numbered_head_a_problem_a_decision_and_its_cost(path: Path) -> None:
    title, *parts = headings(path)
    assert re.fullmatch(rf"# {path.name[:4]}: \S.*", title)
    assert parts == ["## Problem", "## Decision", "## Cost"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", _head(path, "Date"))
    assert re.fullmatch(r"accepted|superseded by \[\d{4}\]\(\d{4}-[a-z0-9-]+\.md\)", _head(path, "Status"))


def test_decisions_are_numbered_without_gaps() -> None:
    assert [path.name[:5] for path in DECISIONS] == [f"{n:04}-" for n in range(1, len(DECISIONS) + 1)]


def test_a_superseded_decision_and_its_successor_name_each_other() -> None:
    superseded = {(path.name, _linked(_head(path, "Status"))) for path in DECISIONS}
    superseding = {(_linked(_head(path, "Supersedes")), path.name) for path in DECISIONS}
    assert {pair for pair in superseded if all(pair)} == {pair for pair in superseding if all(pair)}


def test_the_index_has_every_decision_with_its_head() -> None:
    rows = table(DECISION_INDEX, "number", "decision", "date", "status", "topic")
    listed = [(row["number"], row["decision"], row["date"], row["status"]) for row in rows]
    assert listed == [
        (path.name[:4], f"[{_title(path)}]({path.name})", _head(path, "Date"), _head(path, "Status"))
        for path in DECISIONS
    ]
    assert {row["topic"] for row in rows} <= TOPICS


def test_terms_stand_once_in_the_glossary_and_name_code_that_exists() -> None:
    rows = [line.split(" | ") for line in GLOSSARY.read_text(encoding="utf-8").splitlines() if " | " in line]
    terms = [row[0].removeprefix("| ") for row in rows if row[0] not in ("| term", "| state")]
    assert len(terms) == len(set(terms))
    for name in sorted({code for row in rows for code in coded(row[-1]) if code.startswith("fairlane.")}):
        assert pkgutil.resolve_name(name)


def test_every_event_is_described() -> None:
    assert sorted(_first(tables(LOGS, "event", "written by"))) == sorted(Event)


def test_events_that_nothing_writes_are_marked_so() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    unwritten = {event.value for event in Event if not re.search(rf"Event\.{event.name}\b", code)}
    rows = tables(LOGS, "event", "written by")
    assert set(_first([row for row in rows if row["written by"] == "nobody yet"])) == unwritten


def test_every_key_is_described() -> None:
    assert sorted(_first(tables(REDIS, "key", "type"))) == sorted(_keys())


def test_the_intervals_are_those_of_the_settings() -> None:
    settings = Settings().model_dump()
    for row in table(INTERVALS, "setting", "default, s"):
        section, name = coded(row["setting"])[0].split(".")
        assert float(row["default, s"]) == settings[section][name], name


@pytest.mark.parametrize("row", table(INTERVALS, "constant", "value"), ids=lambda row: row["constant"])
def test_a_constant_is_as_the_code_has_it(row: dict[str, str]) -> None:
    (name,), (file,) = coded(row["constant"]), coded(row["file"])
    assert _constant(ROOT / file, name) == float(row["value"])


def test_every_outcome_is_described() -> None:
    described = _first(table(OUTCOMES, "outcome", "examples"))
    assert described == [kind.__name__ for kind in get_args(Outcome)]


def test_every_constraint_of_a_lane_is_described() -> None:
    assert set(_first(table(CONSTRAINTS, "reason", "caused by"))) == LANE_CONSTRAINTS, CONSTRAINTS


def test_every_evaluator_is_described() -> None:
    described = {code.partition("(")[0] for code in _first(table(EVALUATORS, "evaluator", "scores 1 if"))}
    homes = fairlane._HOMES.items()
    builders = {"fairlane.evaluators.builders", "fairlane.evaluators.function_scorers"}
    assert described == {name for name, home in homes if home in builders}


def test_every_benchmark_is_described() -> None:
    assert _first(table(BENCHMARKS_PAGE, "name", "workload")) == list(BENCHMARKS)


def _keys() -> list[str]:
    """Every key and channel below the prefix, with names in place of values."""
    keys, ref = Keys("x"), RunRef("<team>", "<run>")
    arguments: dict[str, tuple[Any, ...]] = {"inbox": ("<team>",), "runs": ("<team>",), "lane": ("<lane>",)}
    arguments["budget"] = ("<team>",)
    arguments |= {
        "limits": ("<lane>",),
        "in_flight": ("<lane>",),
        "reserved_shares": ("<lane>",),
        "owed": ("<lane>",),
        "headroom": ("<lane>", "<axis>"),
        "history": ("<lane>", "<step>"),
        "hot": (ref, "<lane>"),
        "fresh": (ref, "<lane>"),
        "answer": ("<team>", "<digest>"),
    }
    built = [value for name, value in vars(keys).items() if name != "prefix"]
    for name in dir(keys):
        verb = getattr(keys, name)
        if callable(verb) and not name.startswith("_"):
            built.append(verb(*arguments.get(name, (ref,))))
    return [key.removeprefix(keys.prefix) for key in built]


def _constant(path: Path, name: str) -> float:
    """The value that a module or script gives to a name, alone or in a row of names."""
    for line in path.read_text(encoding="utf-8").splitlines():
        names, equals, values = re.split("#|--", line.removeprefix("local "))[0].partition(" = ")
        listed = [each.strip() for each in names.split(",")]
        if equals and name in listed:
            found = values.split(",")[listed.index(name)] if len(listed) > 1 else values
            return float(_computed(found.strip()))
    raise AssertionError(f"{path.name} has no {name}")


def _computed(text: str) -> float:
    """A number, or a product of numbers."""
    product = 1.0
    for factor in text.split("*"):
        product *= float(ast.literal_eval(factor.strip()))
    return product
