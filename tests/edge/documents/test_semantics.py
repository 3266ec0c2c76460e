"""Every promise on the page of semantics names a test that is there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.documents import ROOT

PAGE = ROOT / "docs" / "semantics.md"
TEXT = PAGE.read_text(encoding="utf-8")
KINDS = ast.FunctionDef | ast.ClassDef
TESTS = r"`((?:unit|lua|integration|chaos|contract|simulation|edge|lab)/[^`]+)`"
NAMED = sorted(set(re.findall(TESTS, TEXT)))


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_is_there(name: str) -> None:
    file, *inside = name.split("::")
    body: list[ast.stmt] = ast.parse((ROOT / "tests" / file).read_text("utf-8")).body
    for part in inside:
        found = [node for node in body if isinstance(node, KINDS) and node.name == part]
        assert found, part
        body = found[0].body


def test_all_seventeen_edge_cases_have_a_row() -> None:
    assert [int(n) for n in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)] == [*range(1, 18)]


@pytest.mark.parametrize(
    "fact", [*(f"FR-{n:03}" for n in range(1, 10)), *(f"SC-{n:03}" for n in range(1, 5))]
)
def test_every_requirement_has_a_row(fact: str) -> None:
    assert re.search(rf"^\| [^|]*{fact}", TEXT, re.MULTILINE)
