"""A batch's lines are checked before any is sent, and read as rows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane.apps.batchfile.reading import (
    MOST_PROBLEMS,
    check_batch,
    read_batch,
)
from fairlane.core.errors import BatchFileError, SubmissionError

EMBEDDINGS, RESPONSES = "/v1/embeddings", "/v1/responses"

Write = Callable[..., Path]


def request(name: object = "r1", **changes: Any) -> dict[str, Any]:
    """A line that can be sent, but for ``changes``; ``...`` takes a field away."""
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
    line = {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body, **changes}
    return {field: value for field, value in line.items() if value is not ...}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(*lines: dict[str, Any] | str) -> Path:
        path = tmp_path / "in.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return path

    return write


def problems(path: Path, *, own_models: bool = False) -> list[tuple[int, str]]:
    with pytest.raises(BatchFileError) as caught:
        check_batch(path, own_models=own_models)
    return caught.value.problems


def test_requests_become_rows_of_their_id_and_body(write: Write) -> None:
    path = write(request("a"), "", request("b", extra=1))
    assert check_batch(path, own_models=True) == 2
    rows = list(read_batch(path, own_models=True))
    assert [row["custom_id"] for row in rows] == ["a", "b"]
    assert all(set(row) == {"custom_id", "body"} for row in rows)
    assert rows[0]["body"]["messages"] == [{"role": "user", "content": "hi"}]


@pytest.mark.timeout(10)
def test_a_pipe_which_cannot_be_read_twice_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    with pytest.raises(SubmissionError, match="cannot be read twice"):
        check_batch(pipe, own_models=True)


def test_requests_of_other_apis_keep_their_url(write: Write) -> None:
    path = write(
        request("a", url=EMBEDDINGS, body={"model": "e", "input": ["x", "y"]}),
        request("b", url=RESPONSES, body={"model": "m", "input": "hi"}),
    )
    assert check_batch(path, own_models=True) == 2
    assert [row["url"] for row in read_batch(path, own_models=True)] == [EMBEDDINGS, RESPONSES]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("nope", "is no JSON: "),
        ("[1]", "is no object but a list"),
        (request(...), "custom_id is missing"),
        (request(""), 'custom_id is "", not a text'),
        (request(7), "custom_id is 7, not a text"),
        (request(method=...), 'method is missing. Write "POST"'),
        (request(method="GET"), 'method is "GET". Write "POST"'),
        (
            request(url=...),
            "url is missing. Write one of /v1/chat/completions, /v1/embeddings, /v1/responses",
        ),
        (request(url="/v1/moderations", body={"input": "x"}), 'url is "/v1/moderations". Write one of'),
        (request(body=...), "body is missing. Write the chat request there"),
        (request(body="hi"), 'body is "hi". Write the chat request there'),
        (request(body={}), "body.messages is missing. Write a list"),
        (request(body={"messages": []}), "body.messages is []. Write a list"),
        (request(body={"messages": [{"role": "user"}, "x"]}), "body.messages[1] is no message"),
        (request(body={"messages": [{"role": "user"}], "n": 3}), "body.n is 3, and one choice is kept"),
        (request(url=EMBEDDINGS, body={}), "body.input is missing. Write a text or a list of texts"),
        (request(url=EMBEDDINGS, body={"input": [1, 2]}), "body.input is [1, 2]. Write a text or a list"),
        (
            request(url=EMBEDDINGS, body={"input": "x", "encoding_format": "int8"}),
            'Write "float" or "base64"',
        ),
        (request(url=RESPONSES, body={"input": []}), "body.input is []. Write a text or a list of items"),
        (request(url=RESPONSES, body={"input": ["x"]}), "body.input[0] is no item"),
        (request(url=RESPONSES, body={"input": "x", "previous_response_id": "r"}), "the whole conversation"),
        (request(url=RESPONSES, body={"input": "x", "background": True}), "body.background is true"),
        (json.dumps(request())[:-2] + ', "seed": NaN}}', "JSON has no such number"),
        (request("\ud800"), "half a surrogate pair"),
    ],
)
def test_a_line_that_cannot_be_sent_is_reported_with_its_number(
    write: Write, line: dict[str, Any] | str, shown: str
) -> None:
    ((number, what),) = problems(write(request("before"), line, request("after")))
    assert number == 2
    assert shown in what


def test_all_that_is_wrong_is_reported_at_once_in_the_order_of_lines(write: Write) -> None:
    path = write(request("a"), request("b", method="GET", url="/v1/audio"), request("a"), "nope")
    with pytest.raises(BatchFileError) as caught:
        check_batch(path, own_models=False)
    assert [number for number, _ in caught.value.problems] == [2, 2, 3, 4]
    head, *lines = str(caught.value).splitlines()
    assert head == f"{path} cannot be sent; nothing was:"
    assert lines[2] == '  line 3: custom_id "a" is on line 1, too. Give each line one of its own'


def test_no_more_problems_than_can_be_read_are_reported(write: Write) -> None:
    path = write(*[request(f"r{n}", method="GET") for n in range(MOST_PROBLEMS + 30)])
    assert len(problems(path)) == MOST_PROBLEMS
    with pytest.raises(BatchFileError, match="and more: reading stopped after 20"):
        check_batch(path, own_models=False)
    assert len(problems(write(*[request("same")] * (MOST_PROBLEMS + 30)))) == MOST_PROBLEMS


def test_ids_are_distinguished_by_their_texts_not_their_digests(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.apps.batchfile.reading._digest", len)
    assert check_batch(write(request("aa"), request("bb"), request("c")), own_models=False) == 3
    assert problems(write(request("aa"), request("bb"), request("aa")))[0][0] == 3


def test_a_line_names_its_model_only_where_it_is_asked_for(write: Write) -> None:
    path = write(request(body={"messages": [{"role": "user", "content": "hi"}]}))
    assert check_batch(path, own_models=False) == 1
    ((_, what),) = problems(path, own_models=True)
    assert "body.model is missing. Name a model there, or give one for all lines with --model" in what


def test_a_request_that_is_too_large_is_reported(write: Write) -> None:
    body = {"messages": [{"role": "user", "content": "x" * (1024 * 1024)}]}
    ((_, what),) = problems(write(request(body=body)))
    assert "at most 1,048,576 are allowed" in what


def test_what_is_no_text_ends_the_reading(write: Write, tmp_path: Path) -> None:
    path = write(request("a"))
    path.write_bytes(path.read_bytes() + b"\xff\n" + path.read_bytes())
    ((number, what),) = problems(path)
    assert (number, "is not UTF-8. Save the file as UTF-8." in what) == (2, True)


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_a_request_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(content)
    with pytest.raises(SubmissionError, match="holds no request"):
        check_batch(path, own_models=False)


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SubmissionError, match="cannot be read: No such file"):
        check_batch(tmp_path / "no.jsonl", own_models=False)


def test_a_file_that_was_changed_after_the_check_is_not_sent_on(write: Write) -> None:
    path = write(request("a"), request("b"))
    check_batch(path, own_models=False)
    rows = read_batch(write(request("a"), request("b", method="GET")), own_models=False)
    assert next(rows)["custom_id"] == "a"
    with pytest.raises(BatchFileError, match="line 2: method"):
        next(rows)
    assert path.exists()
