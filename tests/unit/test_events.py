from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.documents import ROOT

LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def literals() -> Iterator[str]:
    """Log calls whose event is written out, as ``file:line``."""
    for folder in ("shared", "scheduler", "workers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                    continue
                logs = isinstance(node.func.value, ast.Name) and node.func.value.id in {"log", "logger"}
                written = node.args and isinstance(node.args[0], ast.Constant | ast.JoinedStr)
                if logs and node.func.attr in LEVELS and written:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}"


def test_every_log_event_has_a_name() -> None:
    assert list(literals()) == []
