"""``--filter-…`` chooses the tests, prompts and providers that promptfoo's own command chooses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlane.apps.promptfoo.evaluation import CliOptions, read_evaluation
from fairlane.apps.promptfoo.reading.earlier import unpassed
from fairlane.apps.promptfoo.reading.filters import Filters, metadata_of
from tests.edge.promptfoo.test_promptfoo_verdicts import promptfoo
from tests.support.promptfoo_command import Promptfoo

__all__ = ["promptfoo"]

pytestmark = pytest.mark.promptfoo

TESTS = [
    {
        "description": f"{kind} {number}",
        "vars": {"word": word},
        "metadata": {"kind": kind, "tags": [f"t{number}", "all"]},
        "assert": [{"type": "contains", "value": "a"}],
    }
    for number, (kind, word) in enumerate(
        [("unit", "alpha"), ("unit", ["who", "cat"]), ("prod", "why"), ("prod", "gamma"), ("unit", "no")]
    )
]
CHOICES: list[tuple[list[str], dict[str, Any]]] = [
    (["--filter-pattern", r"^unit \d"], {"pattern": r"^unit \d"}),
    (["--filter-first-n", "2"], {"first": 2}),
    (["--filter-range", "1:4", "--filter-first-n", "2"], {"range": "1:4", "first": 2}),
    (["--filter-sample", "3", "--filter-sample-seed", "7"], {"sample": 3, "seed": 7}),
    (["--filter-metadata", "kind=un", "--filter-metadata", "tags=t4"], {"metadata": ("kind=un", "tags=t4")}),
    (["--filter-providers", "second"], {"providers": "second"}),
    (["--filter-prompts", "Say"], {"prompts": "Say"}),
    (["--filter-failing", "FIRST"], {"failing": "failing"}),
    (["--filter-failing-only", "FIRST", "--filter-first-n", "1"], {"failing": "failing-only", "first": 1}),
]


@pytest.mark.timeout(900)
def test_the_same_outputs_are_asked_for(promptfoo: Promptfoo, tmp_path: Path) -> None:
    path = tmp_path / "promptfooconfig.json"
    providers = ["echo", {"id": "echo", "label": "second"}]
    prompts = ["Say {{word}}", "Tell {{word}}"]
    path.write_text(json.dumps({"prompts": prompts, "providers": providers, "tests": TESTS}))
    promptfoo.evaluate(path, {})
    first = path.with_name("promptfoo-output.json").rename(tmp_path / "first.json")
    for options, wanted in CHOICES:
        flags = [str(first) if each == "FIRST" else each for each in options]
        theirs = promptfoo.evaluate(path, {}, *flags)
        order = list(dict.fromkeys((each["testIdx"], each["vars"]["word"]) for each in theirs))
        asked = {(each["prompt"]["raw"], each["provider"].get("label")) for each in theirs}
        filters = dict(wanted)
        if "failing" in filters:
            filters["failing"] = unpassed(first, filters["failing"])
        if "metadata" in filters:
            filters["metadata"] = metadata_of(filters["metadata"])
        evaluation = read_evaluation(path, CliOptions(frozenset(), filters=Filters(**filters)))
        made = [row for run in evaluation.runs for row in run.rows or ()]
        assert list(dict.fromkeys(row["word"] for row in made)) == [word for _, word in order], options
        assert len(made) == len(theirs), options
        assert {row["__asked"] for row in made} == {text for text, _ in asked}, options
