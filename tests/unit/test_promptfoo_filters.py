"""``--filter-…``: which tests, prompts and providers of a configuration run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlane.apps.promptfoo.reading.earlier import Which, unpassed
from fairlane.apps.promptfoo.reading.filters import Filters, metadata_of
from fairlane.core.errors import SubmissionError
from tests.support.promptfoo import Folder, config

TESTS = [
    {"description": f"{kind} {word}", "vars": {"word": word}, "metadata": {"kind": kind, "of": [kind, 1]}}
    for kind, word in (("unit", "a"), ("prod", "b"), ("unit", "c"), ("prod", "d"))
]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def words(folder: Folder, filters: Filters, **parts: Any) -> list[str]:
    evaluation = folder.read(config(**{"tests": TESTS, **parts}), filters=filters)
    return [row["word"] for row in evaluation.rows]


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        (Filters(), "abcd"),
        (Filters(pattern="^unit"), "ac"),
        (Filters(metadata=metadata_of(["kind=prod"])), "bd"),
        (Filters(metadata=metadata_of(["kind=unit", "of=1"]), first=1), "a"),
        (Filters(range="1:3"), "bc"),
        (Filters(range="2:", pattern="unit|prod"), "cd"),
        (Filters(sample=2, seed=1), "cb"),
        (Filters(failing=[{"word": "d"}, {"word": "x"}]), "d"),
    ],
)
def test_tests_are_chosen(folder: Folder, filters: Filters, left: str) -> None:
    assert words(folder, filters) == list(left)


def test_a_seedless_sample_has_its_size(folder: Folder) -> None:
    assert len(set(words(folder, Filters(sample=3)))) == 3


def test_of_a_test_with_lists_those_that_did_not_pass_run_again(folder: Folder) -> None:
    tests = [{"vars": {"word": ["a", "b", "c"]}}, {"vars": {"word": "z"}}]
    filters = Filters(failing=[{"word": "c"}, {"word": "z"}, {"word": "b"}])
    assert words(folder, filters, tests=tests) == ["z", "b", "c"]


def test_a_default_variable_is_part_of_an_earlier_result(folder: Folder) -> None:
    filters = Filters(failing=[{"word": "b", "mood": "good"}])
    assert words(folder, filters, defaultTest={"vars": {"mood": "good"}}) == ["b"]


def test_the_configuration_may_choose_and_the_command_line_wins(folder: Folder) -> None:
    own = {"evaluateOptions": {"filterRange": "1:"}}
    assert words(folder, Filters(), **own) == ["b", "c", "d"]
    assert words(folder, Filters(range=":1"), **own) == ["a"]
    wrong = config(tests=TESTS, evaluateOptions={"filterRange": "2:1"})
    assert "is no range of tests" in " ".join(folder.refusals(wrong))


def test_tests_of_scenarios_are_chosen_in_each(folder: Folder) -> None:
    scenario = {"config": [{"vars": {"n": 1}}, {"vars": {"n": 2}}], "tests": TESTS[:3]}
    assert words(folder, Filters(first=2), tests=[], scenarios=[scenario, scenario]) == list("abababab")
    assert words(folder, Filters(range="1:3"), tests=[], scenarios=[scenario]) == list("bc")
    refused = folder.refusals(
        config(tests=[], scenarios=[scenario]), filters=Filters(failing=[{"word": "a"}])
    )
    assert "choose no tests of scenarios" in refused[0]


def test_prompts_and_providers_are_chosen_by_label_and_id(folder: Folder) -> None:
    text = config(
        prompts=["Say {{word}}", {"raw": "Tell {{word}}", "label": "second"}],
        providers=["openai:gpt-4o", {"id": "openai:gpt-4o-mini", "label": "small"}, "bedrock:video:x"],
    )
    evaluation = folder.read(text, filters=Filters(prompts="second", providers="^small"))
    (run,) = evaluation.runs
    assert (run.options["prompts"], run.labels) == (["Tell {{word}}"], {"openai:gpt-4o-mini": "small"})


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        (Filters(pattern="nothing"), "tests: --filter-… leaves no test"),
        (Filters(prompts="nothing"), "no prompt matches --filter-prompts nothing"),
        (Filters(providers="nothing"), "no provider matches --filter-providers"),
    ],
)
def test_what_matches_nothing_is_refused(folder: Folder, filters: Filters, said: str) -> None:
    assert said in folder.refusals(config(tests=TESTS), filters=filters)[0]


@pytest.mark.parametrize(
    "made",
    [
        lambda: Filters(pattern="("),
        lambda: Filters(range="a:b"),
        lambda: Filters(range=":"),
        lambda: metadata_of(["kind"]),
        lambda: unpassed(Path("eval-abc"), "failing"),
        lambda: unpassed(Path("missing.jsonl"), "failing"),
    ],
)
def test_what_is_no_filter_is_named(made: Any) -> None:
    with pytest.raises(SubmissionError, match="--filter-"):
        made()


@pytest.mark.parametrize(("which", "left"), [("failing", "bc"), ("failing-only", "b"), ("errors-only", "c")])
def test_results_of_ours_and_of_promptfoo_say_what_did_not_pass(
    tmp_path: Path, which: Which, left: str
) -> None:
    passed: list[tuple[str, float | None]] = [("a", 1.0), ("b", 0.0), ("c", None), ("b", 0.0)]
    ours, theirs = tmp_path / "results.jsonl", tmp_path / "results.json"
    lines = [{"row": {"word": word, "__assert": []}, "scores": {"pass": score}} for word, score in passed]
    ours.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    results = [
        {"vars": {"word": word}, "success": score == 1.0, "failureReason": {1.0: 0, 0.0: 1, None: 2}[score]}
        for word, score in passed
    ]
    theirs.write_text(json.dumps({"results": {"results": results}}))
    for path in (ours, theirs):
        assert [each["word"] for each in unpassed(path, which)] == list(left)


def test_rows_of_earlier_records_may_hold_any_line_separator(tmp_path: Path) -> None:
    row = {"word": "a\u2028b\x85c\x0cd"}
    line = json.dumps({"row": row, "scores": {"pass": 0.0}}, ensure_ascii=False)
    path = tmp_path / "out.jsonl"
    path.write_text(f"{line}\n", encoding="utf-8")
    assert unpassed(path, "failing") == [row]


def test_a_config_of_a_scenario_that_is_no_list_is_a_problem(folder: Folder) -> None:
    scenario = {"config": {"vars": {"n": 1}}, "tests": TESTS}
    (problem,) = folder.refusals(config(tests=[], scenarios=[scenario]))
    assert problem == "promptfooconfig.yaml:1: scenarios[0].config: the config of a scenario is a list"
