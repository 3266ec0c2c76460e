"""The simulated provider reads and writes each protocol as its vendor documents it."""

import json
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from fairlane.lab.simulator.limits.admission import Axis, Level
from fairlane.lab.simulator.protocols.anthropic_messages import AnthropicMessages
from fairlane.lab.simulator.protocols.openai.chat import OpenAIChat
from fairlane.lab.simulator.wire.dialect import (
    Call,
    Dialect,
    Exceeded,
    Problem,
    Reply,
    RequestError,
    RetryAfterForm,
    Stamp,
)
from fairlane.lab.simulator.wire.headers import duration, retry_after_headers

NOW_MS = 1_700_000_000_250
STAMP = Stamp(7, 1_700_000_000)
CALL = Call("fast", "Q" * 40, "Q" * 40, None, stream=True, include_usage=True)
REPLY = Reply("four words are enough", 6, truncated=False)
MESSAGES = [{"role": "user", "content": "Why?"}]


def events(stream: bytes) -> list[dict[str, Any]]:
    data = [line.removeprefix("data: ") for line in stream.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(item) for item in data if item != "[DONE]"]


def test_openai_reads_all_text_the_last_question_and_the_options() -> None:
    call = OpenAIChat().parse(
        {
            "model": "fast",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Why?"}]},
                {"role": "assistant", "content": "Because"},
            ],
            "max_tokens": 64,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )
    assert call == Call("fast", "Be brief.\nWhy?\nBecause", "Why?", 64, stream=True, include_usage=True)
    assert call.prompt_tokens == 6


def test_openai_prefers_max_completion_tokens() -> None:
    payload = {"model": "m", "messages": MESSAGES, "max_tokens": 9, "max_completion_tokens": 5}
    assert OpenAIChat().parse(payload).max_tokens == 5


@pytest.mark.parametrize("system", ["Be brief.", [{"type": "text", "text": "Be brief."}]])
def test_anthropic_counts_the_system_prompt(system: Any) -> None:
    call = AnthropicMessages().parse({"model": "m", "messages": MESSAGES, "max_tokens": 9, "system": system})
    assert call == Call("m", "Be brief.\nWhy?", "Why?", 9, stream=False, include_usage=True)


@pytest.mark.parametrize("dialect", [OpenAIChat(), AnthropicMessages()], ids=["openai", "anthropic"])
@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ([], "body"),
        ({"messages": MESSAGES}, "model"),
        ({"model": 3, "messages": MESSAGES}, "model"),
        ({"model": "m"}, "messages"),
        ({"model": "m", "messages": []}, "messages"),
        ({"model": "m", "messages": ["Why?"]}, r"messages\[0\]"),
        ({"model": "m", "messages": [{"role": "user", "content": 3}]}, r"messages\[0\]\.content"),
        ({"model": "m", "messages": MESSAGES, "max_tokens": 0}, "max_tokens"),
        ({"model": "m", "messages": MESSAGES, "max_tokens": True}, "max_tokens"),
        ({"model": "m", "messages": MESSAGES, "max_tokens": 9, "stream": "yes"}, "stream"),
    ],
)
def test_an_invalid_request_is_rejected_with_its_field(dialect: Dialect, payload: Any, field: str) -> None:
    with pytest.raises(RequestError, match=field):
        dialect.parse(payload)


def test_anthropic_demands_max_tokens() -> None:
    with pytest.raises(RequestError, match="max_tokens"):
        AnthropicMessages().parse({"model": "m", "messages": MESSAGES})


def test_openai_rejects_stream_options_that_are_no_object() -> None:
    with pytest.raises(RequestError, match="stream_options"):
        OpenAIChat().parse({"model": "m", "messages": MESSAGES, "stream_options": [1]})


@pytest.mark.parametrize(
    ("headers", "key"),
    [({"Authorization": "Bearer k-1"}, "k-1"), ({"Authorization": "Basic k-1"}, None), ({}, None)],
)
def test_openai_accepts_a_bearer_key(headers: dict[str, str], key: str | None) -> None:
    assert OpenAIChat().presented_key(headers) == key


@pytest.mark.parametrize(
    ("headers", "key"),
    [({"x-api-key": "k-1"}, "k-1"), ({"Authorization": "Bearer k-1"}, "k-1"), ({}, None)],
)
def test_anthropic_accepts_a_key_in_either_header(headers: dict[str, str], key: str | None) -> None:
    assert AnthropicMessages().presented_key(headers) == key


def test_an_openai_answer_carries_text_finish_and_usage() -> None:
    answer = json.loads(OpenAIChat().completion(CALL, REPLY, STAMP))
    assert (answer["object"], answer["model"], answer["created"]) == (
        "chat.completion",
        "fast",
        STAMP.created,
    )
    assert answer["choices"][0]["message"]["content"] == REPLY.text
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"] == {"prompt_tokens": 10, "completion_tokens": 6, "total_tokens": 16}


def test_an_anthropic_answer_carries_text_stop_reason_and_usage() -> None:
    answer = json.loads(AnthropicMessages().completion(CALL, REPLY, STAMP))
    assert (answer["type"], answer["role"], answer["stop_reason"]) == ("message", "assistant", "end_turn")
    assert answer["content"] == [{"type": "text", "text": REPLY.text}]
    assert answer["usage"] == {"input_tokens": 10, "output_tokens": 6}


def test_an_answer_that_max_tokens_truncates_reports_it() -> None:
    cut = Reply("four", 1, truncated=True)
    assert json.loads(OpenAIChat().completion(CALL, cut, STAMP))["choices"][0]["finish_reason"] == "length"
    assert json.loads(AnthropicMessages().completion(CALL, cut, STAMP))["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("pieces", [["four ", "words ", "are enough"], ["four words are enough"]])
def test_an_openai_stream_has_the_text_of_the_whole_answer(pieces: list[str]) -> None:
    frames = OpenAIChat().frames(CALL, REPLY, pieces, STAMP)
    assert len(frames) == len(pieces)
    assert frames[-1].endswith(b"data: [DONE]\n\n")
    *chunks, usage = events(b"".join(frames))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content", "") for delta in deltas) == REPLY.text
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 16)


def test_an_openai_stream_reports_usage_only_on_request() -> None:
    call = Call("fast", "Q", "Q", None, stream=True, include_usage=False)
    chunks = events(b"".join(OpenAIChat().frames(call, REPLY, ["four"], STAMP)))
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


@pytest.mark.parametrize("pieces", [["four ", "words ", "are enough"], ["four words are enough"]])
def test_an_anthropic_stream_is_a_sequence_of_named_events(pieces: list[str]) -> None:
    frames = AnthropicMessages().frames(CALL, REPLY, pieces, STAMP)
    sent = events(b"".join(frames))
    assert len(frames) == len(pieces)
    assert [event["type"] for event in sent] == [
        "message_start",
        "content_block_start",
        "ping",
        *["content_block_delta"] * len(pieces),
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    names = [line for line in b"".join(frames).decode().split("\n") if line.startswith("event: ")]
    assert names == [f"event: {event['type']}" for event in sent]
    text = "".join(event["delta"]["text"] for event in sent if event["type"] == "content_block_delta")
    assert text == REPLY.text
    assert sent[0]["message"]["usage"]["input_tokens"] == 10
    assert sent[-2] == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 6},
    }


@pytest.mark.parametrize(
    ("problem", "openai", "anthropic"),
    [
        (Problem(400, "m"), ("invalid_request_error", None), "invalid_request_error"),
        (Problem(401, "m"), ("invalid_request_error", "invalid_api_key"), "authentication_error"),
        (Problem(402, "m"), ("insufficient_quota", "credit_balance_exhausted"), "billing_error"),
        (Problem(404, "m"), ("invalid_request_error", "model_not_found"), "not_found_error"),
        (Problem(429, "m", "requests"), ("requests", "rate_limit_exceeded"), "rate_limit_error"),
        (Problem(429, "m", "tokens"), ("tokens", "rate_limit_exceeded"), "rate_limit_error"),
        (Problem(429, "m", "quota"), ("insufficient_quota", "insufficient_quota"), "rate_limit_error"),
        (Problem(500, "m"), ("server_error", None), "api_error"),
        (Problem(503, "m"), ("server_error", "server_is_overloaded"), "api_error"),
        (Problem(529, "m"), ("overloaded_error", "overloaded"), "overloaded_error"),
        (Problem(418, "m"), ("server_error", None), "api_error"),
    ],
)
def test_a_problem_is_reported_in_the_vendors_form(
    problem: Problem, openai: tuple[str, str | None], anthropic: str
) -> None:
    sent = json.loads(OpenAIChat().error(problem))["error"]
    assert (sent["type"], sent["code"], sent["message"]) == (*openai, "m")
    body = json.loads(AnthropicMessages().error(problem))
    assert (body["type"], body["error"]["type"], body["error"]["message"]) == ("error", anthropic, "m")
    assert ("details" in body["error"]) == (problem.code == "quota")


@pytest.mark.parametrize(
    ("axis", "kind", "openai", "anthropic"),
    [
        ("requests", "requests", "requests per min (RPM)", "requests per minute"),
        ("tokens", "tokens", "tokens per min (TPM)", "tokens per minute"),
        ("input", "tokens", "input tokens per min (ITPM)", "input tokens per minute"),
        ("output", "tokens", "output tokens per min (OTPM)", "output tokens per minute"),
        ("day", "requests", "requests per day (RPD)", "requests per day"),
        ("concurrency", "requests", "concurrent requests", "concurrent requests"),
    ],
)
def test_a_rejection_names_the_exhausted_axis(axis: Axis, kind: str, openai: str, anthropic: str) -> None:
    problem = Problem(429, "m", axis, Exceeded("fast", axis, 60_000, 59_990, 25))
    sent = json.loads(OpenAIChat().error(problem))["error"]
    assert (sent["type"], sent["code"]) == (kind, "rate_limit_exceeded")
    assert sent["message"] == (
        f"Rate limit reached for fast on {openai}: Limit 60000, Used 59990, Requested 25."
    )
    error = json.loads(AnthropicMessages().error(problem))["error"]
    assert error["type"] == "rate_limit_error"
    assert f"60,000 {anthropic}" in error["message"]


def test_a_failure_in_mid_stream_is_an_event() -> None:
    assert events(OpenAIChat().stream_error(Problem(529, "m")))[0]["error"]["code"] == "overloaded"
    anthropic = AnthropicMessages().stream_error(Problem(529, "m"))
    assert anthropic.startswith(b"event: error\n")
    assert events(anthropic)[0]["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0ms"),
        (12, "12ms"),
        (1000, "1s"),
        (1500, "1.5s"),
        (360_000, "6m0s"),
        (179_560, "2m59.56s"),
        (7_200_000, "2h0m0s"),
    ],
)
def test_openai_resets_are_durations(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_each_protocol_reports_limits_in_its_own_headers() -> None:
    levels: dict[Any, Level] = {"requests": Level(3000, 49, 20), "tokens": Level(60_000, 650, 350_000)}
    assert OpenAIChat().limit_headers(levels, NOW_MS) == {
        "x-ratelimit-limit-requests": "3000",
        "x-ratelimit-remaining-requests": "49",
        "x-ratelimit-reset-requests": "20ms",
        "x-ratelimit-limit-tokens": "60000",
        "x-ratelimit-remaining-tokens": "650",
        "x-ratelimit-reset-tokens": "5m50s",
    }
    anthropic = AnthropicMessages().limit_headers(levels, NOW_MS)
    assert anthropic["anthropic-ratelimit-requests-limit"] == "3000"
    assert anthropic["anthropic-ratelimit-tokens-remaining"] == "650"
    reset = datetime.fromisoformat(anthropic["anthropic-ratelimit-tokens-reset"])
    assert 350_000 <= reset.timestamp() * 1000 - NOW_MS < 351_000


def test_anthropic_reports_input_and_output_and_openai_does_not() -> None:
    levels: dict[Any, Level] = {axis: Level(600, 5, 20) for axis in ("input", "output", "day")}
    assert set(AnthropicMessages().limit_headers(levels, NOW_MS)) == {
        f"anthropic-ratelimit-{axis}-tokens-{fact}"
        for axis in ("input", "output")
        for fact in ("limit", "remaining", "reset")
    }
    assert OpenAIChat().limit_headers(levels, NOW_MS) == {}


@pytest.mark.parametrize(
    ("forms", "headers"),
    [
        (("milliseconds", "seconds"), {"retry-after-ms": "1250", "retry-after": "2"}),
        (("fraction",), {"retry-after": "1.250"}),
    ],
)
def test_retry_after_has_many_forms(forms: tuple[RetryAfterForm, ...], headers: dict[str, str]) -> None:
    assert retry_after_headers(forms, 1250, NOW_MS) == headers


def test_a_retry_after_date_is_never_too_early() -> None:
    sent = retry_after_headers(["date"], 1250, NOW_MS)["retry-after"]
    assert 1250 <= parsedate_to_datetime(sent).timestamp() * 1000 - NOW_MS < 2250
