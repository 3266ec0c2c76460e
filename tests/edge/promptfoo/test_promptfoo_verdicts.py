"""promptfoo and Fairlane judge the same outputs alike."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fairlane.apps.promptfoo.evaluation import CliOptions, read_evaluation
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.scoring.scorer import Scorer
from tests.support.promptfoo import path_with_node, record
from tests.support.promptfoo_cases import CASES, MEASURED
from tests.support.promptfoo_command import Promptfoo, find_promptfoo

ECHO = CliOptions(frozenset({"openai"}), {"echo": "openai:echo"})
NODE = path_with_node()

pytestmark = pytest.mark.promptfoo


@pytest.fixture
def promptfoo(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Promptfoo:
    if NODE is None:
        pytest.skip("promptfoo needs Node.js")
    monkeypatch.setenv("PATH", NODE)
    return find_promptfoo(Path(str(request.config.cache.mkdir("promptfoo"))), tmp_path / "home")


def ours(path: Path) -> list[bool]:
    """Our verdicts where a model answers with what it was asked."""
    evaluation = read_evaluation(path, ECHO)
    (run,) = evaluation.runs
    with Programs() as programs:
        records = []
        for number, row in enumerate(run.rows or evaluation.rows):
            asked = row.get("__asked") or row["said"]
            records.append((record(asked, dict(row), model="openai:echo", item=number), run))
        scorer = Scorer(evaluation.texts, programs, _unasked)
        return [verdict.outcome == "passed" for _, _, verdict in scorer.verdicts(records)]


def _unasked(_: Sequence[Any]) -> Sequence[Any]:
    raise AssertionError("no model should be asked")


def write(folder: Path, tests: list[dict[str, Any]], **parts: Any) -> Path:
    path = folder / "promptfooconfig.json"
    path.write_text(json.dumps({"prompts": ["{{said}}"], "providers": ["echo"], "tests": tests, **parts}))
    return path


PROGRAMS = {
    "prompt.js": "module.exports = ({vars}) => `js: ${vars.said}`;",
    "prompt.py": "def ask(context):\n    return 'py: ' + context['vars']['said']\n",
    "check.js": "exports.starts = (output, context) => output.startsWith(context.vars.start);",
    "check.py": "def get_assert(output, context):\n    return {'pass': 'a' in output, 'score': 0.5}\n",
    "transform.js": "module.exports = (output) => output.split(': ')[1];",
    "tests.py": "def generate_tests():\n    return [{'vars': {'said': 'a', 'start': 'js'}}]\n",
}


@pytest.mark.timeout(900)
def test_every_assertion_has_the_same_verdict(promptfoo: Promptfoo, tmp_path: Path) -> None:
    tests = [
        {"vars": {"said": output}, "assert": [assertion]} for assertion, output, _ in CASES if output.strip()
    ]
    path = write(tmp_path, tests)
    theirs = [each["success"] for each in promptfoo.evaluate(path, {"PROMPTFOO_PYTHON": sys.executable})]
    wanted = [passes for _, output, passes in CASES if output.strip()]
    assert (theirs, ours(path)) == (wanted, wanted)


@pytest.mark.timeout(900)
def test_prompts_tests_transforms_and_thresholds_have_the_same_verdicts(
    promptfoo: Promptfoo, tmp_path: Path
) -> None:
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    contains = {"type": "contains", "value": "d"}
    starts = {"type": "javascript", "value": "file://check.js:starts"}
    tests = [
        {"vars": {"said": "a", "start": "js"}, "assert": [starts]},
        {
            "vars": {"said": "b", "start": "py"},
            "assert": [starts, {"type": "python", "value": "file://check.py"}],
        },
        {
            "vars": {"said": "c", "start": "c"},
            "assert": [starts],
            "options": {"transform": "file://transform.js"},
        },
        {
            "vars": {"said": "d", "start": "x"},
            "assert": [contains, starts],
            "threshold": 0.5,
        },
        {"vars": {"said": "e", "start": "x"}, "assert": [{**starts, "weight": 0}]},
    ]
    path = write(tmp_path, tests, prompts=["file://prompt.js", "file://prompt.py:ask"])
    theirs = promptfoo.evaluate(path, {"PROMPTFOO_PYTHON": sys.executable})
    evaluation = read_evaluation(path, ECHO)
    (run,) = evaluation.runs
    rows = sorted(range(len(run.rows or ())), key=lambda at: ((run.rows or ())[at]["__prompt_number"], at))
    verdicts = ours(path)
    assert [each["success"] for each in theirs] == [verdicts[at] for at in rows]
    assert [each["response"]["output"] for each in theirs if "transform" not in str(each["testCase"])] == [
        row["__asked"] for row in ((run.rows or ())[at] for at in rows) if "__transform" not in row
    ]


@pytest.mark.timeout(900)
def test_tests_have_the_same_scores_and_metrics(promptfoo: Promptfoo, tmp_path: Path) -> None:
    tests = [{"vars": {"said": output}, **test} for test, output, _, _ in MEASURED]
    found = promptfoo.evaluate(write(tmp_path, tests), {"PROMPTFOO_PYTHON": sys.executable})
    theirs = [(each["score"], each["namedScores"]) for each in found]
    assert theirs == [(pytest.approx(score), pytest.approx(metrics)) for _, _, score, metrics in MEASURED]
