"""Records become the Batch API's output and error lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlane.apps.batchfile.writing import ERROR_CODES, BatchWriter, Written, default_errors
from fairlane.client.completions import response
from fairlane.core.errors import FairlaneError
from fairlane.evaluators.embeddings import base64_of, pack
from fairlane.export.files import check_place
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.tokens import Usage
from tests.support.documents import ROOT, coded, table

WRITER = BatchWriter("01run", 1_700_000_000)


def record(item: int = 0, **changes: Any) -> Record:
    made = Record(
        item=item,
        row={"custom_id": f"r{item}", "body": {"messages": []}},
        model="openai:ft:gpt-4o:org",
        prompt=0,
        repetition=0,
        state=JobState.SUCCEEDED,
        output="Größe: 4",
        scores={},
        score_errors={},
        usage=Usage(24, 15),
        attempts=1,
        error=None,
        finish_reason="stop",
    )
    return replace(made, **changes)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_refusal_in_the_models_words_is_openais() -> None:
    refused = record(3, output="I cannot.", finish_reason="refusal")
    (choice,) = WRITER.answer(refused)["response"]["body"]["choices"]
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": "I cannot."}
    assert choice["finish_reason"] == "stop"
    body = response(refused, {}, "n", 0)
    assert (body["status"], body["incomplete_details"]) == ("completed", None)
    assert body["output"][0]["content"] == [{"type": "refusal", "refusal": "I cannot."}]


def test_an_answer_is_a_chat_completion() -> None:
    assert WRITER.answer(record(3)) == {
        "id": "batch_req_01run-3",
        "custom_id": "r3",
        "response": {
            "status_code": 200,
            "request_id": "01run/3",
            "body": {
                "id": "chatcmpl-01run-3",
                "object": "chat.completion",
                "created": 1_700_000_000,
                "model": "ft:gpt-4o:org",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "Größe: 4", "refusal": None},
                        "logprobs": None,
                        "finish_reason": "stop",
                    }
                ],
                "usage": {"prompt_tokens": 24, "completion_tokens": 15, "total_tokens": 39},
                "system_fingerprint": None,
            },
        },
        "error": None,
    }


def body(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = WRITER.answer(record(**changes))["response"]["body"]
    return found


TOOLS = [{"type": "function", "function": {"name": "add"}}]
CALLED = '{"text": "", "tool_calls": [{"name": "add", "arguments": {"a": 2}}]}'


def choice(request: dict[str, Any], writer: BatchWriter = WRITER, **changes: Any) -> dict[str, Any]:
    row = {"custom_id": "r0", "body": {"messages": [], **request}}
    made: dict[str, Any] = writer.answer(record(row=row, **changes))["response"]["body"]["choices"][0]
    return made


@pytest.mark.parametrize("reason", ["tool_calls", "tool_use", "STOP", "completed", "stop", None])
def test_calls_of_tools_are_tool_calls(reason: str | None) -> None:
    made = choice({"tools": TOOLS}, output=CALLED, finish_reason=reason)
    assert made["finish_reason"] == "tool_calls"
    assert made["message"]["content"] is None
    call = {"id": "call_01run-0-0", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    assert made["message"]["tool_calls"] == [call]


def test_text_beside_a_call_and_arguments_that_are_no_json_are_kept() -> None:
    output = '{"text": "So:", "tool_calls": [{"name": "add", "arguments": "{a"}]}'
    message = choice({"tools": TOOLS}, output=output)["message"]
    assert (message["content"], message["tool_calls"][0]["function"]["arguments"]) == ("So:", "{a")


def test_a_custom_tool_gets_its_text() -> None:
    tools = [{"type": "custom", "custom": {"name": "shell"}}]
    output = '{"text": "", "tool_calls": [{"name": "shell", "arguments": "ls -l"}]}'
    (call,) = choice({"tools": tools}, output=output)["message"]["tool_calls"]
    assert (call["type"], call["custom"]) == ("custom", {"name": "shell", "input": "ls -l"})


def test_tools_may_be_declared_for_the_whole_run() -> None:
    made = choice({}, BatchWriter("01run", 1, {"tools": TOOLS}), output=CALLED)
    assert made["message"]["tool_calls"][0]["function"]["name"] == "add"


@pytest.mark.parametrize(
    ("request_", "output"),
    [
        ({}, CALLED),
        ({"tools": TOOLS}, '{"text": "", "tool_calls": []}'),
        ({"tools": TOOLS}, '{"text": "", "tool_calls": [1]}'),
        ({"tools": TOOLS}, '{"answer": 4}'),
        ({"tools": TOOLS}, '{"answer": 4'),
    ],
)
def test_an_answer_in_json_stays_text(request_: dict[str, Any], output: str) -> None:
    message = choice(request_, output=output)["message"]
    assert message == {"role": "assistant", "content": output, "refusal": None}


@pytest.mark.parametrize("form", [None, "float", "base64"])
def test_embeddings_come_in_the_requested_form(form: str | None) -> None:
    request = {"input": ["a", "b"], **({"encoding_format": form} if form else {})}
    row = {"custom_id": "r0", "url": "/v1/embeddings", "body": request}
    made = body(row=row, output=pack([[1.0, 0.5], [0.0, -1.0]]), usage=Usage(4, 0))
    shown = [base64_of([1.0, 0.5]), base64_of([0.0, -1.0])] if form == "base64" else [[1.0, 0.5], [0.0, -1.0]]
    assert [each["embedding"] for each in made["data"]] == shown
    assert [each["index"] for each in made["data"]] == [0, 1]
    assert made["usage"] == {"prompt_tokens": 4, "total_tokens": 4}


def test_an_output_without_embeddings_is_reported_with_its_item() -> None:
    row = {"custom_id": "r0", "url": "/v1/embeddings", "body": {"input": "a"}}
    with pytest.raises(FairlaneError, match="run 01run, item 0: the output holds no embeddings"):
        WRITER.answer(record(row=row))


@pytest.mark.parametrize(("reason", "status"), [("completed", "completed"), ("max_tokens", "incomplete")])
def test_a_response_has_its_text_and_calls_as_items(reason: str, status: str) -> None:
    tools = [{"type": "function", "name": "add", "parameters": {}}]
    request = {"input": "hi", "tools": tools, "temperature": 0}
    row = {"custom_id": "r0", "url": "/v1/responses", "body": request}
    output = '{"text": "So:", "tool_calls": [{"name": "add", "arguments": {"a": 2}}]}'
    made = body(row=row, output=output, finish_reason=reason)
    assert (made["object"], made["status"], made["temperature"]) == ("response", status, 0)
    assert made["output"][0]["content"][0]["text"] == "So:"
    assert (made["output"][1]["name"], made["output"][1]["arguments"]) == ("add", '{"a": 2}')


def test_usage_is_left_out_where_the_provider_reported_none() -> None:
    assert "usage" not in body(usage=Usage())


def test_tokens_read_from_a_cache_are_reported() -> None:
    assert body(usage=Usage(10, 5, 7))["usage"]["prompt_tokens_details"] == {"cached_tokens": 7}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("eos_token", "stop"),
        ("odd", "stop"),
        (None, "stop"),
    ],
)
def test_why_an_answer_ended_is_reported_in_the_words_of_chat_completions(
    said: str | None, shown: str | None
) -> None:
    assert body(finish_reason=said)["choices"][0]["finish_reason"] == shown


@pytest.mark.parametrize(
    ("state", "error", "code", "message"),
    [
        (JobState.FAILED, "400: no such model", "request_failed", "400: no such model"),
        (JobState.INVALID, "no connection", "invalid_request", "no connection"),
        (JobState.CANCELLED, None, "batch_cancelled", "the run was cancelled before"),
        (JobState.TIMED_OUT, None, "batch_expired", "the run's time was over before"),
        (JobState.SKIPPED, None, "request_skipped", "the run ended before"),
    ],
)
def test_a_request_without_an_answer_is_reported_with_a_code(
    state: JobState, error: str | None, code: str, message: str
) -> None:
    shown = WRITER.error(record(5, state=state, output=None, error=error))
    assert (shown["id"], shown["custom_id"], shown["response"]) == ("batch_req_01run-5", "r5", None)
    assert shown["error"]["code"] == code
    assert shown["error"]["message"].startswith(message)


def test_answers_and_errors_go_to_two_files_in_the_order_of_the_records(tmp_path: Path) -> None:
    out, bad = tmp_path / "out.jsonl", tmp_path / "bad.jsonl"
    records = [record(n, state=JobState.FAILED if n % 3 == 0 else JobState.SUCCEEDED) for n in range(7)]
    assert WRITER.write(records, out, bad, always=False) == Written(4, 3)
    assert [line["custom_id"] for line in lines(out)] == ["r1", "r2", "r4", "r5"]
    assert [line["custom_id"] for line in lines(bad)] == ["r0", "r3", "r6"]


def test_a_lone_surrogate_in_an_answer_or_an_error_is_escaped_in_its_line(tmp_path: Path) -> None:
    out, bad = tmp_path / "out.jsonl", tmp_path / "bad.jsonl"
    records = [record(0, output="half \ud83d"), record(1, state=JobState.FAILED, error="\udc00 é")]
    assert WRITER.write(records, out, bad, always=False) == Written(1, 1)
    (answer,), (error,) = lines(out), lines(bad)
    assert answer["response"]["body"]["choices"][0]["message"]["content"] == "half \ud83d"
    assert error["error"]["message"] == "\udc00 é"


def test_without_errors_there_is_no_file_of_them_nor_one_of_before(tmp_path: Path) -> None:
    out, bad = tmp_path / "out.jsonl", tmp_path / "bad.jsonl"
    bad.write_text("of before")
    WRITER.write([record()], out, bad, always=False)
    assert list(tmp_path.iterdir()) == [out]


def test_a_file_for_errors_that_was_named_is_there_even_if_empty(tmp_path: Path) -> None:
    out, bad = tmp_path / "out.jsonl", tmp_path / "bad.jsonl"
    WRITER.write([record()], out, bad, always=True)
    assert bad.read_text() == ""


@pytest.mark.parametrize("interruption", [ValueError, KeyboardInterrupt])
def test_what_is_broken_off_leaves_the_files_of_before(
    tmp_path: Path, interruption: type[BaseException]
) -> None:
    out, bad = tmp_path / "out.jsonl", tmp_path / "bad.jsonl"
    out.write_text("of before")

    def broken_off() -> Iterator[Record]:
        yield record(0)
        yield record(1, state=JobState.FAILED)
        raise interruption

    with pytest.raises(interruption):
        WRITER.write(broken_off(), out, bad, always=False)
    assert out.read_text() == "of before"
    assert list(tmp_path.iterdir()) == [out]


def test_a_run_that_was_no_batch_is_reported_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(FairlaneError, match="run 01run is no batch: its rows have no custom_id and body"):
        WRITER.write([record(row={"question": "?"})], tmp_path / "o", tmp_path / "e", always=False)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    check_place(tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="No such file") as caught:
        check_place(tmp_path / "no" / "out.jsonl")
    assert caught.value.filename == str(tmp_path / "no" / "out.jsonl")


@pytest.mark.parametrize(
    ("output", "errors"),
    [("out.jsonl", "out.errors.jsonl"), ("a/out.json", "a/out.errors.jsonl"), ("v1.2", "v1.2.errors.jsonl")],
)
def test_errors_go_beside_the_output(output: str, errors: str) -> None:
    assert default_errors(Path(output)) == Path(errors)


def test_every_code_is_described() -> None:
    rows = table(ROOT / "docs" / "batch-files.md", "code", "the request")
    assert [coded(row["code"]) for row in rows] == [[code] for code, _ in ERROR_CODES.values()]
