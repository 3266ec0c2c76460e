"""Records become the Batch API's output and error lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlane.apps.batchfile.writing import ERROR_CODES, BatchWriter, Written, check_place, default_errors
from fairlane.core.errors import FairlaneError
from fairlane.model.job import JobState, Usage
from fairlane.model.results import Record
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


def test_usage_is_left_out_where_the_provider_reported_none() -> None:
    assert "usage" not in body(usage=Usage())


def test_tokens_read_from_a_cache_are_reported() -> None:
    assert body(usage=Usage(10, 5, 7))["usage"]["prompt_tokens_details"] == {"cached_tokens": 7}


@pytest.mark.parametrize(
    ("said", "shown"),
    [("end_turn", "stop"), ("max_tokens", "length"), ("length", "length"), ("odd", "odd"), (None, None)],
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
