"""Providers that are no models: ``echo``, and programs, which answer where ``fairlane eval`` runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlane.apps.promptfoo.answering import answers, as_called
from fairlane.apps.promptfoo.evaluation import Evaluation
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.scoring.scorer import Scorer
from fairlane.apps.promptfoo.scoring.verdicts import Verdict
from fairlane.model.record import Record
from tests.support.promptfoo import Folder, config, path_with_node, record

NODE = path_with_node()
needs_node = pytest.mark.skipif(NODE is None, reason="JavaScript needs Node.js")

PYTHON = """
def call_api(prompt, options, context):
    word = context["vars"]["word"]
    if word == "raise":
        raise ValueError("as it should")
    if word == "nothing":
        return {"output": None}
    if word == "error":
        return {"error": "no such word"}
    if word == "text":
        return prompt
    usage = {"prompt": 3, "completion": 2, "total": 5}
    return {"output": {"asked": prompt, **options["config"]}, "tokenUsage": usage, "cost": 0.5}

def shout(prompt, options, context):
    return {"output": prompt.upper()}
"""
JAVASCRIPT = """
class Counter {
  constructor(options) { this.options = options; this.calls = 0; }
  id() { return this.options.id; }
  async callApi(prompt, context) {
    this.calls += 1;
    if (context.vars.word === 'raise') throw new Error('as it should');
    return { output: `${this.options.config.name} ${this.calls}: ${prompt}` };
  }
}
module.exports = Counter;
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("PATH", NODE or "")
    found = Folder(tmp_path)
    found.write("agent.py", PYTHON)
    found.write("agent.js", JAVASCRIPT)
    return found


@pytest.fixture
def programs(folder: Folder) -> Iterator[Programs]:
    with Programs() as found:
        yield found


def _unasked(_: Sequence[Any]) -> Sequence[Any]:
    raise AssertionError("no model should be asked")


def words(*said: str, **test: Any) -> list[dict[str, Any]]:
    return [{"vars": {"word": word}, **test} for word in said]


def records(evaluation: Evaluation, programs: Programs) -> list[Record]:
    """The records that its run would have: what it submits is scored as it is."""
    (plan,) = evaluation.runs
    given = answers(plan, programs)
    made = [record(row["__answer"], dict(row), model="") for row in given.rows]
    return sorted([*map(as_called, made), *given.failed], key=lambda each: each.item)


def verdicts(evaluation: Evaluation, programs: Programs) -> list[Verdict]:
    (plan,) = evaluation.runs
    scorer = Scorer(evaluation.texts, programs, _unasked)
    scored = scorer.verdicts([(each, plan) for each in records(evaluation, programs)])
    return [verdict for _, _, verdict in scored]


def test_echo_answers_with_what_it_is_asked(folder: Folder, programs: Programs) -> None:
    evaluation = folder.read(
        config(providers=["echo"], tests=words("a", "b", options={"prefix": "Please: "}))
    )
    (plan,) = evaluation.runs
    assert (plan.options["output"], "models" in plan.options) == ("__answer", False)
    found = records(evaluation, programs)
    assert [(each.output, each.model) for each in found] == [
        ("Please: Say a", "echo"),
        ("Please: Say b", "echo"),
    ]


def test_a_python_provider_gets_prompt_options_and_context(folder: Folder, programs: Programs) -> None:
    provider = {"id": "file://agent.py", "label": "mine", "config": {"mood": "good"}}
    contains = {"type": "javascript", "value": "output.mood === 'good'"}
    cost = {"type": "cost", "threshold": 0.4}
    tests = words("x", **{"assert": [{"type": "is-json"}]})
    tests += words("y", **{"assert": [cost]})
    tests += words("z", **{"assert": [contains]}) if NODE else []
    evaluation = folder.read(config(providers=[provider], tests=tests))
    assert evaluation.runs[0].labels == {"file://agent.py": "mine"}
    first, *_ = records(evaluation, programs)
    assert json.loads(first.output or "") == {"asked": "Say x", "mood": "good"}
    assert (first.usage.input_tokens, first.usage.output_tokens) == (3, 2)
    assert [each.outcome for each in verdicts(evaluation, programs)] == ["passed", "failed", "passed"][
        : len(tests)
    ]


def test_a_named_function_answers(folder: Folder, programs: Programs) -> None:
    for identity in ("file://agent.py:shout", "python:agent.py:shout"):
        (found,) = records(folder.read(config(providers=[identity])), programs)
        assert (found.output, found.model) == ("SAY HI", identity)


def test_a_call_that_fails_is_an_error_of_its_item_alone(folder: Folder, programs: Programs) -> None:
    tests = words("raise", "nothing", "error", "text", "fine")
    evaluation = folder.read(config(providers=["file://agent.py"], tests=tests))
    *failed, fine = verdicts(evaluation, programs)
    assert [(each.outcome, each.reasons[0]) for each in failed] == [
        ("error", "ValueError: as it should"),
        ("error", "agent.py returned no output"),
        ("error", "no such word"),
        ("error", "agent.py returned no object with an output or an error"),
    ]
    assert fine.outcome == "passed"


@needs_node
def test_a_class_of_javascript_is_made_once_for_its_options(folder: Folder, programs: Programs) -> None:
    both = [{"id": "file://agent.js", "label": name, "config": {"name": name}} for name in ("a", "b")]
    evaluation = folder.read(config(providers=both, tests=words("x", "raise")))
    found = [
        record for plan in evaluation.runs for record in records(replace(evaluation, runs=(plan,)), programs)
    ]
    assert [each.output or each.error for each in found] == [
        *("a 1: Say x", "as it should"),
        *("b 1: Say x", "as it should"),
    ]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"providers": ["file://missing.py"]}, "there is no file missing.py"),
        ({"providers": ["exec:agent"]}, "is a program, and only models are called"),
        (
            {"providers": ["echo"], "evaluateOptions": {"repeat": 2}},
            "repeat is not supported with echo and programs",
        ),
        ({"providers": ["echo"], "prompts": ["{{_conversation}}"]}, "this prompt is made before the run"),
        (
            {"tests": [{"assert": [{"type": "factuality", "value": "x", "provider": "file://agent.py"}]}]},
            "is a program, and only models are called",
        ),
    ],
)
def test_what_a_program_cannot_do_is_named(folder: Folder, parts: dict[str, Any], words: str) -> None:
    assert any(words in each for each in folder.refusals(config(**parts)))


def test_a_program_may_be_refused_or_mapped_to_a_model(folder: Folder) -> None:
    raw = config(providers=["file://agent.py"])
    assert any("--no-programs" in each for each in folder.refusals(raw, programs=False))
    mapped = folder.read(raw, provider_map={"file://agent.py": "openai:gpt-4o"})
    assert mapped.runs[0].options["models"] == ["openai:gpt-4o"]
    (note,) = folder.read(raw).notes
    assert note.startswith("file://agent.py is a program: it answers here, one call at a time")


def test_a_whole_number_that_a_program_returns_is_written_as_javascript_writes_it(folder: Folder) -> None:
    folder.write("price.py", "def get_var(name, prompt, variables):\n    return {'output': 20.0}\n")
    tests = [{"vars": {"word": "file://price.py"}, "assert": [{"type": "equals", "value": "{{word}}"}]}]
    (row,) = folder.read(config(tests=tests)).rows
    assert row["__assert"] == [{"type": "equals", "value": "20"}]
