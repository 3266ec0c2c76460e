"""``fairlane eval``, from a promptfoo configuration through workers to a table of what passed."""

from __future__ import annotations

import json

from tests.integration.test_cli import Shell, shell

__all__ = ["shell"]

CONFIG = """\
description: echoes
prompts:
  - 'Say {{word}}'
  - label: chat
    raw: '[{"role": "system", "content": "Echo."}, {"role": "user", "content": "{{word}}"}]'
providers:
  - sim:fast
  - {id: 'openai:chat:small', label: short, config: {max_tokens: 50}}
tests:
  - vars: {word: [alpha, beta]}
    assert:
      - {type: contains, value: '{{word}}', metric: echoed}
      - {type: not-equals, value: 'Say beta'}
  - vars: {word: gamma}
    threshold: 0.5
    assert:
      - {type: starts-with, value: Nothing}
      - {type: icontains, value: GAMMA, weight: 2}
evaluateOptions: {maxConcurrency: 4}
"""
MAPPED = ("--map-provider", "openai:chat:small=sim:fast")


def test_a_promptfoo_configuration_runs_and_says_what_passed(shell: Shell) -> None:
    (shell.folder / "promptfooconfig.yaml").write_text(CONFIG)
    shown = json.loads(shell("eval", *MAPPED, "-o", "eval.jsonl", "--json", code=1))
    rates = {
        (each["prompt"], each["provider"]): (each["passed"], each["failed"]) for each in shown["results"]
    }
    assert rates == {
        ("Say {{word}}", "sim:fast"): (2, 1),
        ("chat", "sim:fast"): (3, 0),
        ("Say {{word}}", "short"): (2, 1),
        ("chat", "short"): (3, 0),
    }
    assert len(shown["runs"]) == 2
    assert all(each["share"] == 1.0 for each in shown["metrics"])
    records = [json.loads(line) for line in (shell.folder / "eval.jsonl").read_text().splitlines()]
    failed = [record for record in records if record["scores"]["pass"] == 0.0]
    assert [record["output"] for record in failed] == ["Say beta"] * 2
    assert {record["scores"]["assertions"] for record in failed} == {0.5}
    assert failed[0]["score_errors"]["pass"] == 'not-equals "Say beta": not met'
    shell("eval", *MAPPED, "--fail-on-error=2%", code=1)
    shell("eval", *MAPPED, "--fail-on-error=17%")


def test_a_configuration_all_of_whose_outputs_pass_ends_well(shell: Shell) -> None:
    rubric = {"type": "llm-rubric", "value": "repeats {{word}}", "weight": 0}
    tests = [{"vars": {"word": "x"}, "assert": [{"type": "equals", "value": "x"}, rubric]}]
    parts = {"prompts": ["{{word}}"], "providers": ["sim:fast"], "tests": tests}
    (shell.folder / "well.json").write_text(json.dumps(parts))
    table = shell("eval", "well.json", "--judge-model", "sim:judge")
    assert "100%" in table


def test_a_stored_output_and_the_conversation_are_read_by_later_tests(shell: Shell) -> None:
    prompt = (
        "{% for turn in _conversation %}{{ turn.output }}, {% endfor %}{{ word }}{{ first | default('') }}"
    )
    tests = [
        {"vars": {"word": "a"}, "options": {"storeOutputAs": "first"}},
        {"vars": {"word": "b"}, "assert": [{"type": "equals", "value": "a, ba"}]},
        {"vars": {"word": "c"}, "assert": [{"type": "equals", "value": "a, a, ba, ca"}]},
    ]
    parts = {"prompts": [prompt], "providers": ["sim:fast"], "tests": tests}
    (shell.folder / "turns.json").write_text(json.dumps(parts))
    assert "100%" in shell("eval", "turns.json")


def test_python_and_graders_check_outputs_where_the_command_runs(shell: Shell) -> None:
    rubric = {"type": "model-graded-closedqa", "value": "says {{word}}", "weight": 0}
    python = {"type": "python", "value": "output == context['vars']['word'].upper()"}
    best = {"type": "select-best", "value": "is short"}
    (shell.folder / "upper.py").write_text("def get_transform(output, context):\n    return output.upper()\n")
    (shell.folder / "ask.py").write_text("def ask(context):\n    return context['vars']['word']\n")
    options = {"transform": "file://upper.py"}
    tests = [{"vars": {"word": "x"}, "options": options, "assert": [python, rubric, {**best, "weight": 0}]}]
    parts = {"prompts": ["file://ask.py:ask"], "providers": ["sim:fast"], "tests": tests}
    (shell.folder / "graded.json").write_text(json.dumps(parts))
    shown = json.loads(
        shell("eval", "graded.json", "--judge-model", "sim:fast", "-o", "graded.jsonl", "--json")
    )
    assert [(each["passed"], each["failed"]) for each in shown["results"]] == [(1, 0)]
    assert len(shown["runs"]) == 2
    (line,) = (shell.folder / "graded.jsonl").read_text().splitlines()
    assert (json.loads(line)["output"], json.loads(line)["scores"]["pass"]) == ("x", 1.0)


def test_a_program_and_echo_answer_here_and_workers_judge_their_outputs(shell: Shell) -> None:
    agent = "def call_api(prompt, options, context):\n    return {'output': prompt + '!', 'error': ERROR}\n"
    (shell.folder / "agent.py").write_text(agent.replace("ERROR", "'b' in prompt and 'no b'"))
    rubric = {"type": "llm-rubric", "value": "repeats {{word}}", "weight": 0}
    starts = {"type": "starts-with", "value": "{{word}}"}
    tests = [{"vars": {"word": ["a", "b"]}, "assert": [rubric, starts]}]
    for provider, code, counts in (("echo", 0, (2, 0)), ("file://agent.py", 1, (1, 1))):
        parts = {"prompts": ["{{word}}"], "providers": [provider], "tests": tests}
        (shell.folder / "here.json").write_text(json.dumps(parts))
        shown = json.loads(shell("eval", "here.json", "--judge-model", "sim:judge", "--json", code=code))
        (result,) = shown["results"]
        assert (result["provider"], (result["passed"], result["errors"])) == (provider, counts)
        assert len(shown["runs"]) == 1, "only the judge is called"


def test_what_is_not_supported_is_named_before_anything_runs(shell: Shell) -> None:
    before = len(shell.json("runs"))
    tests = [{"assert": [{"type": "javascript", "value": "true"}, {"type": "similar", "value": "x"}]}]
    parts = {"prompts": ["x"], "providers": ["nowhere:x"], "tests": tests}
    (shell.folder / "refused.json").write_text(json.dumps(parts))
    assert shell("eval", "refused.json", code=2) == ""
    assert len(shell.json("runs")) == before
