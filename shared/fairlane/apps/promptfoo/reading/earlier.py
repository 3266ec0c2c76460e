"""Reads the tests that did not pass from the results of an earlier evaluation."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from fairlane.core.errors import SubmissionError
from fairlane.core.figures import whole

Which = Literal["failing", "failing-only", "errors-only"]

_ERROR = 2
"""promptfoo's ``failureReason`` of an output that is missing or could not be judged."""


def variables_key(variables: Mapping[str, Any]) -> str:
    """A text that is equal for equal variables; ignores names that begin with ``_``."""
    own = {name: each for name, each in variables.items() if not name.startswith("_")}
    return json.dumps(own, sort_keys=True, ensure_ascii=False, default=str)


def unpassed(path: Path, which: Which) -> list[Mapping[str, Any]]:
    """The variables of each result that did not pass, in the file's order, each once.

    The file is what ``fairlane eval -o`` writes as ``.jsonl``, or promptfoo as ``.json``.
    Raises `SubmissionError`.
    """
    field, remedy = f"--filter-{which}", "Name a file that `fairlane eval -o FILE.jsonl` wrote."
    if path.suffix not in (".json", ".jsonl"):
        raise SubmissionError(
            field, str(path), "is no file of results: it is neither .jsonl nor .json", remedy
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = list(_fairlane_results(text) if path.suffix == ".jsonl" else _promptfoo_results(text))
    except OSError as error:
        raise SubmissionError(field, str(path), f"cannot be read: {error.strerror}", remedy) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SubmissionError(field, str(path), "holds no results of an evaluation", remedy) from error
    wanted = {"failing": (False, None), "failing-only": (False,), "errors-only": (None,)}[which]
    kept = {variables_key(variables): variables for passed, variables in found if passed in wanted}
    return list(kept.values())


def _fairlane_results(text: str) -> Iterator[tuple[bool | None, Mapping[str, Any]]]:
    """Whether each record passed, ``None`` after an error, and its variables."""
    for line in filter(str.strip, text.split("\n")):
        record = json.loads(line, parse_float=whole)
        passed = record["scores"]["pass"]
        row = {name: each for name, each in record["row"].items() if not name.startswith("__")}
        yield None if passed is None else bool(passed), row


def _promptfoo_results(text: str) -> Iterator[tuple[bool | None, Mapping[str, Any]]]:
    for result in json.loads(text)["results"]["results"]:
        failed = None if result.get("failureReason") == _ERROR else False
        yield True if result["success"] else failed, result.get("vars") or {}
