"""Assertions that are checked where ``fairlane eval`` runs, and the verdicts that they make."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fairlane.apps.promptfoo.checking.forms import is_tool_call
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.reading.places import Place, Problems
from fairlane.apps.promptfoo.reading.providers import Provider
from fairlane.apps.promptfoo.scoring.derived import Derived, read_derived
from fairlane.apps.promptfoo.scoring.scorer import Scorer
from fairlane.apps.promptfoo.scoring.tally import Cell, Tally
from fairlane.apps.promptfoo.scoring.verdicts import Verdict
from fairlane.apps.promptfoo.subjects import Result, Subject, shaped
from fairlane.model.tokens import Price, Usage
from tests.support.promptfoo import Folder, asserting, config, path_with_node, record
from tests.support.promptfoo_cases import CASES, OURS

NODE = path_with_node()
needs_node = pytest.mark.skipif(NODE is None, reason="JavaScript needs Node.js")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("PATH", NODE or "")
    return Folder(tmp_path)


@pytest.fixture
def programs(folder: Folder) -> Iterator[Programs]:
    with Programs() as found:
        yield found


def unasked(_: Sequence[Any]) -> Sequence[Any]:
    raise AssertionError("no model should be asked")


def verdict(
    folder: Folder,
    programs: Programs,
    text: str,
    output: str | None,
    prices: Mapping[str, Price] | None = None,
    **fields: Any,
) -> Verdict:
    """The verdict on one output of the first row of a configuration."""
    read = folder.read(text, judge_model="openai:judge", embedding_model="openai:embedding")
    (run,) = read.runs
    row = dict((run.rows or read.rows)[0])
    scorer = Scorer(read.texts, programs, unasked, prices or {})
    ((_, _, found),) = scorer.verdicts([(record(output, row, **fields), run)])
    return found


@pytest.mark.parametrize(("assertion", "output", "passes"), [*CASES, *OURS])
def test_assertions_are_checked_here(
    folder: Folder, programs: Programs, assertion: dict[str, Any], output: str, *, passes: bool
) -> None:
    if NODE is None and ("javascript" in assertion["type"] or "transform" in assertion):
        pytest.skip("JavaScript needs Node.js")
    found = verdict(folder, programs, asserting(assertion), output)
    assert (found.outcome == "passed") is passes, found.reasons
    assert found.outcome != "error", found.reasons


def test_files_of_programs_say_whether_an_output_passes(folder: Folder, programs: Programs) -> None:
    folder.write("check.py", "def get_assert(output, context):\n    return output in context['vars']['word']")
    folder.write(
        "other.py", "def named(output, context):\n    return {'pass': False, 'score': 0, 'reason': 'no'}"
    )
    good = {"type": "python", "value": "file://check.py"}
    bad = {"type": "python", "value": "file://other.py:named"}
    assert verdict(folder, programs, asserting(good), "h").outcome == "passed"
    found = verdict(folder, programs, asserting(good, bad), "h")
    assert (found.outcome, found.score) == ("failed", 0.5)
    assert found.reasons[0].endswith(": no")


@pytest.mark.parametrize(
    ("returned", "outcome", "score"),
    [
        ("{'pass': True, 'score': float('nan'), 'named_scores': {'m': float('inf')}}", "passed", 1.0),
        ("{'pass': False, 'score': 10**400}", "failed", 0.0),
        ("10**400", "failed", 0.0),
        ("float('inf')", "failed", 0.0),
        ("{'pass': True, 'score': 10**308 * 1.0}", "passed", 1e308),
    ],
)
def test_a_program_s_score_is_a_number_that_json_has(
    folder: Folder, programs: Programs, returned: str, outcome: str, score: float
) -> None:
    folder.write("check.py", f"def get_assert(output, context):\n    return {returned}")
    found = verdict(folder, programs, asserting({"type": "python", "value": "file://check.py"}), "h")
    assert (found.outcome, found.score, found.metrics) == (outcome, score, {})


def test_cost_and_latency_are_those_of_the_record(folder: Folder, programs: Programs) -> None:
    assertions = [{"type": "cost", "threshold": 0.001}, {"type": "latency", "threshold": 100}]
    prices = {"openai:*": Price(input=1.0, output=1.0)}
    fields = {"usage": Usage(400, 500), "latency_ms": 90}
    assert verdict(folder, programs, asserting(*assertions), "x", prices, **fields).outcome == "passed"
    found = verdict(folder, programs, asserting(*assertions), "x", cached=True)
    assert found.outcome == "error"
    assert "write it under [prices]" in found.reasons[0]
    assert "the cache answered" in found.reasons[1]


@needs_node
def test_a_transform_changes_what_all_assertions_see(folder: Folder, programs: Programs) -> None:
    assertions = [{"type": "equals", "value": "ABC"}, {"type": "python", "value": "output == 'ABC'"}]
    text = asserting(*assertions, options={"transform": "output.trim().toUpperCase()"})
    assert verdict(folder, programs, text, " abc ").outcome == "passed"
    failing = asserting(*assertions, options={"transform": "output.nothing.x"})
    found = verdict(folder, programs, failing, "abc")
    assert (found.outcome, found.reasons[0].partition(":")[0]) == ("error", "the transform failed")


def test_a_set_of_assertions_is_one(folder: Folder, programs: Programs) -> None:
    inner = [{"type": "contains", "value": "a"}, {"type": "contains", "value": "b"}]
    loose = {"type": "assert-set", "assert": inner, "threshold": 0.5, "metric": "both"}
    strict = {"type": "assert-set", "assert": inner}
    assert verdict(folder, programs, asserting(loose), "a").outcome == "passed"
    found = verdict(folder, programs, asserting(strict), "a")
    assert (found.outcome, found.score, found.reasons) == (
        "failed",
        0.5,
        ('assert-set: contains "b": not met',),
    )


def test_a_scoring_function_has_the_last_word(folder: Folder, programs: Programs) -> None:
    folder.write(
        "score.py",
        "def get_score(named, context):\n"
        "    count = len(context['componentResults'])\n"
        "    return {'pass': named['m'] >= 1, 'score': 0.25, 'reason': str(count)}",
    )
    good = {"type": "contains", "value": "a", "metric": "m"}
    bad = {"type": "contains", "value": "z"}
    text = asserting(good, bad, assertScoringFunction="file://score.py")
    found = verdict(folder, programs, text, "a")
    assert (found.outcome, found.score) == ("passed", 0.25)
    assert verdict(folder, programs, text, "b").reasons == ("2",)


TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.mark.parametrize(
    ("call", "passes"),
    [
        ({"name": "weather", "arguments": {"city": "Rome"}}, True),
        ({"name": "weather", "arguments": {"city": 1}}, False),
        ({"name": "other", "arguments": {}}, False),
    ],
)
def test_calls_of_tools_are_checked_against_their_schemas(
    folder: Folder, programs: Programs, call: dict[str, Any], *, passes: bool
) -> None:
    output = json.dumps({"text": "", "tool_calls": [call]})
    for shape, kind in (
        ({"tools": [TOOL]}, "is-valid-openai-tools-call"),
        ({"functions": [TOOL["function"]]}, "is-valid-openai-function-call"),
    ):
        provider = {"id": "openai:gpt-4o", "config": shape}
        tests = [{"assert": [{"type": kind}]}]
        text = config(prompts=["x"], providers=[provider], tests=tests)
        found = verdict(folder, programs, text, output)
        assert (found.outcome == "passed") is passes, (kind, found.reasons)


@needs_node
def test_structured_answers_and_calls_are_objects_for_programs(folder: Folder, programs: Programs) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    provider = {"id": "openai:gpt-4o", "config": {"response_format": schema, "tools": [TOOL]}}
    tests = [{"assert": [{"type": "javascript", "value": "output.n === 1"}]}]
    text = config(prompts=["x"], providers=[provider], tests=tests)
    assert verdict(folder, programs, text, '{"n": 1}').outcome == "passed"
    called = [{"type": "javascript", "value": "JSON.parse(output[0].function.arguments).city === 'Rome'"}]
    text = config(prompts=["x"], providers=[provider], tests=[{"assert": called}])
    call = {"name": "weather", "arguments": {"city": "Rome"}}
    assert verdict(folder, programs, text, json.dumps({"text": "", "tool_calls": [call]})).outcome == "passed"


def test_derived_metrics_are_formulas_over_named_ones() -> None:
    formula = Derived("f1", "2 * p * r / (p + r)")
    assert formula.value({"p": 0.5, "r": 1.0}) == pytest.approx(2 / 3)
    assert formula.value({"p": 0.0, "r": 0.0}) is None
    assert formula.value({"p": 0.0}) is None
    assert Derived("x", "sqrt(4)^2 / __count").value({"__count": 2.0}) == 2.0
    assert Derived("x", "9^9^9^9").value({}) is None


@pytest.mark.parametrize(
    ("formula", "value"),  # as mathjs 15 computes them
    [
        *(("round(2.5)", 3), ("round(-2.5)", -3), ("round(0.5)", 1), ("round(2.345, 2)", 2.35)),
        *(("round(1e20)", 1e20), ("max(5)", 5), ("min(m)", 7), ("max(m, 8, 3)", 8), ("log(8, 2)", 3)),
        *(("-5 % 3", 1), ("5 % -3", -1), ("5 % 0", 5), ("5.5 % 2", 1.5), ("-2^2", -4), ("2^3^2", 512)),
    ],
)
def test_a_formula_has_the_value_that_promptfoo_computes(formula: str, value: float) -> None:
    problems = Problems()
    (metric,) = read_derived([{"name": "x", "value": formula}], Place(Path("c.yaml"), problems, Programs()))
    assert metric.value({"m": 7.0}) == pytest.approx(value)


@pytest.mark.parametrize("formula", ["ceil(m, 2)", "sqrt()", "pow(2)", "round(m, 1, 2)", "max()"])
def test_a_function_with_another_number_of_arguments_is_a_problem(formula: str) -> None:
    problems = Problems()
    found = read_derived([{"name": "x", "value": formula}], Place(Path("c.yaml"), problems, Programs()))
    assert not found
    assert any(problems)


def test_a_tally_derives_metrics_of_each_prompt_and_provider(folder: Folder, programs: Programs) -> None:
    text = asserting({"type": "contains", "value": "a", "metric": "hits"})
    tally, cell = Tally(), Cell("p", "o")
    for output in ("a", "b"):
        tally.add(cell, record(output, {}), verdict(folder, programs, text, output))
    tally.derive([Derived("rate", "hits / __count"), Derived("half", "rate / 2")])
    assert tally.metrics["rate", cell] == (0.5, 1.0)
    assert tally.metrics["half", cell] == (0.25, 1.0)


@pytest.mark.parametrize(
    ("fields", "kind", "outcome"),
    [
        ({"output": "No poem today.", "finish_reason": "refusal"}, "is-refusal", "passed"),
        ({"output": "No poem today.", "finish_reason": "refusal"}, "not-is-refusal", "failed"),
        ({"output": "No poem today.", "finish_reason": "stop"}, "is-refusal", "failed"),
        ({"error": "the provider's content filter stopped the answer"}, "is-refusal", "passed"),
        ({"error": "the provider blocked the prompt (blockReason SAFETY)"}, "is-refusal", "passed"),
        ({"error": "the provider's content filter stopped the answer"}, "not-is-refusal", "failed"),
        ({"error": "the provider's content filter stopped the answer"}, "is-json", "error"),
        ({"error": "400: refused"}, "is-refusal", "error"),
    ],
)
def test_refusals_in_words_and_by_filters_are_refusals(
    folder: Folder, programs: Programs, fields: dict[str, Any], kind: str, outcome: str
) -> None:
    given = {"output": None, **fields}
    assert verdict(folder, programs, asserting({"type": kind}), **given).outcome == outcome


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("made", [[], [1], [{}], [{"name": "f"}], 5, None])
def test_an_answer_that_only_resembles_calls_of_tools_is_a_text(made: object, legacy: bool) -> None:
    text = json.dumps({"text": "a", "tool_calls": made})
    provider = Provider("openai:gpt-4o", "openai:gpt-4o", {"tools": []}, legacy=legacy)
    assert shaped(record(text, {}), provider) == text


def test_a_tool_without_a_name_is_called_by_nobody() -> None:
    provider = Provider("openai:gpt-4o", "openai:gpt-4o", {"tools": [{"type": "function", "function": {}}]})
    made = [{"name": "f", "arguments": {}}]
    found = record(json.dumps({"text": "", "tool_calls": made}), {})
    output = shaped(found, provider)
    subject = Subject(output, output, "", {}, found, provider)
    assert is_tool_call(subject) == Result(False, 0.0, "the provider has no function 'f'")


REFUSALS = ("is-refusal", "not-is-refusal")


@pytest.mark.parametrize("output", ["", " \n"])
def test_an_empty_output_is_a_refusal_that_scores_nothing(
    folder: Folder, programs: Programs, output: str
) -> None:
    found = [verdict(folder, programs, asserting({"type": kind}), output) for kind in REFUSALS]
    assert [(each.outcome, each.score) for each in found] == [("passed", 0.0), ("failed", 0.0)]
