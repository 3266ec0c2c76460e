"""Chat completions, with what the servers that speak them add, leave out and do their own way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlane.model.outcome import (
    AccessDenied,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
)
from fairlane.model.tokens import Usage
from fairlane_workers.providers.answers.answer import Answer, ToolCall, UnreadableError
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.protocols.openai.chat import OpenAIChat
from tests.support.classified import refusal
from tests.support.provider_calls import ask, call, streamed
from tests.support.scripted_server import event, http
from tests.support.wires import OpenAIChatWire

WIRE = OpenAIChatWire()


def read(message: dict[str, Any], reason: str = "stop", **beside: Any) -> Answer:
    answer = Answer()
    OpenAIChat().read({"choices": [{"message": message, "finish_reason": reason}], **beside}, answer)
    return answer


def folded(*deltas: dict[str, Any], reason: str | None = "stop") -> Answer:
    """The answer of a stream with these deltas."""
    answer, dialect = Answer(), OpenAIChat()
    choices: list[dict[str, Any]] = [{"delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"delta": {}, "finish_reason": reason})
    for choice in choices:
        dialect.fold(StreamEvent("message", json.dumps({"choices": [choice]})), answer)
    return answer


def tool(index: int | None, name: str | None, arguments: str, key: str | None = None) -> dict[str, Any]:
    shown: dict[str, Any] = {"index": index, "id": key, "type": "function"}
    function = {"name": name, "arguments": arguments}
    piece = {**shown, "function": {k: v for k, v in function.items() if v is not None}}
    return {"tool_calls": [{k: v for k, v in piece.items() if v is not None}]}


def whole(body: bytes | dict[str, Any]) -> Outcome:
    return call(WIRE, ask(), [http(200, body)])[0]


def stream(*events: dict[str, Any] | bytes) -> Outcome:
    data = b"".join(each if isinstance(each, bytes) else event(each) for each in events)
    return call(WIRE, ask(stream=True), streamed(WIRE, data))[0]


# Tools


def test_a_call_of_a_tool_is_the_answer() -> None:
    function = {"name": "look_up", "arguments": '{"word": "lane"}'}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    answer = read({"content": None, "tool_calls": calls}, "tool_calls")
    assert answer.tools == [ToolCall("look_up", '{"word": "lane"}')]
    assert json.loads(answer.output or "") == {
        "text": "",
        "tool_calls": [{"name": "look_up", "arguments": {"word": "lane"}}],
    }


def test_a_call_in_pieces_is_put_together_by_its_index() -> None:
    answer = folded(
        {"role": "assistant", "content": None},
        tool(0, "first", "", "call_a"),
        tool(1, "second", "", "call_b"),
        tool(0, None, '{"a"'),
        tool(1, None, "{}"),
        tool(0, None, ": 1}"),
        reason="tool_calls",
    )
    assert answer.tools == [ToolCall("first", '{"a": 1}'), ToolCall("second", "{}")]
    assert answer.text is None


def test_a_name_that_every_piece_repeats_is_one_name() -> None:
    answer = folded(tool(0, "find", "{", "call_a"), tool(0, "find", "}", "call_a"))
    assert answer.tools == [ToolCall("find", "{}")]


@pytest.mark.parametrize("index", [0, None])
def test_calls_that_are_not_numbered_apart_are_distinguished_by_their_ids(index: int | None) -> None:
    answer = folded(tool(index, "first", "{", "a"), tool(index, None, "}"), tool(index, "second", "{}", "b"))
    assert answer.tools == [ToolCall("first", "{}"), ToolCall("second", "{}")]


def test_arguments_that_are_no_text_are_json() -> None:
    function = {"name": "find", "arguments": {"word": "spät"}}
    answer = read({"content": "", "tool_calls": [{"function": function}]}, "tool_calls")
    assert answer.tools == [ToolCall("find", '{"word": "spät"}')]


def test_a_surrogate_pair_that_is_cut_within_arguments_is_joined() -> None:
    answer = folded(
        tool(0, "find", '{"a": "\ud83d', "c"), tool(0, None, '\ude00"}'), tool(1, "\ud83d", "{}", "d")
    )
    assert json.loads(answer.output or "")["tool_calls"] == [
        {"name": "find", "arguments": {"a": "\U0001f600"}},
        {"name": "\ufffd", "arguments": {}},
    ]


def test_a_custom_tool_is_called_with_its_input() -> None:
    custom = {"name": "shell", "input": "ls -l"}
    calls = [{"id": "call_1", "type": "custom", "custom": custom}]
    assert read({"content": None, "tool_calls": calls}).tools == [ToolCall("shell", "ls -l")]


def test_calls_of_a_stream_without_a_reason_count_once_it_is_done() -> None:
    answer, dialect = Answer(), OpenAIChat()
    piece = {"choices": [{"delta": tool(0, "find", "{}", "a"), "finish_reason": None}]}
    dialect.fold(StreamEvent("message", json.dumps(piece)), answer)
    assert answer.tools == []
    dialect.fold(StreamEvent("message", "[DONE]"), answer)
    assert answer.tools == [ToolCall("find", "{}")]


@pytest.mark.parametrize("calls", [7, [7], [{"function": 7}]])
def test_calls_that_are_none_break_the_schema(calls: Any) -> None:
    with pytest.raises(UnreadableError, match="tool_calls"):
        read({"content": None, "tool_calls": calls})


def test_a_streamed_call_reaches_the_outcome() -> None:
    outcome = stream(
        {"choices": [{"index": 0, "delta": tool(0, "find", '{"a": ', "c")}]},
        {"choices": [{"index": 0, "delta": tool(0, None, "1}"), "finish_reason": "tool_calls"}]},
        b"data: [DONE]\n\n",
    )
    assert isinstance(outcome, Success)
    assert outcome.finish_reason == "tool_calls"
    assert json.loads(outcome.output)["tool_calls"] == [{"name": "find", "arguments": {"a": 1}}]


# What is no answer


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
def test_what_the_model_reasoned_is_no_part_of_its_answer(field: str) -> None:
    assert read({"content": "4", field: "2 and 2"}).text == "4"
    assert (
        folded({"content": None, field: "2 and"}, {"content": "", field: " 2"}, {"content": "4"}).text == "4"
    )


def test_thinking_parts_of_mistral_are_no_part_of_its_answer() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "2 and 2"}], "closed": True}
    reference = {"type": "reference", "reference_ids": [1]}
    assert read({"content": [thinking, {"type": "text", "text": "4"}, reference]}).text == "4"
    assert folded({"content": [thinking]}, {"content": [{"type": "text", "text": "4"}]}).text == "4"


def test_a_refusal_in_pieces_is_one() -> None:
    answer = folded({"refusal": "I will"}, {"refusal": " not."})
    assert (answer.declined, answer.text) == (True, "I will not.")


# Usage


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens_details": {"cached_tokens": 3}},
        {"prompt_cache_hit_tokens": 3, "prompt_cache_miss_tokens": 1},
        {"cached_tokens": 3},
        {"prompt_tokens_details": None, "cached_tokens": 3},
        {"prompt_token_details": {"cached_tokens": 3}},
    ],
)
def test_cached_tokens_have_more_than_one_place(usage: dict[str, Any]) -> None:
    counts = {
        "prompt_tokens": 4,
        "completion_tokens": 9,
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    answer = read({"content": "x"}, usage={**counts, **usage})
    assert (answer.input_tokens, answer.output_tokens, answer.cached_tokens) == (4, 9, 3)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2}},
        {"prompt_tokens_details": {"cached_tokens": 3, "cache_creation_tokens": 2}},
        {"prompt_tokens_details": {"cached_tokens": 3}, "cache_creation_input_tokens": 2},
        {"cached_tokens": 3, "cache_creation_input_tokens": 2},
    ],
)
def test_tokens_written_to_the_cache_have_more_than_one_place(usage: dict[str, Any]) -> None:
    answer = read({"content": "x"}, usage={"prompt_tokens": 9, "completion_tokens": 1, **usage})
    assert answer.usage == Usage(9, 1, 3, 2)


@pytest.mark.parametrize(
    ("completion", "total", "output"),
    [
        (9, 1041, 1009),  # xAI counts reasoning in the total alone
        (1009, 1041, 1009),
        (None, 41, 9),
        (9, None, 9),
        (9, 0, 9),
        (9, 32, 9),
        (9, "1041", 9),
        (0, 32, 0),
        (None, None, None),
        (None, 32, None),
    ],
)
def test_reasoning_counts_also_where_the_total_alone_has_it(
    completion: object, total: object, output: int | None
) -> None:
    usage = {"prompt_tokens": 32, "completion_tokens": completion, "total_tokens": total}
    assert read({"content": "42"}, usage=usage).output_tokens == output
    answer = Answer()
    OpenAIChat().fold(StreamEvent("message", json.dumps({"choices": [], "usage": usage})), answer)
    assert (answer.input_tokens, answer.output_tokens) == (32, output)


def test_usage_that_groq_puts_aside_counts() -> None:
    answer = Answer()
    last = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "x_groq": {"id": "req_1", "usage": {"prompt_tokens": 4, "completion_tokens": 2}},
    }
    OpenAIChat().fold(StreamEvent("message", json.dumps(last)), answer)
    assert (answer.input_tokens, answer.output_tokens) == (4, 2)


# Keep-alive


def test_blank_lines_before_a_document_are_skipped() -> None:
    outcome = whole(b"\n\n\n   \n" + json.dumps(WIRE.whole("late")).encode())
    assert isinstance(outcome, Success)
    assert outcome.output == "late"


@pytest.mark.parametrize("comment", [b": keep-alive\n\n", b": OPENROUTER PROCESSING\n\n", b":\n", b"\n\n"])
def test_comments_in_a_stream_are_skipped(comment: bytes) -> None:
    parts = [WIRE.begin(), WIRE.piece("la"), WIRE.piece("te"), WIRE.finish(), WIRE.end()]
    outcome = stream(*(comment + part for part in parts))
    assert isinstance(outcome, Success)
    assert outcome.output == "late"


# Errors of compatible servers

_BESIDE = {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ({**_BESIDE, "error": {"code": "server_error", "message": "m"}}, ServerError("m", 500)),
        ({**_BESIDE, "error": {"code": 502, "message": "m"}}, ServerError("m", 502)),
        ({**_BESIDE, "error": {"code": 429, "message": "m"}}, RateLimited("m", 429)),
        (
            {"choices": [{**_BESIDE["choices"][0], "error": {"code": 503, "message": "m"}}]},
            Overloaded("m", 503),
        ),
        (_BESIDE, ServerError("the provider broke off (error)", 500)),
        (
            {"choices": [{"delta": {}, "finish_reason": "insufficient_system_resource"}]},
            Overloaded("the provider broke off (insufficient_system_resource)", 503),
        ),
        (
            {"choices": [], "x_groq": {"id": "req_1", "error": "over capacity"}},
            ServerError("over capacity", 500),
        ),
        ({"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}, RateLimited("rate limit", 429)),
    ],
)
def test_an_error_in_mid_stream_is_an_error(last: dict[str, Any], expected: Outcome) -> None:
    assert stream(WIRE.begin(), WIRE.piece("half"), last, b"data: [DONE]\n\n") == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"code": 429, "message": "m"}, "user_id": "u"}, RateLimited("m", 429)),
        ({"error": {"code": 402, "message": "m"}}, AccessDenied("m", 402, "quota")),
        ({"error": {"code": 502, "message": "m", "metadata": {"raw": "said"}}}, ServerError("m: said", 502)),
        (
            {"choices": [{"message": {"content": ""}, "finish_reason": "error", "error": {"message": "m"}}]},
            ServerError("m", 500),
        ),
        (
            {"choices": [{"message": {"content": "a"}, "finish_reason": "error"}]},
            ServerError("the provider broke off (error)", 500),
        ),
        (
            {"choices": [], "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}},
            AccessDenied("insufficient balance", 429, "quota"),
        ),
        (
            {"choices": None, "base_resp": {"status_code": 1013, "status_msg": "unknown error"}},
            ServerError("unknown error", 500),
        ),
    ],
)
def test_an_error_with_the_status_of_an_answer_is_an_error(body: dict[str, Any], expected: Outcome) -> None:
    assert whole(body) == expected


def test_a_status_beside_an_answer_that_says_success_is_no_error() -> None:
    said = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}
    outcome = whole({**said, "base_resp": {"status_code": 0, "status_msg": ""}})
    assert isinstance(outcome, Success)
    assert outcome.output == "a"


def test_an_input_that_moderation_declined_does_not_park_the_lane() -> None:
    error = {"code": 403, "message": "m", "metadata": {"reasons": ["violence"], "flagged_input": "…"}}
    assert refused(403, {"error": error}) == PermanentFailure("m", 403, content=True)
    assert whole({"error": error}) == PermanentFailure("m", 400, content=True)
    assert refused(403, {"error": {"code": 403, "message": "m"}}) == AccessDenied("m", 403, "auth")


def refused(status: int, body: dict[str, Any]) -> Outcome:
    return refusal("openai", status, {}, json.dumps(body).encode(), now_ms=0)


_FORBIDDEN = [
    {
        "type": "extra_forbidden",
        "loc": ["body", "store"],
        "msg": "Extra inputs are not permitted",
        "input": 1,
    },
    {"type": "missing", "loc": ["body", "messages", 0, "content"], "msg": "Field required"},
]
_SAID = "store: Extra inputs are not permitted; messages.0.content: Field required"


@pytest.mark.parametrize(
    "body",
    [
        {"detail": _FORBIDDEN},
        {"object": "error", "message": {"detail": _FORBIDDEN}, "type": "invalid_request_error", "code": None},
        {"object": "Error", "detail": _FORBIDDEN, "message": _FORBIDDEN, "type": "x", "code": 3001},
    ],
)
def test_a_validation_error_names_each_field(body: dict[str, Any]) -> None:
    assert refused(422, body) == PermanentFailure(_SAID, 422)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, {"detail": "Not Found"}, PermanentFailure("Not Found", 404, doubtful=True)),
        (401, {"message": "Unauthorized", "request_id": "a"}, AccessDenied("Unauthorized", 401, "auth")),
        (422, {"detail": [{"msg": "no JSON"}]}, PermanentFailure("no JSON", 422)),
        (
            404,
            {
                "error": {
                    "object": "error",
                    "type": "invalid_request_error",
                    "code": "NOT_FOUND",
                    "message": "m",
                }
            },
            PermanentFailure("m", 404, doubtful=True),
        ),
        (
            402,
            {"id": "1", "error": {"message": "m", "type": "credit_limit", "param": None, "code": None}},
            AccessDenied("m", 402, "quota"),
        ),
        (400, {"object": "error", "message": "m", "type": "BadRequestError"}, PermanentFailure("m", 400)),
    ],
)
def test_refusals_of_compatible_servers_keep_their_words(
    status: int, body: dict[str, Any], expected: Outcome
) -> None:
    assert refused(status, body) == expected


def test_listeners_hear_text_and_no_reasoning() -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    thought = event({"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]})
    data = WIRE.begin() + thought + WIRE.piece("4") + WIRE.finish() + WIRE.end()
    outcome, _ = call(WIRE, ask(stream=True), streamed(WIRE, data), on_chunk=listen)
    assert isinstance(outcome, Success)
    assert "".join(heard) == "4"
