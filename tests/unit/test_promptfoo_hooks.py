"""Hooks of ``extensions``: what they see, what they may change, and how their failures are reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlane.apps.promptfoo.evaluation import CliOptions, Evaluation, read_evaluation
from fairlane.apps.promptfoo.planning.plans import PlannedRun
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.scoring.scorer import Scorer
from fairlane.apps.promptfoo.scoring.tally import Cell
from fairlane.apps.promptfoo.scoring.verdicts import Part, Verdict
from fairlane.core.errors import UnsupportedError
from fairlane.model.record import Record
from tests.support.promptfoo import KNOWN, Folder, config, record

TESTS = [{"vars": {"word": ["a", "b"]}}, {"vars": {"word": "c"}}]
HOOKS = """
import json, pathlib

def beforeAll(context, options):
    suite = context["suite"]
    return {"suite": {**suite, "tests": [*suite["tests"], {"vars": {"word": "d"}}]}}

def all_of_them(hook, context):
    if hook == "beforeEach" and context["test"]["vars"]["word"] == "b":
        return {"test": {**context["test"], "vars": {"word": "B"}}}
    if hook == "afterEach":
        return {"result": {"success": False, "namedScores": {"own": 0.5, "none": None, "metric": 3}}}
    if hook == "afterAll":
        pathlib.Path(__file__).with_name("seen.json").write_text(json.dumps(context["results"]))

def broken(hook, context):
    raise ValueError(f"no {hook}")
"""


def read(tmp_path: Path, programs: Programs, *functions: str, check: bool = False) -> Evaluation:
    (tmp_path / "hooks.py").write_text(HOOKS)
    path = tmp_path / "promptfooconfig.json"
    path.write_text(config(tests=TESTS, extensions=[f"file://hooks.py:{name}" for name in functions]))
    return read_evaluation(path, CliOptions(KNOWN, hooks=not check), programs)


@pytest.mark.parametrize("default", [True, "a text", ["a list"]])
def test_a_default_that_is_no_test_is_named_also_where_hooks_are_called(
    tmp_path: Path, default: object
) -> None:
    folder = Folder(tmp_path)
    folder.write("hooks.py", HOOKS)
    text = config(defaultTest=default, extensions=["file://hooks.py:all_of_them"])
    with Programs() as programs:
        path = folder.write("promptfooconfig.json", text)
        with pytest.raises(UnsupportedError, match="defaultTest: this is no test"):
            read_evaluation(path, CliOptions(KNOWN), programs)


def test_hooks_that_come_before_change_the_suite_and_its_tests(tmp_path: Path) -> None:
    with Programs() as programs:
        evaluation = read(tmp_path, programs, "beforeAll", "all_of_them")
        assert [row["word"] for row in evaluation.rows] == ["a", "B", "c", "d"]
        (run,) = evaluation.runs
        assert run.rows is None


def test_check_calls_none_and_says_so(tmp_path: Path) -> None:
    with Programs() as programs:
        evaluation = read(tmp_path, programs, "beforeAll", check=True)
    assert len(evaluation.rows) == 3
    assert any("not called by --check" in note for note in evaluation.notes)


def test_hooks_that_come_after_add_scores_and_see_all_results(tmp_path: Path) -> None:
    with Programs() as programs:
        evaluation = read(tmp_path, programs, "all_of_them")
        assert evaluation.results is not None
        verdict = Verdict("passed", 1.0, (), (Part("said", 1.0, 1.0, "metric", passed=True),))
        one = record("out", dict(evaluation.rows[1]))
        evaluation.results.see(Cell("p", "q"), one, verdict)
        after, added = evaluation.results.conclude(Cell("p", "q"), one, verdict)
        evaluation.results.end(evaluation.name, ["run"])
    assert (after.outcome, added) == ("passed", {"own": 0.5, "metric": 3.0})
    assert {part.metric: part.score for part in after.parts if part.metric} == {"own": 0.5, "metric": 3.0}
    (seen,) = json.loads((tmp_path / "seen.json").read_text())
    assert (seen["success"], seen["vars"], seen["namedScores"]) == (
        True,
        {"word": "B"},
        {"own": 0.5, "metric": 3},
    )


def test_after_each_sees_a_result_before_outputs_are_compared_and_after_all_sees_it_then(
    tmp_path: Path,
) -> None:
    hooks = """
def each(hook, context):
    if hook == "afterEach":
        return {"result": {"namedScores": {"was": float(context["result"]["success"])}}}
    if hook == "afterAll":
        import json, pathlib
        seen = [each["success"] for each in context["results"]]
        pathlib.Path(__file__).with_name("seen.json").write_text(json.dumps(seen))
"""
    (tmp_path / "hooks.py").write_text(hooks)
    path = tmp_path / "promptfooconfig.json"
    tests = [{"vars": {"word": "a"}, "assert": [{"type": "max-score"}]}]
    prompts = ["{{word}}", "Say {{word}}"]
    path.write_text(config(prompts=prompts, tests=tests, extensions=["file://hooks.py:each"]))
    with Programs() as programs:
        evaluation = read_evaluation(path, CliOptions(KNOWN), programs)
        found = evaluation.results
        assert found is not None
        cell, (plan,) = Cell("p", "q"), evaluation.runs

        def seen(record: Record, plan: PlannedRun, verdict: Verdict) -> None:
            found.see(cell, record, verdict)

        scorer = Scorer(evaluation.texts, programs, lambda asked: [], seen=seen)
        records = [(record("out", dict(evaluation.rows[0]), prompt=n, item=n), plan) for n in range(2)]
        ended = [found.conclude(cell, one, verdict) for one, _, verdict in scorer.verdicts(records)]
        found.end(evaluation.name, ["run"])
    assert [verdict.outcome for verdict, _ in ended] == ["passed", "failed"]
    assert [added for _, added in ended] == [{"was": 1.0}, {"was": 1.0}]
    assert json.loads((tmp_path / "seen.json").read_text()) == [True, False]


def test_a_hook_that_fails_before_anything_runs_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text(HOOKS)
    refused = Folder(tmp_path).refusals(
        config(tests=TESTS, extensions=["file://hooks.py:broken"]), connections=KNOWN
    )
    assert any("beforeAll of hooks.py:broken failed: ValueError: no beforeAll" in each for each in refused)


def test_a_hook_that_fails_afterwards_is_reported_and_loses_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Programs() as programs:
        evaluation = read(tmp_path, programs, "all_of_them")
        assert evaluation.results is not None
        (tmp_path / "hooks.py").write_text(HOOKS.replace("def all_of_them", "def other"))
        verdict = Verdict("passed", 1.0, ())
        one = record("out", dict(evaluation.rows[0]))
        evaluation.results.see(Cell("p", "q"), one, verdict)
        assert evaluation.results.conclude(Cell("p", "q"), one, verdict) == (verdict, {})
        evaluation.results.end(evaluation.name, [])
    assert evaluation.results.failed
    assert "afterAll of hooks.py:all_of_them failed" in capsys.readouterr().err
