"""Responses: what is asked in their words, and what of an answer counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlane.model.outcome import (
    InvalidResponse,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
)
from fairlane.model.tokens import Usage
from fairlane_workers.providers.answers.answer import Answer, ToolCall, UnreadableError
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import UnmappableError
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.protocols.openai.responses import OpenAIResponses
from fairlane_workers.providers.protocols.openai.responses_request import input_items
from tests.support.provider_calls import ask, call, streamed
from tests.support.scripted_server import event, http
from tests.support.wires.openai_responses import OpenAIResponsesWire

WIRE = OpenAIResponsesWire()
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FUNCTION = {"name": "find", "description": "Finds.", "parameters": SCHEMA}


def body(stream: bool = False, **params: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    return OpenAIResponses().body(Request("m", messages, params, stream, 1.0, 1024))


def message(*content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(content), **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "output_text", "text": words, "annotations": []}


def read(*output: dict[str, Any], **response: Any) -> Answer:
    answer = Answer()
    OpenAIResponses().read({"status": "completed", "output": list(output), **response}, answer)
    return answer


def folded(*events: dict[str, Any]) -> Answer:
    answer = Answer()
    for each in events:
        OpenAIResponses().fold(StreamEvent(each["type"], json.dumps(each)), answer)
    return answer


def whole(document: dict[str, Any]) -> Outcome:
    return call(WIRE, ask(), [http(200, document)])[0]


def stream(*events: dict[str, Any] | bytes) -> Outcome:
    data = b"".join(each if isinstance(each, bytes) else event(each, each["type"]) for each in events)
    return call(WIRE, ask(stream=True), streamed(WIRE, data))[0]


# What is asked


def test_messages_are_the_input_in_their_order() -> None:
    assert body(instructions="In German.") == {
        "model": "m",
        "instructions": "In German.",
        "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "stream": False,
    }


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"max_tokens": 20}, 20),
        ({"max_tokens": 20, "max_completion_tokens": 30}, 30),
        ({"max_tokens": 20, "max_output_tokens": 40}, 40),
    ],
)
def test_the_longest_answer_has_one_name(params: dict[str, Any], expected: int) -> None:
    asked = body(**params)
    assert asked["max_output_tokens"] == expected
    assert not {"max_tokens", "max_completion_tokens"} & set(asked)


def test_sampling_parameters_keep_their_names() -> None:
    params = {"temperature": 0, "top_p": 0.5, "store": False, "metadata": {"a": "b"}}
    assert params.items() <= body(**params).items()


def test_a_schema_is_the_format_of_the_text() -> None:
    form = {"name": "shape", "strict": True, "schema": SCHEMA}
    asked = body(response_format={"type": "json_schema", "json_schema": form})
    assert asked["text"] == {
        "format": {"type": "json_schema", "name": "shape", "strict": True, "schema": SCHEMA}
    }
    assert "response_format" not in asked


def test_a_schema_without_a_name_gets_one() -> None:
    asked = body(response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}})
    assert asked["text"]["format"]["name"] == "answer"


@pytest.mark.parametrize("kind", ["json_object", "text"])
def test_other_formats_go_as_they_are(kind: str) -> None:
    assert body(response_format={"type": kind})["text"] == {"format": {"type": kind}}


def test_a_response_format_that_is_none_is_refused() -> None:
    with pytest.raises(UnmappableError, match="response_format"):
        body(response_format={"type": "yaml"})


def test_own_names_go_before_what_is_translated() -> None:
    asked = body(
        response_format={"type": "json_object"},
        verbosity="high",
        reasoning_effort="high",
        text={"verbosity": "low"},
        reasoning={"summary": "auto"},
    )
    assert asked["text"] == {"format": {"type": "json_object"}, "verbosity": "low"}
    assert asked["reasoning"] == {"summary": "auto", "effort": "high"}
    assert not {"verbosity", "reasoning_effort"} & set(asked)
    assert "text" not in body(text=None, verbosity="low")


def test_functions_are_flattened_and_not_strict_by_themselves() -> None:
    search = {"type": "web_search"}
    flat = {"type": "function", "name": "flat", "parameters": SCHEMA, "strict": True}
    asked = body(tools=[{"type": "function", "function": FUNCTION}, search, flat])
    assert asked["tools"] == [{"type": "function", "strict": False, **FUNCTION}, search, flat]


GRAMMAR = {"definition": "start: /a+/", "syntax": "lark"}
FORMED = {"name": "sh", "format": {"type": "grammar", "grammar": GRAMMAR}}
PLAIN = {"name": "sql", "description": "Runs it.", "format": {"type": "text"}}
ALLOWED = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "find"}}]}


def test_custom_tools_are_flattened_with_their_grammar() -> None:
    tools = [{"type": "custom", "custom": FORMED}, {"type": "custom", "custom": PLAIN}]
    sent = body(tools=tools, tool_choice={"type": "custom", "custom": {"name": "sh"}})
    assert sent["tools"] == [
        {"type": "custom", "name": "sh", "format": {"type": "grammar", **GRAMMAR}},
        {"type": "custom", **PLAIN},
    ]
    assert sent["tool_choice"] == {"type": "custom", "name": "sh"}


def test_the_allowed_tools_are_flattened() -> None:
    sent = body(tools=[], tool_choice={"type": "allowed_tools", "allowed_tools": ALLOWED})
    tools = [{"type": "function", "name": "find"}]
    assert sent["tool_choice"] == {"type": "allowed_tools", "mode": "auto", "tools": tools}


def test_a_function_that_is_strict_stays_so() -> None:
    asked = body(tools=[{"type": "function", "function": {**FUNCTION, "strict": True}}])
    assert asked["tools"][0]["strict"] is True


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("required", "required"),
        ({"type": "function", "function": {"name": "find"}}, {"type": "function", "name": "find"}),
        ({"type": "web_search"}, {"type": "web_search"}),
    ],
)
def test_the_choice_of_a_tool_is_flattened_too(choice: object, sent: object) -> None:
    assert body(tool_choice=choice)["tool_choice"] == sent


CHATS_ALONE: list[dict[str, Any]] = [
    {"presence_penalty": 1},
    {"frequency_penalty": 0.5},
    {"logprobs": True},
    {"audio": {"voice": "x", "format": "wav"}},
]


@pytest.mark.parametrize(
    "params",
    [
        {"stop": "."},
        {"seed": 1},
        {"top_k": 5},
        {"n": 2},
        {"logit_bias": {"5": 1}},
        {"background": True},
        *CHATS_ALONE,
    ],
)
def test_what_responses_do_not_know_is_refused_by_name(params: dict[str, Any]) -> None:
    with pytest.raises(UnmappableError, match=rf"params\.{next(iter(params))}: .*leave it out"):
        body(**params)


def test_parameters_that_are_none_are_left_out() -> None:
    asked = body(
        stop=None, seed=None, n=1, max_tokens=None, tools=None, response_format=None, logit_bias=None
    )
    assert set(asked) == {"model", "input", "stream"}


def test_a_stream_needs_no_option_for_its_usage() -> None:
    assert "stream_options" not in body(stream=True)
    assert "stream_options" not in body(stream=True, stream_options={"include_usage": True})
    kept = body(stream=True, stream_options={"include_usage": True, "include_obfuscation": False})
    assert kept["stream_options"] == {"include_obfuscation": False}
    assert "stream_options" not in body(stream_options={"include_obfuscation": False})


def test_a_parameter_that_responses_lack_fails_without_a_call() -> None:
    outcome, server = call(WIRE, ask(seed=7), [http(200, WIRE.whole("x"))])
    assert isinstance(outcome, PermanentFailure)
    assert "params.seed" in outcome.message
    assert server.received == []


# What counts of an answer


def test_text_of_all_messages_counts_and_no_reasoning() -> None:
    summary = [{"type": "summary_text", "text": "hm"}]
    reasoning = {
        "type": "reasoning",
        "summary": summary,
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    answer = read(reasoning, message(text("a"), text("b")), {"type": "web_search_call"}, message(text("c")))
    assert (answer.text, answer.finish_reason, answer.ended) == ("abc", "completed", True)


def test_usage_has_what_was_cached_and_all_that_was_put_out() -> None:
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 5},
    }
    assert read(message(text("x")), usage=usage).usage == Usage(9, 7, 4)
    assert read(message(text("x")), usage={"input_tokens": 9}).usage == Usage(9, None, None)
    assert read(message(text("x")), usage={**usage, "total_tokens": 21}).usage == Usage(9, 12, 4)


def test_calls_are_the_answer() -> None:
    find = {"type": "function_call", "call_id": "c", "name": "find", "arguments": '{"a":1}'}
    shell = {"type": "custom_tool_call", "call_id": "d", "name": "shell", "input": "ls"}
    calls = [ToolCall("find", '{"a":1}'), ToolCall("shell", "ls")]
    assert read(find, shell).tools == calls
    assert (
        folded(
            {"type": "response.output_item.added", "item": {**find, "arguments": ""}},
            {"type": "response.function_call_arguments.delta", "delta": '{"a"'},
            {"type": "response.function_call_arguments.done", "arguments": '{"a":1}'},
            {"type": "response.output_item.done", "item": find},
            {"type": "response.output_item.done", "item": shell},
            {"type": "response.completed", "response": {"status": "completed", "output": [find, shell]}},
        ).tools
        == calls
    )


@pytest.mark.parametrize("item", [{"name": "find"}, {"arguments": "{}"}, {"name": 1, "arguments": "{}"}])
def test_a_call_without_name_or_arguments_breaks_the_schema(item: dict[str, Any]) -> None:
    with pytest.raises(UnreadableError, match="a call needs a name and arguments"):
        read({"type": "function_call", **item})


def test_a_refusal_is_an_answer_in_its_words() -> None:
    words = {"type": "refusal", "refusal": "I will not."}
    declined = Success("I will not.", finish_reason="refusal", status=200)
    assert whole({"status": "completed", "output": [message(words)]}) == declined
    said = stream(
        {"type": "response.refusal.delta", "delta": "I will"},
        {"type": "response.refusal.delta", "delta": " not."},
        {"type": "response.refusal.done", "refusal": "I will not."},
        {"type": "response.completed", "response": {"status": "completed", "output": [message(words)]}},
    )
    assert said == declined


def test_an_answer_that_became_too_long_is_one_and_says_so() -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert read(message(text("a")), **cut).finish_reason == "max_output_tokens"
    answer = folded(
        {"type": "response.output_text.delta", "delta": "a"},
        {"type": "response.incomplete", "response": {**cut, "output": [message(text("a"))]}},
    )
    assert (answer.text, answer.finish_reason, answer.ended) == ("a", "max_output_tokens", True)
    assert read(message(text("a")), status="incomplete").finish_reason == "incomplete"


def test_a_text_that_came_in_no_pieces_is_taken_from_the_end() -> None:
    outcome = stream(
        {"type": "response.completed", "response": WIRE.whole("all at once")}, b"data: [DONE]\n\n"
    )
    assert isinstance(outcome, Success)
    assert (outcome.output, outcome.usage) == ("all at once", Usage(7, 3))


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled"])
def test_a_response_that_is_not_there_is_invalid(status: str) -> None:
    outcome = whole({"status": status, "output": [], "id": "resp_1"})
    assert isinstance(outcome, InvalidResponse)
    assert status in outcome.message


# Failures after a 200


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"code": "server_error", "message": "m"}, ServerError("m", 500)),
        ({"code": "rate_limit_exceeded", "message": "m"}, RateLimited("m", 429)),
        ({"code": "invalid_prompt", "message": "m"}, PermanentFailure("m", 400)),
        (
            {"code": "image_content_policy_violation", "message": "m"},
            PermanentFailure("m", 400, content=True),
        ),
        (None, ServerError("the response failed, without an error", 500)),
    ],
)
def test_a_response_that_failed_is_its_error(error: dict[str, Any] | None, expected: Outcome) -> None:
    failed = {"object": "response", "status": "failed", "error": error, "output": []}
    assert whole(failed) == expected
    assert stream(WIRE.begin(), {"type": "response.failed", "response": failed}) == expected


@pytest.mark.parametrize(
    "shown",
    [
        {"code": "server_is_overloaded", "message": "m", "param": None},
        {"error": {"type": "service_unavailable_error", "code": "server_is_overloaded", "message": "m"}},
    ],
)
def test_an_error_event_has_two_forms(shown: dict[str, Any]) -> None:
    event_ = {"type": "error", "sequence_number": 3, **shown}
    assert stream(WIRE.begin(), WIRE.piece("half"), event_) == Overloaded("m", 503)


def test_an_error_of_a_gateway_in_mid_stream_is_one() -> None:
    error = {"error": {"message": "m", "code": 429}}
    assert stream(WIRE.begin(), event(error)) == RateLimited("m", 429)


def test_an_end_mark_of_chat_completions_alone_is_no_end() -> None:
    outcome = stream(WIRE.begin(), WIRE.piece("half"), b"data: [DONE]\n\n")
    assert isinstance(outcome, InvalidResponse)


def test_what_asks_for_nothing_is_left_out() -> None:
    asked = {"n": 1, "presence_penalty": 0, "frequency_penalty": 0, "logprobs": False, "modalities": ["text"]}
    assert set(body(**asked)) == {"model", "input", "stream"}


def test_a_chat_with_images_and_calls_becomes_items() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "this?"},
                {"type": "image_url", "image_url": {"url": "data:x"}},
                {"type": "file", "file": {"file_id": "f"}},
                {"type": "input_text", "text": "as it is"},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}},
                {"id": "c2", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Four."}]},
        {"type": "item_reference", "id": "i"},
    ]
    request = Request("m", messages, {}, False, 1.0, 1024)
    assert OpenAIResponses().body(request)["input"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "this?"},
                {"type": "input_image", "image_url": "data:x", "detail": "auto"},
                {"type": "input_file", "file_id": "f"},
                {"type": "input_text", "text": "as it is"},
            ],
        },
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "sh", "input": "ls"},
        {"type": "function_call_output", "call_id": "c1", "output": "4"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Four."}]},
        {"type": "item_reference", "id": "i"},
    ]


def test_a_message_that_says_nothing_is_no_item() -> None:
    assert input_items([{"role": "assistant", "content": None}, {"role": "user", "content": "hi"}]) == [
        {"role": "user", "content": "hi"}
    ]


def test_a_dump_of_a_chat_message_becomes_an_input_item_without_what_the_api_rejects() -> None:
    extras = {"refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": None}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi.", "name": "ann"},
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm.", **extras},
        {"role": "assistant", "content": None, **extras, "refusal": "I will not."},
        {"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": []},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": None},
    ]
    assert input_items(messages) == [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Yes."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]},
        {"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": []},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": None},
    ]
