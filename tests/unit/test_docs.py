"""The guides' tables hold what the code holds: events, keys, settings, constants, outcomes, benchmarks."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, get_args

import pytest

import fairlane.evaluators
from fairlane.admission.views import AXES
from fairlane.events import Event
from fairlane.job import Outcome
from fairlane.settings import Settings
from fairlane.store.keys import Keys, RunRef
from tests.benchmarks.__main__ import BENCHMARKS
from tests.support.documents import DECISIONS, ROOT, coded, headings, links, table

OPERATIONS = ROOT / "docs" / "operations.md"
CONCEPTS = ROOT / "docs" / "concepts.md"
EVALUATORS = ROOT / "docs" / "evaluators.md"
BENCHMARKS_PAGE = ROOT / "docs" / "benchmarks.md"
LUA = ROOT / "shared" / "fairlane" / "store" / "lua"
SOURCES = [path for part in ("shared", "scheduler", "workers") for path in (ROOT / part).rglob("*.py")]

MOST_LINES = 40


def _first(rows: list[dict[str, str]]) -> list[str]:
    """The codes of each row's first cell, in order."""
    return [code for row in rows for code in coded(next(iter(row.values())))]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_is_a_problem_a_decision_and_its_cost(path: Path) -> None:
    title, *parts = headings(path)
    assert title.startswith("# ")
    assert parts == ["## Problem", "## Decision", "## Cost"]
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_every_decision_is_listed_once() -> None:
    listed = [link for link in links(CONCEPTS) if link.startswith("decisions/") and link.endswith(".md")]
    assert {Path(link).name for link in listed} == {path.name for path in DECISIONS}
    answers = [
        link
        for row in table(CONCEPTS, "question", "answer")
        for link in re.findall(r"\((.+)\)", row["answer"])
    ]
    assert len(answers) == len(set(answers)) == len(DECISIONS)


def test_every_event_is_described() -> None:
    assert sorted(_first(table(OPERATIONS, "event", "written by"))) == sorted(Event)


def test_events_that_nothing_writes_are_marked_so() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    unwritten = {event.value for event in Event if not re.search(rf"Event\.{event.name}\b", code)}
    rows = table(OPERATIONS, "event", "written by")
    assert set(_first([row for row in rows if row["written by"] == "nobody yet"])) == unwritten


def test_every_key_is_described() -> None:
    assert sorted(_first(table(OPERATIONS, "key", "type"))) == sorted(_keys())


def test_the_intervals_are_those_of_the_settings() -> None:
    settings = Settings().model_dump()
    for row in table(OPERATIONS, "setting", "default, s"):
        section, name = coded(row["setting"])[0].split(".")
        assert float(row["default, s"]) == settings[section][name], name


@pytest.mark.parametrize("row", table(OPERATIONS, "constant", "value"), ids=lambda row: row["constant"])
def test_a_constant_is_as_the_code_has_it(row: dict[str, str]) -> None:
    (name,), (file,) = coded(row["constant"]), coded(row["file"])
    assert _constant(ROOT / file, name) == float(row["value"])


def test_every_outcome_is_described() -> None:
    described = _first(table(CONCEPTS, "outcome", "examples"))
    assert described == [kind.__name__ for kind in get_args(Outcome)]


OF_ONE_TEAM = {"team_share"}  # holds back its runs alone: test_why_bounds.py has it


def test_every_reason_that_shuts_a_lane_is_described() -> None:
    scripts = [LUA / "lib" / "gate.lua", LUA / "lib" / "lane.lua", LUA / "lib" / "allotment.lua"]
    told = {
        reason
        for script in scripts
        for reason in re.findall(r"return '(\w+)',", script.read_text(encoding="utf-8"))
    }
    assert set(_first(table(CONCEPTS, "reason", "caused by"))) == told - OF_ONE_TEAM | set(AXES)


def test_every_evaluator_is_described() -> None:
    described = {code.partition("(")[0] for code in _first(table(EVALUATORS, "evaluator", "scores 1 if"))}
    assert described == set(fairlane.evaluators.__all__)


def test_every_benchmark_is_described() -> None:
    assert _first(table(BENCHMARKS_PAGE, "name", "workload")) == list(BENCHMARKS)


def _keys() -> list[str]:
    """Every key and channel below the prefix, with names in place of values."""
    keys, ref = Keys("x"), RunRef("<team>", "<run>")
    arguments: dict[str, tuple[Any, ...]] = {"inbox": ("<team>",), "runs": ("<team>",), "lane": ("<lane>",)}
    arguments["budget"] = ("<team>",)
    arguments |= {
        "limits": ("<lane>",),
        "flying": ("<lane>",),
        "allotted": ("<lane>",),
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
