"""Gemini's requests and answers, in the words of its own documents."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.tokens import Usage
from fairlane_workers.providers.answers.answer import Answer, ToolCall, UnreadableError
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import UnmappableError
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.framing.sse import SseParser
from fairlane_workers.providers.protocols.gemini import Gemini, Vertex

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "forecast", "description": "Tells the weather.", "parameters": SCHEMA}
HELD = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": SCHEMA}}


def request(model: str = "m", stream: bool = False, messages: Any = None, **params: Any) -> Request:
    said = messages or [{"role": "user", "content": "hi"}]
    return Request(model, said, params, stream, 1.0, 1024)


def body(**params: Any) -> dict[str, Any]:
    return Gemini().body(request(**params))


def generation(**params: Any) -> Any:
    return body(**params).get("generationConfig")


def candidate(*parts: dict[str, Any], reason: str | None = "STOP", **more: Any) -> dict[str, Any]:
    shown = {"content": {"role": "model", "parts": list(parts)}, **more}
    return {"candidates": [shown if reason is None else {**shown, "finishReason": reason}]}


def read(document: dict[str, Any]) -> Answer:
    answer = Answer()
    Gemini().read(document, answer)
    return answer


def folded(*documents: dict[str, Any]) -> Answer:
    answer = Answer()
    for each in documents:
        Gemini().fold(StreamEvent("message", json.dumps(each)), answer)
    return answer


# Where it goes


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-flash", "/models/gemini-flash"),
        ("models/gemini-flash", "/models/gemini-flash"),
        ("tunedModels/mine-1", "/tunedModels/mine-1"),
        ("a/b", "/models/a%2Fb"),
        ("../../v1/files", "/models/..%2F..%2Fv1%2Ffiles"),
        ("tunedModels/../x", "/tunedModels/..%2Fx"),
        ("m?key=x#y", "/models/m%3Fkey%3Dx%23y"),
        ("m:other", "/models/m%3Aother"),
    ],
)
def test_a_models_name_is_one_part_of_the_path(model: str, path: str) -> None:
    assert Gemini().target(request(model)) == f"{path}:generateContent"


def test_a_stream_goes_elsewhere_and_asks_for_events() -> None:
    assert Gemini().target(request(stream=True)) == "/models/m:streamGenerateContent?alt=sse"


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-flash", "/publishers/google/models/gemini-flash"),
        ("google/gemini-flash", "/publishers/google/models/gemini-flash"),
        ("publishers/google/models/gemini-flash", "/publishers/google/models/gemini-flash"),
        ("endpoints/123", "/endpoints/123"),
        ("../x", "/publishers/google/models/..%2Fx"),
    ],
)
def test_on_vertex_a_model_is_a_publishers_or_an_endpoint(model: str, path: str) -> None:
    assert Vertex().target(request(model)) == f"{path}:generateContent"


def test_on_vertex_a_name_with_a_project_is_refused() -> None:
    with pytest.raises(UnmappableError, match="endpoints/<id>"):
        Vertex().target(request("projects/p/locations/l/endpoints/1"))


# What is asked


def test_messages_become_contents_and_a_system_instruction() -> None:
    said = [("system", "a"), ("user", "b"), ("assistant", "c"), ("user", "d"), ("developer", "e")]
    sent = body(messages=[{"role": role, "content": text} for role, text in said])
    assert sent == {
        "contents": [
            {"role": "user", "parts": [{"text": "b"}]},
            {"role": "model", "parts": [{"text": "c"}]},
            {"role": "user", "parts": [{"text": "d"}]},
        ],
        "systemInstruction": {"parts": [{"text": "a"}, {"text": "e"}]},
    }


def test_a_system_instruction_of_the_run_comes_before_the_messages_one() -> None:
    own = {"parts": [{"text": "first"}]}
    said = [{"role": "system", "content": "then"}, {"role": "user", "content": "hi"}]
    sent = body(messages=said, systemInstruction=own)
    assert sent["systemInstruction"] == {"parts": [{"text": "first"}, {"text": "then"}]}
    assert body(systemInstruction=own)["systemInstruction"] == own


def test_common_parameters_have_their_own_names_and_place() -> None:
    common: dict[str, Any] = {"temperature": 0, "top_p": 0.9, "top_k": 3, "seed": 7}
    common |= {"presence_penalty": 0.1, "frequency_penalty": 0.2, "stop": "END", "max_tokens": 9}
    assert generation(**common) == {
        "temperature": 0,
        "topP": 0.9,
        "topK": 3,
        "seed": 7,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "stopSequences": ["END"],
        "maxOutputTokens": 9,
    }
    assert generation(max_completion_tokens=5, max_tokens=9) == {"maxOutputTokens": 5}
    assert generation() is None


def test_a_generation_config_of_the_run_is_merged_and_wins() -> None:
    own = {"temperature": 1, "thinkingConfig": {"thinkingBudget": 0}, "maxOutputTokens": None}
    assert generation(temperature=0, max_tokens=5, top_p=0.5, generationConfig=own) == {
        "temperature": 1,
        "topP": 0.5,
        "thinkingConfig": {"thinkingBudget": 0},
    }


def test_own_names_pass_and_what_openai_alone_has_does_not() -> None:
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    sent = body(safetySettings=safety, labels={"a": "b"}, user="u", stream_options={}, n=1, logprobs=False)
    assert sent.keys() == {"contents", "safetySettings", "labels"}
    assert sent["safetySettings"] == safety


@pytest.mark.parametrize(
    ("name", "value"), [("n", 2), ("logprobs", True), ("logit_bias", {"1": 1}), ("verbosity", "low")]
)
def test_a_parameter_that_cannot_be_said_is_named(name: str, value: Any) -> None:
    with pytest.raises(UnmappableError, match=rf"params\.{name}.*'gemini'"):
        body(**{name: value})


def test_a_schema_is_kept_as_json_schema() -> None:
    assert generation(response_format=HELD) == {
        "responseMimeType": "application/json",
        "responseJsonSchema": SCHEMA,
    }
    assert generation(response_format={"type": "json_object"}) == {"responseMimeType": "application/json"}
    own = {"responseSchema": {"type": "OBJECT"}}
    assert "responseJsonSchema" not in generation(response_format=HELD, generationConfig=own)


def test_tools_are_declared_beside_those_of_its_own() -> None:
    sent = body(tools=[{"type": "function", "function": FUNCTION}, {"googleSearch": {}}])
    declared = {"name": "forecast", "description": "Tells the weather.", "parametersJsonSchema": SCHEMA}
    assert sent["tools"] == [{"functionDeclarations": [declared]}, {"googleSearch": {}}]
    assert "toolConfig" not in sent


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        (
            {"type": "function", "function": {"name": "forecast"}},
            {"mode": "ANY", "allowedFunctionNames": ["forecast"]},
        ),
    ],
)
def test_a_tool_choice_is_a_mode(choice: Any, config: dict[str, Any]) -> None:
    sent = body(tools=[{"type": "function", "function": FUNCTION}], tool_choice=choice)
    assert sent["toolConfig"] == {"functionCallingConfig": config}


def test_an_effort_is_a_thinking_level() -> None:
    assert generation(reasoning_effort="low") == {"thinkingConfig": {"thinkingLevel": "low"}}
    with pytest.raises(UnmappableError, match="thinkingConfig"):
        body(reasoning_effort="none")


@pytest.mark.parametrize("name", ["generationConfig", "systemInstruction"])
def test_what_has_another_form_is_named(name: str) -> None:
    with pytest.raises(UnmappableError, match=rf"params\.{name}"):
        body(
            messages=[{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}], **{name: "text"}
        )


# What is answered


def test_thoughts_are_no_text_but_are_billed_as_output() -> None:
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 3, "thoughtsTokenCount": 40}
    usage |= {"cachedContentTokenCount": 8, "toolUsePromptTokenCount": 5}
    thought = {"text": "hm", "thought": True}
    answer = read(candidate(thought, {"text": "yes"}, {"thoughtSignature": "x"}) | {"usageMetadata": usage})
    assert (answer.text, answer.usage, answer.finish_reason) == ("yes", Usage(15, 43, 8), "STOP")


@pytest.mark.parametrize(("total", "put_out"), [(18, 3), (58, 43), (None, 43)])
def test_thoughts_count_once_where_the_candidates_have_them(total: int | None, put_out: int) -> None:
    usage = {"promptTokenCount": 10, "toolUsePromptTokenCount": 5, "totalTokenCount": total}
    usage |= {"candidatesTokenCount": 3, "thoughtsTokenCount": 40 if put_out > 3 else 2}
    assert read(candidate({"text": "yes"}) | {"usageMetadata": usage}).usage == Usage(15, put_out, None)


def test_function_calls_are_tools() -> None:
    call = {"functionCall": {"name": "forecast", "args": {"city": "Oslo"}, "id": "1"}}
    for answer in (read(candidate(call)), folded(candidate(call, reason=None), candidate())):
        assert answer.tools == [ToolCall("forecast", '{"city": "Oslo"}')]
        assert json.loads(answer.output or "")["tool_calls"][0]["arguments"] == {"city": "Oslo"}


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII"])
def test_a_filter_is_a_refusal_in_its_words(reason: str) -> None:
    answer = read(candidate({"text": "I"}, reason=reason, finishMessage="it was stopped"))
    assert answer.refusal is not None
    assert reason in answer.refusal
    assert "it was stopped" in answer.refusal


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "OTHER", "UNEXPECTED_TOOL_CALL"])
def test_where_the_model_broke_off_the_answer_cannot_be_used(reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        read(candidate(reason=reason))
    with pytest.raises(UnreadableError, match=reason):
        folded(candidate({"text": "a"}, reason=None), candidate(reason=reason))


def test_an_answer_that_is_too_long_is_an_answer() -> None:
    answer = read(candidate({"text": "cut"}, reason="MAX_TOKENS"))
    assert (answer.text, answer.finish_reason, answer.refusal) == ("cut", "MAX_TOKENS", None)


@pytest.mark.parametrize("answered", [read, folded])
def test_a_prompt_that_is_blocked_has_no_candidates_but_a_reason(answered: Any) -> None:
    answer = answered({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {}})
    assert "PROHIBITED_CONTENT" in answer.refusal
    assert answer.complete


def test_a_locked_out_account_is_an_error_of_access() -> None:
    answer = read(candidate(reason="PUP_LIMITED_DISABLED"))
    assert isinstance(answer.error, dict)
    assert answer.error["status"] == "PERMISSION_DENIED"


def test_of_several_candidates_the_first_is_the_answer() -> None:
    two = {"candidates": [{"index": 1, **candidate({"text": "x"})["candidates"][0]}]}
    assert folded(two, candidate({"text": "a"}), two).text == "a"


def test_a_reason_in_every_event_does_not_end_a_stream() -> None:
    answer = folded(candidate({"text": "a"}), candidate({"text": "b"}), {"usageMetadata": {}})
    assert (answer.text, answer.ended, answer.complete) == ("ab", False, True)


# Errors that stand bare in a stream

ERROR = {"error": {"code": 503, "message": "m", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize("bare", [json.dumps(ERROR, indent=2), json.dumps([ERROR], indent=2) + "\r\n"])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_error_after_the_events_is_read_however_it_is_cut(bare: str, size: int) -> None:
    data = b'data: {"candidates": []}\r\n\r\n' + bare.encode()
    parser, answer = SseParser(), Answer()
    events = [each for at in range(0, len(data), size) for each in parser.feed(data[at : at + size])]
    first, last = events + parser.finish()
    assert (first.name, last.name) == ("message", "error")
    Gemini().fold(last, answer)
    assert answer.error == ERROR["error"]


def test_a_brace_within_an_event_is_no_error() -> None:
    parser = SseParser()
    parser.feed(b"data: ")
    assert [event.data for event in parser.feed(b'{"a": 1}\n\n') + parser.finish()] == ['{"a": 1}']


NAMES = [
    *("candidates", "content", "parts", "text", "thought", "functionCall", "name", "args", "finishReason"),
    *("index", "finishMessage", "promptFeedback", "blockReason", "usageMetadata", "promptTokenCount"),
    *("thoughtsTokenCount", "candidatesTokenCount", "cachedContentTokenCount", "error"),
]
LEAVES = (
    st.none() | st.booleans() | st.integers(-5, 2**60) | st.floats() | st.text(max_size=5)
) | st.sampled_from(["SAFETY", "STOP", "OTHER", "PUP_LIMITED_DISABLED"])
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=20,
)


@given(JSON)
def test_no_document_does_more_than_break_the_schema(document: Any) -> None:
    answer = Answer()
    with suppress(UnreadableError):
        Gemini().fold(StreamEvent("message", json.dumps(document)), answer)
    if isinstance(document, dict):
        with suppress(UnreadableError):
            Gemini().read(document, answer)
    (answer.output or "").encode()
    assert answer.usage.total is None or 0 <= answer.usage.total < 2**56
