from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fairlane.core import errors
from tests.support.documents import ROOT

TREE = errors.__doc__ or ""


def subclasses_elsewhere() -> Iterator[str]:
    """Public classes that derive from an error of the tree, outside the tree's file."""
    known = {name for name, value in vars(errors).items() if isinstance(value, type)}
    for folder in ("shared", "scheduler", "workers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name == "errors.py" and path.parent.name == "core":
                continue
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                    if bases & (known - {"RateLimited"}):
                        yield f"{path.relative_to(ROOT)}:{node.name}"


def test_all_errors_stand_in_one_file() -> None:
    assert list(subclasses_elsewhere()) == []


def test_the_tree_at_the_top_draws_every_error_below_its_parent() -> None:
    drawn = [(len(match[1]), match[2]) for match in re.finditer(r"(?m)^([│ ]*)[├└]── (\w+)", TREE)]
    parents: dict[str, str] = {}
    above = "FairlaneError"
    for depth, name in drawn:
        parents[name] = "FairlaneError" if depth == 0 else above
        above = name if depth == 0 else above

    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    real = {
        each.__name__: each.__bases__[0].__name__
        for each in classes
        if issubclass(each, errors.FairlaneError) and each is not errors.FairlaneError
    }
    assert parents == real
