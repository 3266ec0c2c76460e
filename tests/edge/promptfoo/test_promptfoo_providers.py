"""Providers that are programs get what promptfoo gives them, and their outputs have its verdicts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fairlane.apps.promptfoo.answering import answers, as_called
from fairlane.apps.promptfoo.evaluation import CliOptions, read_evaluation
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.scoring.scorer import Scorer
from tests.edge.promptfoo.test_promptfoo_verdicts import promptfoo
from tests.support.promptfoo import record
from tests.support.promptfoo_command import Promptfoo

__all__ = ["promptfoo"]

pytestmark = pytest.mark.promptfoo

PYTHON = """
def call_api(prompt, options, context):
    word = context["vars"]["word"]
    if word == "raise":
        raise ValueError("as it should")
    if word == "error":
        return {"error": "no such word"}
    if word == "empty":
        return {"output": ""}
    if word == "object":
        return {"output": {"asked": prompt, "mood": options["config"].get("mood")}}
    return {"output": f"{prompt} {options['config'].get('mood')}", "cost": 0.5}
"""
JAVASCRIPT = """
module.exports = class {
  constructor(options) { this.mood = options.config?.mood; }
  id() { return 'mine'; }
  async callApi(prompt, context) {
    const { word } = context.vars;
    if (word === 'raise') throw new Error('as it should');
    if (word === 'error') return { error: 'no such word' };
    if (word === 'empty') return { output: '' };
    if (word === 'object') return { output: { asked: prompt, mood: this.mood } };
    return { output: `${prompt} ${this.mood}`, cost: 0.5 };
  }
};
"""
CHECKS = [
    {"type": "contains", "value": "good"},
    {"type": "javascript", "value": "(output.asked || output).startsWith('Say')"},
    {"type": "equals", "value": "Say plain"},
    {"type": "is-json"},
]


@pytest.mark.timeout(900)
def test_programs_and_echo_answer_as_they_do_under_promptfoo(promptfoo: Promptfoo, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(PYTHON)
    (tmp_path / "agent.js").write_text(JAVASCRIPT)
    mood = {"config": {"mood": "good"}}
    providers = [
        "echo",
        {"id": "file://agent.py", "label": "python", **mood},
        {"id": "file://agent.js", "label": "javascript", **mood},
    ]
    tests = [
        {"vars": {"word": word}, "description": f"{word} {number}", "assert": [check]}
        for word in ("plain", "object", "raise", "error", "empty")
        for number, check in enumerate(CHECKS)
    ]
    path = tmp_path / "promptfooconfig.json"
    path.write_text(json.dumps({"prompts": ["Say {{word}}"], "providers": providers, "tests": tests}))
    theirs = {
        (each["provider"].get("label") or each["provider"]["id"], each["testCase"]["description"]): (
            each["success"],
            (each.get("response") or {}).get("output"),
        )
        for each in promptfoo.evaluate(path, {"PROMPTFOO_PYTHON": sys.executable})
    }
    ours = _ours(path)
    assert ours.keys() == theirs.keys()
    assert {name: passed for name, (passed, _) in ours.items()} == {
        name: passed for name, (passed, _) in theirs.items()
    }
    assert {name: output for name, (_, output) in ours.items() if output is not None} == {
        name: theirs[name][1] for name, (_, output) in ours.items() if output is not None
    }


def _ours(path: Path) -> dict[tuple[str, str], tuple[bool, Any]]:
    """Whether each output passes, and the output, by the provider's label and the test's description."""
    evaluation = read_evaluation(path, CliOptions(frozenset()))
    found: dict[tuple[str, str], tuple[bool, Any]] = {}
    with Programs() as programs:
        scorer = Scorer(evaluation.texts, programs, _unasked)
        for plan in evaluation.runs:
            (label,) = plan.labels.values()
            given = answers(plan, programs)
            made = [as_called(record(row["__answer"], dict(row))) for row in given.rows]
            for each, _, verdict in scorer.verdicts([(one, plan) for one in (*made, *given.failed)]):
                output = each.output
                if output is not None and each.row["__called"]["json"]:
                    output = json.loads(output)
                found[label, each.row["__description"]] = (verdict.outcome == "passed", output)
    return found


def _unasked(_: Sequence[Any]) -> Sequence[Any]:
    raise AssertionError("no model should be asked")
