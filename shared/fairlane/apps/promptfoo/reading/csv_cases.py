"""Reads tests from CSV: each column is a variable, and ``__expected`` columns hold assertions."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from fairlane.apps.promptfoo.reading.places import Place, names
from fairlane.core.figures import plain_number
from fairlane.evaluators.assertions import separated

_EXPECTED, _METADATA = "__expected", "__metadata:"
_TYPED = re.compile(r"(?P<type>[a-z][a-z0-9-]*)(?:\((?P<threshold>\d+(?:\.\d+)?)\))?(?::(?P<value>[\s\S]*))?")
_PROGRAM = re.compile(r"(?P<word>javascript|fn|eval|python):(?P<value>[\s\S]*)")
_SHORT = {"grade": "llm-rubric", "fn": "javascript", "eval": "javascript"}
_CONFIG = re.compile(r"__config:__expected(?P<number>\d*):threshold")
_LISTS = frozenset(("contains-all", "contains-any", "icontains-all", "icontains-any"))

KNOWN = names(
    "agent-rubric answer-relevance bleu classifier contains contains-all contains-any contains-html",
    "contains-json contains-sql contains-xml context-faithfulness context-recall context-relevance cost",
    "equals factuality finish-reason g-eval gleu guardrails icontains icontains-all icontains-any is-html",
    "is-json is-refusal is-sql is-valid-function-call is-valid-openai-function-call",
    "is-valid-openai-tools-call is-xml javascript latency levenshtein llm-rubric meteor",
    "model-graded-closedqa model-graded-factuality moderation perplexity perplexity-score pi python regex",
    "rouge-n ruby search-rubric select-best similar starts-with webhook word-count",
)
"""Known assertions; with any other text before a colon, the whole cell is the expected output."""


def read_csv(text: str, place: Place) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Every row as a test, with the line where it ends."""
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        for row in reader:
            where = place.within(place.file, reader.line_num)
            if None in row:
                where.refuse("this row has more cells than there are columns")
                continue
            yield reader.line_num, _test(row, where)
    except csv.Error as error:
        place.within(place.file, reader.line_num).refuse(f"this is no CSV: {error}")


def assertion_of(text: str) -> dict[str, Any]:
    """``contains:Paris`` → an assertion; a text that names none is the expected output."""
    program = _PROGRAM.match(text)
    if program:
        return {"type": _SHORT.get(program["word"], program["word"]), "value": program["value"].strip()}
    if text.startswith("grade:"):
        return {"type": "llm-rubric", "value": text.removeprefix("grade:")}
    found = _TYPED.fullmatch(text)
    if found is None or found["type"].removeprefix("not-") not in KNOWN:
        return {"type": "equals", "value": text}
    kind, value = found["type"], found["value"]
    assertion: dict[str, Any] = {"type": kind}
    if kind.removeprefix("not-") in _LISTS:
        assertion["value"] = separated(value or "")
    elif value:
        assertion["value"] = value
    if found["threshold"]:
        assertion["threshold"] = float(found["threshold"])
    return assertion


def _test(row: Mapping[str, str | None], place: Place) -> Mapping[str, Any]:
    test: dict[str, Any] = {"vars": {}, "assert": [], "metadata": {}}
    thresholds: dict[int, float | None] = {}
    for column, cell in row.items():
        value = cell or ""
        if re.fullmatch(rf"{_EXPECTED}\d*", column):
            if value.strip():
                test["assert"].append(assertion_of(value.strip()))
        elif column == "__description":
            test["description"] = value
        elif column == "__threshold":
            if value.strip():
                test["threshold"] = _number(value, place)
        elif column == "__metric" or column.startswith(_METADATA):
            test["metadata"][column.removeprefix(_METADATA)] = value
        elif column in ("__prefix", "__suffix"):
            test.setdefault("options", {})[column.removeprefix("__")] = value
        elif found := _CONFIG.fullmatch(column):
            if value.strip():
                thresholds[int(found["number"] or 1) - 1] = _number(value, place)
        elif column.startswith("__"):
            place.refuse(f"the column {column} is not supported")
        else:
            test["vars"][column] = value
    for number, threshold in thresholds.items():
        if number < len(test["assert"]):
            test["assert"][number]["threshold"] = threshold
    metric = test["metadata"].pop("__metric", None)
    if metric:
        test["assert"] = [{**assertion, "metric": metric} for assertion in test["assert"]]
    return test


def _number(text: str, place: Place) -> float | None:
    try:
        return plain_number(text)
    except ValueError:
        place.refuse(f"the threshold {text!r} is no number")
        return None
