"""promptfoo's configurations as runs, or as everything in them that is not supported."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fairlane.apps.promptfoo.reading.csv_cases import assertion_of
from fairlane.apps.promptfoo.reading.yaml12 import parse_yaml
from fairlane.apps.promptfoo.scoring.tally import Cell, Tally, with_verdict
from fairlane.apps.promptfoo.scoring.verdicts import verdict_of
from fairlane.client.submitting.submission import build_spec
from fairlane.model.evaluators import Judge, Similarity
from tests.support.promptfoo import Folder, asserting, config, record


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


NO_OBJECT = "this is no object: write names with values, like {temperature: 0}"

REALISTIC = """\
# yaml-language-server: $schema=https://promptfoo.dev/config-schema.json
description: Customer service
prompts:
  - file://prompts.txt
  - file://chat.json
  - id: polite
    label: polite
    raw: Answer {{ question }} in {{ language | upper }}.
providers:
  - openai:gpt-4o-mini
  - id: openai:chat:gpt-4o
    label: warm
    config: {temperature: 0.7, max_tokens: 100}
  - anthropic:messages:claude-sonnet-4
assertionTemplates:
  no_apology: {type: not-icontains, value: sorry}
defaultTest:
  vars: {language: English}
  options: {provider: openai:gpt-4o}
  assert:
    - $ref: '#/assertionTemplates/no_apology'
tests:
  - description: two languages
    vars: {language: [French, German], question: yes}
    assert:
      - {type: contains, value: 'in {{language}}', weight: 2, metric: language}
      - {type: llm-rubric, value: 'is written in {{language}}'}
    threshold: 0.6
  - file://more.csv
evaluateOptions: {maxConcurrency: 3, repeat: 2, cache: true, showProgressBar: false}
"""


def test_a_realistic_configuration_becomes_runs_that_submit_takes(folder: Folder) -> None:
    folder.write("prompts.txt", "One {{question}}\n---\nTwo {{question}}\n")
    folder.write(
        "chat.json", '[{"role": "system", "content": "S"}, {"role": "user", "content": "{{question}}"}]'
    )
    folder.write(
        "more.csv",
        "question,__expected,__expected2,__threshold,__description\n"
        '"a, b",contains:A,"icontains-any:x, y",0.5,third\nhi,llm-rubric:is polite,,,\n',
    )
    read = folder.read(REALISTIC)
    assert read.prompts == ("prompts.txt #1", "prompts.txt #2", "chat.json", "polite")
    assert [dict(run.labels) for run in read.runs] == [
        {
            "openai:gpt-4o-mini": "openai:gpt-4o-mini",
            "anthropic:claude-sonnet-4": "anthropic:messages:claude-sonnet-4",
        },
        {"openai:gpt-4o": "warm"},
    ]
    french, german, third, fourth = read.rows
    assert (french["question"], french["language"], german["language"]) == ("yes", "French", "German")
    assert french["__assert"] == [
        {"type": "not-icontains", "value": "sorry"},
        {"type": "contains", "value": "in French", "weight": 2, "metric": "language"},
    ]
    assert (french["__rubric_1"], french["__threshold"]) == ("is written in French", 0.6)
    assert (third["__assert"][2]["value"], third["__threshold"], third["language"]) == (
        ["x", "y"],
        0.5,
        "English",
    )
    assert (fourth["__rubric_1"], third.get("__rubric_1")) == ("is polite", None)
    for run in read.runs:
        spec = build_spec("r", "t", 0, **run.options)
        assert (spec.bounds.max_concurrent, spec.repetitions, spec.cache.mode) == (3, 2, "read_write")
        assert [each.name for each in spec.evaluators] == ["assertions", "rubric-1"]
    assert read.runs[1].options["params"] == {"temperature": 0.7, "max_tokens": 100}
    assert read.notes == ("showProgressBar is left out",)


def test_providers_with_the_same_parameters_are_one_run_but_the_same_model_twice_is_two(
    folder: Folder,
) -> None:
    warm = {"id": "openai:gpt-4o", "label": "warm", "config": {"temperature": 1}}
    cold = {"id": "openai:gpt-4o", "label": "cold", "config": {"temperature": 0}}
    other = {"id": "openai:o1", "config": {"temperature": 1}}
    runs = folder.read(config(providers=[warm, cold, other, warm])).runs
    assert [list(run.labels.values()) for run in runs] == [["warm", "openai:o1"], ["cold"], ["warm #2"]]


def test_variables_that_are_lists_of_texts_are_multiplied_out(folder: Folder) -> None:
    tests = [{"vars": {"word": ["a", "b"], "place": ["x", "y"], "numbers": [1, 2]}}]
    rows = folder.read(config(tests=tests)).rows
    assert [(row["word"], row["place"]) for row in rows] == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    assert rows[0]["numbers"] == [1, 2]
    kept = [{**tests[0], "options": {"disableVarExpansion": True}}]
    assert [row["word"] for row in folder.read(config(tests=kept)).rows] == [["a", "b"]]


def test_variables_read_files_and_each_other(folder: Folder) -> None:
    folder.write("text.txt", " from a file \n")
    tests = [{"vars": {"name": "Ann", "word": "Hello {{name}}", "text": "file://text.txt"}}]
    (row,) = folder.read(config(tests=tests)).rows
    assert (row["word"], row["text"]) == ("Hello Ann", "from a file")


@pytest.mark.parametrize("name", ["tests.yaml", "tests.json", "tests.jsonl"])
def test_tests_are_read_from_files(folder: Folder, name: str) -> None:
    case = {"vars": {"word": "hi"}, "assert": [{"type": "equals", "value": "{{word}}"}]}
    folder.write(name, json.dumps(case if name.endswith("l") and "jsonl" in name else [case]))
    (row,) = folder.read(config(tests=f"file://{name}")).rows
    assert row["__assert"] == [{"type": "equals", "value": "hi"}]


def test_without_tests_the_default_test_is_the_only_one(folder: Folder) -> None:
    text = config(tests=[], defaultTest={"vars": {"word": "hi"}, "assert": [{"type": "is-json"}]})
    assert [row["word"] for row in folder.read(text).rows] == ["hi"]


def test_yaml_is_read_as_promptfoo_reads_it() -> None:
    found = parse_yaml("{a: yes, b: 12:30:45, c: 2024-01-02, d: 010, e: true, f: 0x10, g: 1e3, h: ~}")
    assert found == {
        **{"a": "yes", "b": "12:30:45", "c": "2024-01-02", "d": 10},
        **{"e": True, "f": 16, "g": 1000.0, "h": None},
    }
    numbers = parse_yaml("[0x1f, 0o7, +12, -010, 1., +.5, -.5e3, 1e-2, -.inf]")
    assert numbers == [31, 7, 12, -10, 1, 0.5, -500, 0.01, -math.inf]
    texts = [
        "1_000",
        "0b101",
        "-0x1f",
        "+0o7",
        "1_0.5",
        "0xFF_FF",
        "1_",
        "_1",
        "1.5_",
        "1_.5",
        "+0x1",
        "1_e5",
        ".5_5",
        "-.nan",
    ]
    assert parse_yaml(f"[{', '.join(texts)}]") == texts


def test_a_key_that_stands_twice_is_refused_as_promptfoo_refuses_it(folder: Folder) -> None:
    for name, text in [
        ("tests.yaml", "- vars: {word: a}\n  assert: [{type: is-json}]\n  assert: []\n"),
        ("tests.json", '[{"vars": {"word": "a"}, "assert": [{"type": "is-json"}], "assert": []}]'),
        ("tests.jsonl", '{"vars": {"word": "a"}, "assert": [{"type": "is-json"}], "assert": []}'),
    ]:
        folder.write(name, text)
        shown = folder.refusals(config(tests=f"file://{name}"))
        assert "the key 'assert' stands twice" in " ".join(shown)


@pytest.mark.parametrize("name", ["tests.yaml", "tests.json", "tests.jsonl"])
def test_a_whole_number_is_written_as_javascript_writes_it(folder: Folder, name: str) -> None:
    asserted = '[{"type": "contains", "value": "{{word}}"}]'
    case = f'{{"vars": {{"word": 20.0, "list": [[1.0e+3, 0.5]]}}, "assert": {asserted}}}'
    folder.write(name, case if name == "tests.jsonl" else f"[{case}]")
    (row,) = folder.read(config(tests=f"file://{name}")).rows
    assert json.dumps([row["word"], row["list"]]) == "[20, [[1000, 0.5]]]"
    assert row["__assert"] == [{"type": "contains", "value": "20"}]


def test_a_merged_key_may_be_stated_anew_also_where_it_is_merged_again() -> None:
    found = parse_yaml("b: &b {x: 1}\na: {i: &m {<<: *b, x: 2}}\nt: {<<: *m, x: 3}")
    assert found == {"b": {"x": 1}, "a": {"i": {"x": 2}}, "t": {"x": 3}}


@pytest.mark.parametrize(
    ("identity", "model"),
    [
        ("openai:gpt-4o", "openai:gpt-4o"),
        ("openai:chat:gpt-4o", "openai:gpt-4o"),
        ("anthropic:messages:claude-sonnet-4", "anthropic:claude-sonnet-4"),
        ("openai:ft:gpt-4o:acme", "openai:ft:gpt-4o:acme"),
    ],
)
def test_a_provider_is_a_connection_and_a_model(folder: Folder, identity: str, model: str) -> None:
    assert folder.read(config(providers=[identity])).runs[0].options["models"] == [model]


def test_a_provider_of_another_name_is_mapped(folder: Folder) -> None:
    described = {"id": "azure:chat:dep", "config": {"apiHost": "x.azure.com", "temperature": 0}}
    read = folder.read(config(providers=[described]), provider_map={"azure:chat:dep": "openai:gpt-4o"})
    assert read.runs[0].options["models"] == ["openai:gpt-4o"]
    assert read.runs[0].options["params"] == {"temperature": 0}


def test_order_options_of_tests_become_orders_of_the_run(folder: Folder) -> None:
    tests = [
        {"vars": {"word": "a"}, "options": {"runSerially": True, "storeOutputAs": "first"}},
        {"vars": {"word": "b"}, "metadata": {"conversationId": "c1"}},
    ]
    prompt = "{{ first | default('') }}{% for turn in _conversation %}{{ turn.output }}{% endfor %}{{ word }}"
    read = folder.read(config(tests=tests, prompts=[prompt]))
    spec = build_spec("r", "t", 0, **read.runs[0].options)
    order = spec.order
    assert (order.serial, order.serial_field, order.conversation) == (True, "__serial", True)
    assert (order.store_output_as, order.conversation_field) == ("{{ __store_as }}", "__conversation_id")
    assert [(row.get("__serial"), row["__store_as"], row.get("__conversation_id")) for row in read.rows] == [
        (True, "first", ""),
        (None, "", "c1"),
    ]


@pytest.mark.parametrize(
    ("ids", "keys"),
    [([7, "7", 7.0], ["7"] * 3), ([True, "true"], ["true"] * 2), ([{"b": 1, "a": 2}], ['{"a": 2, "b": 1}'])],
)
def test_conversations_differ_by_their_ids_as_texts(folder: Folder, ids: list[Any], keys: list[str]) -> None:
    tests = [{"vars": {"word": "a"}, "metadata": {"conversationId": each}} for each in ids]
    prompt = "{% for turn in _conversation %}{{ turn.output }}{% endfor %}{{ word }}"
    rows = folder.read(config(tests=tests, prompts=[prompt])).rows
    assert [row["__conversation_id"] for row in rows] == keys


def test_a_stored_output_is_there_for_later_tests_and_serial_ones_go_first(folder: Folder) -> None:
    first = {"vars": {"word": "a"}, "options": {"runSerially": True, "storeOutputAs": "reply"}}
    prompts = ["{% if word == 'b' %}{{ reply }}{% endif %}"]
    assert len(folder.read(config(tests=[{"vars": {"word": "b"}}, first], prompts=prompts)).rows) == 2
    (problem,) = folder.refusals(config(tests=[first], prompts=["{{ reply }}"]))
    assert "no variable 'reply' is set here" in problem


@pytest.mark.parametrize("reads", ["{{ reply }}", "{{ reply | default('', true) }}", ["a", "{{ reply }}"]])
def test_only_prompts_read_a_stored_output(folder: Folder, reads: Any) -> None:
    first = {"vars": {"word": "a"}, "options": {"storeOutputAs": "reply"}}
    for second in (
        {"vars": {"word": reads, "reply": "own"}},
        {"vars": {"word": "b", "reply": "own"}, "assert": [{"type": "contains-any", "value": reads}]},
    ):
        (problem,) = folder.refusals(config(tests=[first, second], prompts=["{{ word }}"]))
        assert "reads 'reply', which a test stores: only prompts read it" in problem


def test_a_delay_is_a_gap_between_calls_that_go_one_at_a_time(folder: Folder) -> None:
    options = folder.read(config(evaluateOptions={"delay": 1500, "maxConcurrency": 8})).runs[0].options
    assert (options["delay"], options["max_concurrent"]) == (1.5, 1)


def test_a_rubric_is_judged_by_its_own_provider_the_tests_or_that_of_the_command_line(folder: Folder) -> None:
    rubric = {"type": "llm-rubric", "value": "is {{word}}"}
    own = {**rubric, "provider": {"id": "openai:o1", "config": {"max_tokens": 9}}}
    read = folder.read(
        asserting(rubric, rubric, own, {**rubric, "type": "not-llm-rubric"}), judge_model="anthropic:claude"
    )
    judges = [each for each in read.runs[0].options["evaluators"] if isinstance(each, Judge)]
    assert [(each.name, each.model) for each in judges] == [
        *[("rubric-1", "anthropic:claude"), ("rubric-2", "anthropic:claude")],
        *[("rubric-3", "openai:o1"), ("rubric-4", "anthropic:claude")],
    ]
    assert [each.params for each in judges] == [{}, {}, {"max_tokens": 9}, {}]
    assert [each.reasons for each in judges] == [True, True, None, True]
    assert judges[3].choices == {"pass": 0.0, "fail": 1.0}
    assert judges[0].when == "__rubric_1"
    assert "{{ __rubric_1 }}" in judges[0].template


def test_what_is_to_be_similar_is_compared_by_the_model_that_it_or_the_test_names(folder: Folder) -> None:
    alike = {"type": "similar", "value": "is {{word}}"}
    own = {**alike, "provider": "openai:embedding:small", "threshold": 0.9}
    unlike = {"type": "not-similar", "value": "no", "provider": {"id": "openai:embeddings:large"}}
    options = {"options": {"provider": {"embedding": "openai:embedding:large"}}}
    evaluation = folder.read(asserting(alike, own, unlike, **options))
    (run,) = evaluation.runs
    made = [each for each in run.options["evaluators"] if isinstance(each, Similarity)]
    assert [(each.name, each.model, each.threshold) for each in made] == [
        ("similar-1", "openai:large", 0.75),
        ("similar-2", "openai:small", 0.9),
        ("similar-3", "openai:large", 0.75),
    ]
    assert [each.expected for each in made] == [each.when for each in made]
    (row,) = evaluation.rows
    assert row["__similar_1"] == "is hi"
    assert [each["type"] for each in row["__rubrics"]] == ["similar", "similar", "not-similar"]


def test_a_threshold_that_no_cosine_has_is_refused(folder: Folder) -> None:
    shown = folder.refusals(
        asserting({"type": "similar", "value": "x", "provider": "openai:embedding:m", "threshold": 2})
    )
    assert any("a number from -1 to 1" in each for each in shown)


def test_what_should_not_be_similar_is_met_where_it_is_not() -> None:
    rubric = {"evaluator": "similar-1", "weight": 1, "type": "not-similar"}
    row = {"__rubrics": [rubric], "__similar_1": "cats"}
    assert verdict_of(record("x", row, scores={"similar-1": 0.0})).outcome == "passed"
    refused = verdict_of(record("x", row, scores={"similar-1": 1.0}))
    assert (refused.outcome, refused.reasons) == ("failed", ('not-similar "cats": not met',))


def test_all_that_is_not_supported_is_named_at_once_with_its_place(folder: Folder) -> None:
    text = """\
prompts: ['{{ messages | striptags }}', 'hi {{nobody}}', prompt.py]
providers: [openai:gpt-4o, 'golang:p.go', azure:chat:dep, openai:completion:davinci]
scenarios: {}
tests:
  - vars: {a: 1}
    assert:
      - type: ruby
        value: output.length > 3
      - {type: similar, value: x}
      - {type: llm-rubric, value: good}
      - {type: regex, value: '('}
      - {type: is-json, value: {type: object, oneOf: []}}
      - {type: latency}
    options: {transform: 'file://clean.rb'}
  - file://generate.py
"""
    shown = folder.refusals(text)
    for place, words in [
        ("promptfooconfig.yaml:3: scenarios", "scenarios are a list"),
        ("promptfooconfig.yaml:1: prompts[0]", "there is no filter 'striptags': leave it out"),
        ("promptfooconfig.yaml:1: prompts[1]", "no variable 'nobody' is set here"),
        ("promptfooconfig.yaml:1: prompts[2]", "there is no file prompt.py"),
        ("promptfooconfig.yaml:2: providers[1]", "--map-provider golang:p.go=<connection>:<model>"),
        ("promptfooconfig.yaml:2: providers[2]", "no connection 'azure' is configured"),
        ("promptfooconfig.yaml:2: providers[3]", "is no chat model"),
        ("promptfooconfig.yaml:7: tests[0].assert[0]", "the assertion ruby is not supported"),
        (
            "promptfooconfig.yaml:9: tests[0].assert[1]",
            "this needs a model that makes embeddings: name it as its provider",
        ),
        ("promptfooconfig.yaml:10: tests[0].assert[2]", "--judge-model"),
        ("promptfooconfig.yaml:11: tests[0].assert[3].value", "no regular expression"),
        ("promptfooconfig.yaml:12: tests[0].assert[4].value", "oneOf"),
        ("promptfooconfig.yaml:13: tests[0].assert[5]", "latency: it needs a threshold"),
        ("promptfooconfig.yaml:14: tests[0].options.transform", "a transform is an expression in JavaScript"),
        ("promptfooconfig.yaml:15: tests[1]", "there is no file generate.py"),
    ]:
        assert any(each.startswith(f"{place}: ") and words in each for each in shown), (place, shown)
    assert len(shown) == 15


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"prompts": None}, "there is no prompt"),
        ({"prompts": []}, "there is no prompt"),
        ({"prompts": {"p.txt": "x"}}, "there is no file p.txt"),
        ({"prompts": ["file://missing.txt"]}, "there is no file missing.txt"),
        ({"prompts": ["file://prompts/*.txt"]}, "no file matches prompts/*.txt"),
        ({"prompts": ['[{"role": "user", "content": "{% for x in y %}"}]']}, "Unexpected end of template"),
        ({"prompts": ["langfuse://greeting:production"]}, "kept by langfuse are not fetched"),
        ({"prompts": ["portkey://pp-greeting"]}, "kept by portkey are not fetched"),
        ({"prompts": ["helicone://greeting:1.0"]}, "kept by helicone are not fetched"),
        ({"prompts": ["https://example.com/prompt.txt"]}, "https:// is not read"),
        ({"prompts": ["missing.txt"]}, "there is no file missing.txt"),
        ({"prompts": ["my prompts.txt"]}, "there is no file my prompts.txt"),
        ({"prompts": ["prompts/greeting"]}, "there is no file prompts/greeting"),
        ({"prompts": ["prompts/*"]}, "no file matches prompts/*"),
        ({"prompts": ['[{"role": "user", "content": {{word}} }]']}, "chat that its template makes"),
        ({"providers": [{"id": "openai:x", "config": {"tempreture": 1}}]}, "did you mean"),
        ({"providers": [{"id": "openai:x", "transform": 1}]}, "a transform is a text"),
        ({"providers": [{"id": "openai:x", "config": ["temperature"]}]}, f"providers[0].config: {NO_OBJECT}"),
        ({"providers": [{"id": "openai:x", "config": "low"}]}, f"providers[0].config: {NO_OBJECT}"),
        ({"providers": [{"openai:x": "low"}]}, f"providers[0].openai:x: {NO_OBJECT}"),
        ({"prompts": [{"raw": "{{ word }}", "config": "low"}]}, f"prompts[0].config: {NO_OBJECT}"),
        ({"providers": []}, "there is no provider"),
        ({"tests": "https://example.com/tests.csv"}, "save them as a file"),
        ({"tests": "https://docs.google.com/spreadsheets/x"}, "names no spreadsheet"),
        ({"tests": "huggingface://models/x"}, "names no data set"),
        ({"tests": [{"vars": {"word": "{{missing}}"}}]}, "no variable 'missing'"),
        ({"tests": [{"vars": {"word": "x", "__assert": 1}}]}, "rename it"),
        ({"tests": [{"vars": {"word": "x"}, "provider": "openai:x"}]}, "provider of a test"),
        ({"evaluateOptions": {"maxConcurrency": 0}}, "1 at least"),
        ({"defaultTest": {"$ref": "#/nothing"}}, "there is no #/nothing"),
        ({"env": ["A"]}, "this is no object"),
        ({"test": []}, "a configuration has no test: did you mean 'tests'?"),
        ({"tests": [{"vars": {"word": "x"}, "asserts": []}]}, "did you mean 'assert'?"),
        ({"tests": [{"vars": {"word": "x"}, "options": {"tranform": "x"}}]}, "did you mean 'transform'?"),
        ({"tests": [{"vars": {"word": "x"}, "assert": [{"type": "is-json", "wieght": 1}]}]}, "'weight'?"),
        ({"providers": [{"id": "openai:x", "confg": {}}]}, "did you mean 'config'?"),
        ({"extensions": ["file://hooks.js:hook"]}, "there is no file hooks.js"),
        ({"extensions": ["console.log(1)"]}, "is no file of JavaScript or Python"),
        ({"extensions": "file://hooks.js"}, "extensions are a list"),
        ({"derivedMetrics": [{"name": "f1", "value": "__import__('os')"}]}, "a formula has metrics"),
    ],
)
def test_what_cannot_be_done_is_named(folder: Folder, parts: dict[str, Any], words: str) -> None:
    shown = folder.refusals(config(**parts))
    assert any(words in each for each in shown), shown


def test_what_promptfoo_does_not_know_either_is_left_out_and_noted(folder: Folder) -> None:
    read = folder.read(config(outputs=[], tests=[{"vars": {"word": "x"}, "author": "me"}]))
    assert [note.partition(": ")[2] for note in read.notes] == [
        "outputs: outputs of a configuration means nothing, and is left out",
        "tests[0].author: author of a test means nothing, and is left out",
    ]


def test_the_same_problem_in_many_tests_is_reported_once(folder: Folder) -> None:
    tests = [{"vars": {"other": n}} for n in range(50)]
    assert folder.refusals(config(tests=tests)) == [
        "promptfooconfig.yaml:1: prompts[0]: no variable 'word' is set here "
        "({{ word | default('', true) }} allows that) (50 times)"
    ]


def test_a_csv_cell_says_what_is_asserted() -> None:
    assert assertion_of("Paris: the city") == {"type": "equals", "value": "Paris: the city"}
    assert assertion_of("not-contains:x") == {"type": "not-contains", "value": "x"}
    assert assertion_of("is-json") == {"type": "is-json"}
    assert assertion_of("contains-all: a, b") == {"type": "contains-all", "value": ["a", "b"]}
    assert assertion_of("similar(0.9):x") == {"type": "similar", "value": "x", "threshold": 0.9}
    assert assertion_of("grade:is good") == {"type": "llm-rubric", "value": "is good"}
    assert assertion_of("fn:output == 1") == {"type": "javascript", "value": "output == 1"}


ROW = {
    "__assert": [
        {"type": "contains", "value": "a", "metric": "m"},
        {"type": "contains", "value": "b", "weight": 0},
    ],
    "__rubrics": [{"evaluator": "rubric-1", "weight": 3}],
    "__rubric_1": "is good",
}


def test_an_output_passes_if_every_assertion_that_counts_is_met() -> None:
    good = verdict_of(record("a", ROW, scores={"rubric-1": 1.0}))
    assert (good.outcome, good.score, good.reasons) == ("passed", 1.0, ())
    bad = verdict_of(record("x", ROW, scores={"rubric-1": 1.0}))
    assert (bad.outcome, bad.score, bad.reasons) == ("failed", 0.75, ('contains "a": not met',))


def test_a_threshold_decides_in_place_of_the_assertions() -> None:
    scores = {"rubric-1": 1.0}
    assert verdict_of(record("x", {**ROW, "__threshold": 0.75}, scores=scores)).outcome == "passed"
    low = verdict_of(record("x", {**ROW, "__threshold": 0.8}, scores=scores))
    assert (low.outcome, low.reasons) == ("failed", ("score 0.75 is below the threshold of 0.8",))


def test_a_call_that_failed_and_a_rubric_nobody_judged_are_errors() -> None:
    assert verdict_of(record(None, ROW, error="refused")).reasons == ("refused",)
    unjudged = verdict_of(record("a", ROW, scores={"rubric-1": None}, score_errors={"rubric-1": "maybe"}))
    assert (unjudged.outcome, unjudged.reasons) == ("error", ('llm-rubric "is good": maybe',))


def test_a_tally_counts_by_prompt_and_provider_and_records_carry_their_verdict() -> None:
    tally, cell = Tally(), Cell("p", "warm")
    for output in ("a", "x", None):
        found = record(output, ROW, scores={"rubric-1": 1.0})
        tally.add(cell, found, verdict_of(found))
    standing = tally.standings[cell]
    assert dict(standing.outcomes) == {"passed": 1, "failed": 1, "error": 1}
    assert (standing.pass_rate, tally.total, tally.unpassed) == (pytest.approx(1 / 3), 3, 2)
    assert tally.metrics["m", cell] == (1.0, 2.0)
    shown = with_verdict(record("x", ROW), cell, verdict_of(record("x", ROW, scores={"rubric-1": 1.0})))
    assert (shown.scores["pass"], shown.scores["score"], shown.row["__provider"]) == (0.0, 0.75, "warm")
    assert shown.score_errors["pass"] == 'contains "a": not met'
