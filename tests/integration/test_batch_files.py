"""Files of the Batch API, from the command line through workers to a provider and back."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.integration.test_cli import Shell, shell
from tests.support.exits import exit_status
from tests.support.wait import wait_until

__all__ = ["shell"]


def write(folder: Path, name: str, models: list[str]) -> None:
    """A request for each model, numbered."""
    lines = [
        {
            "custom_id": f"r{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": model,
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": f"q{number}"},
                ],
                "max_tokens": 16,
                "seed": number,
            },
        }
        for number, model in enumerate(models)
    ]
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_line_is_answered_by_its_own_model_in_the_order_of_the_file(shell: Shell) -> None:
    models = [("slow", "fast", "fast")[number % 3] for number in range(30)]
    models[7] = "nobody"
    write(shell.folder, "models.jsonl", models)
    shell("batch", "models.jsonl", "-o", "models.out.jsonl", "--connection", "sim", "--fail-on-error=5%")
    answers = read(shell.folder / "models.out.jsonl")
    assert [line["custom_id"] for line in answers] == [f"r{n}" for n in range(30) if n != 7]
    for line in answers:
        number, body = int(line["custom_id"][1:]), line["response"]["body"]
        (choice,) = body["choices"]
        assert (line["response"]["status_code"], line["error"]) == (200, None)
        assert (body["object"], body["model"]) == ("chat.completion", models[number])
        if models[number] == "fast":
            assert (choice["message"]["content"], choice["finish_reason"]) == (f"q{number}", "stop")
        else:
            assert (len(choice["message"]["content"]) > 0, choice["finish_reason"]) == (True, "length")
        assert body["usage"]["total_tokens"] == sum(
            body["usage"][each] for each in ("prompt_tokens", "completion_tokens")
        )
        assert body["usage"]["prompt_tokens"] > 0
    (error,) = read(shell.folder / "models.out.errors.jsonl")
    assert (error["custom_id"], error["response"], error["error"]["code"]) == ("r7", None, "request_failed")
    assert "nobody" in error["error"]["message"]


def test_one_model_may_answer_all_lines_whatever_they_name(shell: Shell) -> None:
    write(shell.folder, "one.jsonl", ["gpt-4o"] * 5)
    shell("batch", "one.jsonl", "-o", "one.out.jsonl", "--model", "sim:fast")
    answers = read(shell.folder / "one.out.jsonl")
    assert [line["response"]["body"]["model"] for line in answers] == ["fast"] * 5
    assert not (shell.folder / "one.out.errors.jsonl").exists()


def test_a_batch_outlives_the_terminal_that_sent_it(shell: Shell) -> None:
    write(shell.folder, "slow.jsonl", ["slow"] * 20)
    command = [sys.executable, "-m", "fairlane.cli", "batch", "slow.jsonl", "-o", "slow.out.jsonl"]
    with (shell.folder / "shown").open("w") as shown:
        sent = subprocess.Popen(
            [*command, "--connection", "sim"], cwd=shell.folder, env=shell.environment, stderr=shown
        )
    wait_until(lambda: "20 requests" in (shell.folder / "shown").read_text())
    sent.send_signal(signal.SIGINT)
    assert exit_status(sent.wait()) == 128 + signal.SIGINT
    assert not list(shell.folder.glob("*slow.out*"))
    (run,) = re.findall(r"^run (\w+): 20 requests$", (shell.folder / "shown").read_text(), re.MULTILINE)
    shell("batch", "--run", run, "-o", "slow.out.jsonl")
    assert [line["custom_id"] for line in read(shell.folder / "slow.out.jsonl")] == [
        f"r{n}" for n in range(20)
    ]
    first = (shell.folder / "slow.out.jsonl").read_bytes()
    shell("batch", "--run", run, "-o", "slow.out.jsonl")
    assert (shell.folder / "slow.out.jsonl").read_bytes() == first


def test_a_line_that_cannot_be_sent_stops_the_file_before_anything_runs(shell: Shell) -> None:
    before = shell.json("runs")
    write(shell.folder, "bad.jsonl", ["fast"] * 3)
    text = (shell.folder / "bad.jsonl").read_text().replace('"custom_id": "r2"', '"custom_id": "r0"')
    (shell.folder / "bad.jsonl").write_text(text.replace('"POST"', '"GET"', 1))
    shell("batch", "bad.jsonl", "-o", "bad.out.jsonl", "--model", "sim:fast", code=2)
    assert not list(shell.folder.glob("*bad.out*"))
    assert shell.json("runs") == before


def test_one_file_may_ask_three_apis(shell: Shell) -> None:
    tool = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    chat = {"messages": [{"role": "user", "content": "q"}], "tools": [{"type": "function", "function": tool}]}
    bodies = {
        "/v1/chat/completions": chat,
        "/v1/embeddings": {"input": ["one", "two"], "encoding_format": "base64"},
        "/v1/responses": {"input": "q", "tools": [{"type": "function", **tool}], "max_output_tokens": 64},
    }
    lines = [
        {"custom_id": url, "method": "POST", "url": url, "body": {"model": "caller", **body}}
        for url, body in bodies.items()
    ]
    (shell.folder / "apis.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shell("batch", "apis.jsonl", "-o", "apis.out.jsonl", "--connection", "sim")
    called, embedded, responded = (line["response"]["body"] for line in read(shell.folder / "apis.out.jsonl"))
    (choice,) = called["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "add"
    assert [each["index"] for each in embedded["data"]] == [0, 1]
    assert responded["output"][-1]["name"] == "add"
