"""No files or folders import each other in a circle. Imports for types and inside of functions count."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared/fairlane", "scheduler/fairlane_scheduler", "workers/fairlane_workers")

Imports = dict[str, set[str]]
"""What each file, or each file and folder of one folder, imports."""


@cache
def files() -> dict[str, Path]:
    """The project's modules by their dotted names."""
    found = {}
    for package in map(Path, PACKAGES):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT / package.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> Imports:
    return {name: set(_imported(name, path)) for name, path in files().items()}


def _imported(name: str, path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                asked = [each.name for each in names]
            case ast.ImportFrom(module=module, names=names, level=0):
                asked = [f"{module}.{each.name}" for each in names]
            case _:
                continue
        for each in asked:
            target = each if each in files() else each.rpartition(".")[0]
            if target in files() and target != name:
                yield target


def within(folder: str) -> Imports:
    """What the files and folders of ``folder`` import of each other."""
    found: Imports = {}
    for name, targets in imports().items():
        if name.startswith(f"{folder}."):
            child = _child(folder, name)
            beside = {_child(folder, each) for each in targets if each.startswith(f"{folder}.")}
            found.setdefault(child, set()).update(beside - {child})
    return found


def _child(folder: str, name: str) -> str:
    return name.removeprefix(f"{folder}.").partition(".")[0]


def circle(graph: Imports) -> list[str]:
    """A circle in the order of its imports, the first member again at its end; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found[::-1]
    return []


def test_no_files_import_each_other() -> None:
    assert " -> ".join(circle(imports())) == ""


def test_no_folders_beside_each_other_import_each_other() -> None:
    folders = [name for name, path in files().items() if path.name == "__init__.py"]
    assert {name: found for name in folders if (found := circle(within(name)))} == {}


def test_a_circle_is_named_in_the_order_of_its_imports() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set[str]()}
    assert circle(graph) in (["b", "c", "b"], ["c", "b", "c"])
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_every_project_import_is_seen() -> None:
    seen = imports()
    assert {"fairlane_scheduler.service", "fairlane.client.handle", "fairlane_workers.engine"} <= seen.keys()
    assert "fairlane.core.clock" in seen["fairlane_scheduler.service"]  # at the top
    assert "fairlane.client.views.tally" in seen["fairlane.client.outputs"]  # in a function
    assert "fairlane.client.views.summary" in seen["fairlane.client.outputs"]  # for types alone
