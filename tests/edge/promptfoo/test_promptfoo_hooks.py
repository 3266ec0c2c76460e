"""Hooks of ``extensions`` get and change what they get and change under promptfoo's own command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlane.apps.promptfoo.answering import answers, unscored
from fairlane.apps.promptfoo.evaluation import CliOptions, read_evaluation
from fairlane.apps.promptfoo.planning.plans import PlannedRun
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.scoring.scorer import Scorer
from fairlane.apps.promptfoo.scoring.tally import Cell
from fairlane.apps.promptfoo.scoring.verdicts import Verdict
from fairlane.model.record import Record
from tests.edge.promptfoo.test_promptfoo_verdicts import promptfoo
from tests.support.promptfoo_command import Promptfoo

__all__ = ["promptfoo"]

pytestmark = pytest.mark.promptfoo

SHARED = """
const fs = require('fs');
let n = 0;
module.exports = async (hookName, context) => {
  if (hookName === 'beforeAll') {
    context.suite.tests.push({ vars: { word: 'added' }, assert: [{ type: 'contains', value: 'added' }] });
    context.suite.defaultTest.assert.push({ type: 'contains', value: 'Say' });
    return context;
  } else if (hookName === 'beforeEach') {
    context.test.vars.n = ++n;
    return context;
  } else if (hookName === 'afterEach') {
    context.result.namedScores.length = context.result.response.output.length;
  } else {
    fs.writeFileSync(`${__dirname}/seen.json`, JSON.stringify({
      results: context.results.map((r) => [r.vars.word, r.success, r.namedScores]),
    }));
  }
};
"""
NAMED = """
def beforeEach(context, options):
    test = context["test"]
    if test["vars"]["word"] == "other":
        return {"test": {**test, "assert": [{"type": "contains", "value": options["hookName"]}]}}

def before_all(name, context):
    if name == "beforeAll":
        suite = context["suite"]
        said = {"raw": "Do say {{word}}", "label": suite["prompts"][0]["label"]}
        return {"suite": {**suite, "prompts": [said, {"raw": "Tell {{word}}", "label": "tell"}]}}
    if name == "afterEach":
        return {"result": {"namedScores": {"words": len(context["result"]["response"]["output"].split())}}}
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "extensions",
    [["file://shared.js:hook"], ["file://named.py:beforeEach", "file://named.py:before_all"]],
    ids=["javascript", "python"],
)
def test_hooks_have_the_same_effect(promptfoo: Promptfoo, tmp_path: Path, extensions: list[str]) -> None:
    (tmp_path / "shared.js").write_text(SHARED)
    (tmp_path / "named.py").write_text(NAMED)
    tests = [
        {"vars": {"word": ["hi", "ho"]}, "assert": [{"type": "contains", "value": "h", "metric": "h"}]},
        {"vars": {"word": "other"}, "assert": [{"type": "contains", "value": "other"}]},
    ]
    path = tmp_path / "promptfooconfig.json"
    prompts = ["Say {{word}} {{n}}", "Tell {{word}}"] if "shared" in extensions[0] else ["Say {{word}}"]
    whole = {"prompts": prompts, "providers": ["echo", {"id": "echo", "label": "second"}], "tests": tests}
    path.write_text(json.dumps({**whole, "extensions": extensions}))
    environment = {"PROMPTFOO_PYTHON": sys.executable}
    theirs = [
        (each["response"]["output"], each["success"], each["namedScores"])
        for each in promptfoo.evaluate(path, environment, "-j", "1", write=True)
    ]
    seen = tmp_path / "seen.json"
    written = json.loads(seen.read_text()) if seen.exists() else None
    seen.unlink(missing_ok=True)

    ours = _ours(path)

    assert sorted(map(_written, ours)) == sorted(map(_written, theirs))
    if written is not None:
        again = json.loads(seen.read_text())
        assert sorted(map(_written, again["results"])) == sorted(map(_written, written["results"]))


def _written(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str).replace(".0", "")


def _ours(path: Path) -> list[tuple[Any, bool, dict[str, float]]]:
    """Output, verdict and named scores of each, as `Runner` makes them."""
    found = []
    with Programs() as programs:
        evaluation = read_evaluation(path, CliOptions(frozenset()), programs)
        hooks = evaluation.results
        assert hooks is not None

        def cell_of(record: Record, plan: PlannedRun) -> Cell:
            (label,) = plan.labels.values()
            return Cell(evaluation.prompts[record.row["__prompt_number"]], label)

        def seen(record: Record, plan: PlannedRun, verdict: Verdict) -> None:
            hooks.see(cell_of(record, plan), record, verdict)

        scorer = Scorer(evaluation.texts, programs, lambda _: [], seen=seen)
        for plan in evaluation.runs:
            records = [(each, plan) for each in unscored(plan, answers(plan, programs))]
            for record, _, verdict in scorer.verdicts(records):
                verdict, _ = hooks.conclude(cell_of(record, plan), record, verdict)
                named = {part.metric: part.score for part in verdict.parts if part.metric}
                found.append((record.output, verdict.outcome == "passed", named))
        hooks.end(evaluation.name, [])
    return found
