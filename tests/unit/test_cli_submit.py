"""``fairlane submit`` makes the run that its options describe, and nothing where they are wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fairlane.evaluators.builders import exact_match, llm_judge
from fairlane.model.choices import Message
from fairlane.model.run import RunSpec, RunState
from tests.support.command_line import CommandLine

ASK = ("--prompt", "Q: {{ question }}", "--model", "sim:fast")


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"question": "q{n}", "answer": "{n}"}}\n' for n in range(3)))
    return str(path)


def spec_of(cli: CommandLine, run: str) -> RunSpec:
    cli.stage.admit()
    return cli.stage.spec(run)


def test_it_prints_the_id_alone_on_standard_output(cli: CommandLine, rows: str) -> None:
    run = cli.out("submit", rows, *ASK).strip()
    assert cli.stage.client.run(run).status().items == 3


def test_every_option_reaches_the_run(cli: CommandLine, rows: str) -> None:
    options = [
        *("--param", "max_tokens=64", "--param", 'stop=["\\n"]', "--repetitions", "2", "--name", "mine"),
        *("--evaluator", "exact_match:expected=answer", "--priority", "5", "--timeout", "30"),
        *("--max-attempts", "7", "--judge-model", "sim:judge", "--judge-template", "{{ output }}?"),
    ]
    spec = spec_of(cli, cli.out("submit", rows, *ASK, *options).strip())
    judge = llm_judge("sim:judge", "{{ output }}?", {"yes": 1, "no": 0})
    assert spec.prompts == ((Message(role="user", content="Q: {{ question }}"),),)
    assert (spec.models, spec.params) == (("sim:fast",), {"max_tokens": 64, "stop": ["\n"]})
    assert (spec.repetitions, spec.name, spec.priority, spec.timeout) == (2, "mine", 5, 30.0)
    assert spec.evaluators == (exact_match("answer"), judge)
    assert spec.retry.max_attempts == 7


def test_prompts_of_all_kinds_and_models_make_a_product(cli: CommandLine, rows: str, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("from a file: {{ question }}")
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "{{ question }}"}]
    (tmp_path / "chat.json").write_text(json.dumps(chat))
    files = ("--prompt-file", str(tmp_path / "prompt.txt"), "--messages-file", str(tmp_path / "chat.json"))
    spec = spec_of(cli, cli.out("submit", rows, *ASK, *files, "-m", "sim:slow").strip())
    assert [[message.content for message in prompt] for prompt in spec.prompts] == [
        ["Q: {{ question }}"],
        ["from a file: {{ question }}"],
        ["Be brief.", "{{ question }}"],
    ]
    assert (spec.models, spec.items) == (("sim:fast", "sim:slow"), 3 * 3 * 2)


def test_a_chat_from_a_file_is_one_prompt(cli: CommandLine, rows: str, tmp_path: Path) -> None:
    chat = tmp_path / "chat.json"
    chat.write_text('[{"role": "user", "content": "{{ question }}"}]')
    run = cli.out("submit", rows, "--messages-file", str(chat), "-m", "sim:fast").strip()
    assert spec_of(cli, run).items == 3


def test_rows_come_from_standard_input_too(cli: CommandLine) -> None:
    result = cli("submit", "-", *ASK, input='{"question": "a"}\n\n{"question": "b"}\n')
    assert cli.stage.client.run(result.stdout.strip()).status().items == 2


@pytest.mark.parametrize("content", ['{"question": "a"}\n{"question": "b"}\n', "nope\n"])
def test_rows_come_from_a_pipe_of_the_shell_too(cli: CommandLine, content: str) -> None:
    reads, writes = os.pipe()
    os.write(writes, content.encode())
    os.close(writes)
    name = f"/dev/fd/{reads}"
    result = cli("submit", name, *ASK)
    os.close(reads)
    if content == "nope\n":
        assert "dataset, row 1: line 1, column 1 is no JSON" in result.stderr
        assert name in result.stderr
    else:
        assert cli.stage.client.run(result.stdout.strip()).status().items == 2


def test_a_broken_line_on_standard_input_is_reported_by_its_number(cli: CommandLine) -> None:
    result = cli("submit", "-", *ASK, input='{"question": "a"}\n\nnope\n')
    assert (result.exit_code, result.stdout) == (2, "")
    assert "dataset, row 2: line 3, column 1 is no JSON" in result.stderr
    assert "standard input" in result.stderr
    assert cli.stage.client.runs() == []


def test_a_key_that_stands_twice_is_refused_from_standard_input_as_from_a_file(
    cli: CommandLine, tmp_path: Path
) -> None:
    line = '{"question": "a", "question": "b"}\n'
    (tmp_path / "rows.jsonl").write_text(line)
    for name in ("-", str(tmp_path / "rows.jsonl")):
        result = cli("submit", name, *ASK, input=line)
        assert result.exit_code == 2
        assert "the key 'question' stands twice" in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seed", "7"], "give --sample N, too"),
        (["--fail-on-error"], "give --wait, too"),
        (["--fail-on-error=5%", "--no-wait"], "give --wait, too"),
        (["--interactive", "--priority", "5"], "leave out --priority"),
    ],
)
def test_an_option_without_effect_is_refused(
    cli: CommandLine, rows: str, options: list[str], said: str
) -> None:
    assert said in cli.refused("submit", rows, *ASK, *options, code=2)
    assert cli.stage.client.runs() == []


def test_json_reports_the_status(cli: CommandLine, rows: str) -> None:
    document = cli.json("submit", rows, *ASK)
    assert (document["state"], document["items"], document["started_at"]) == ("submitted", 3, None)


def test_an_empty_dataset_completes_while_it_is_waited_for(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("")
    run = cli.out("submit", str(tmp_path / "rows.jsonl"), *ASK, "--no-check").strip()
    cli.stage.admit()
    assert cli.out("watch", run) == ""
    assert cli.stage.client.run(run).status().state is RunState.COMPLETED


def test_without_a_scheduler_it_says_that_nothing_starts(cli: CommandLine, rows: str) -> None:
    cli.stage.redis.delete(cli.stage.keys.leader)
    result = cli("submit", rows, *ASK)
    assert result.exit_code == 0
    assert "no scheduler leads now" in result.stderr


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--model", "sim:fast"], "--prompt TEXT"),
        (["--prompt", "x"], "--model"),
        ([*ASK, "--param", "x"], "is not name=value"),
        ([*ASK, "--evaluator", "nope"], "no evaluator 'nope'"),
        ([*ASK, "--judge-template", "x"], "--judge-model"),
        ([*ASK, "--judge-model", "sim:judge"], "--judge-template"),
        ([*ASK, "--judge-choices", "{}"], "--judge-model"),
        ([*ASK, "--timeout", "0"], "timeout"),
        ([*ASK, "--messages-file", "/nonexistent"], "cannot be read"),
        (["--prompt", "{{ question", "--model", "sim:fast"], "is no template"),
        (["--prompt", "x", "--model", "fast"], "names no connection and model"),
    ],
)
def test_a_wrong_option_is_reported_and_nothing_is_written(
    cli: CommandLine, rows: str, options: list[str], complaint: str
) -> None:
    assert complaint in cli.refused("submit", rows, *options, code=2)
    assert cli.stage.client.runs() == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        *[(b"{}", "is no JSON array"), (b"[", "is not JSON"), (b"\xff", "is not UTF-8")],
        pytest.param(b"[" * 100_000, "is not JSON", id="deep"),
    ],
)
def test_a_file_that_is_no_chat_is_reported(
    cli: CommandLine, rows: str, tmp_path: Path, content: bytes, complaint: str
) -> None:
    (tmp_path / "chat.json").write_bytes(content)
    options = ("--messages-file", str(tmp_path / "chat.json"), "-m", "sim:fast")
    assert complaint in cli.refused("submit", rows, *options, code=2)
