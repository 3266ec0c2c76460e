"""What is sent to Bedrock, and what its answers, streams and refusals become."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import botocore.session
import pytest
from botocore.serialize import create_serializer
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.hints import Hints
from fairlane.model.outcome import (
    AccessDenied,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
    TimedOut,
)
from fairlane.model.tokens import Usage
from fairlane_workers.providers.answers.answer import Answer, UnreadableError
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import UnmappableError
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.protocols.bedrock import LATE_STATUSES, Bedrock
from tests.support.conversations import calling
from tests.support.provider_calls import ask, call, streamed
from tests.support.scripted_server import http
from tests.support.wires import BedrockWire
from tests.support.wires.bedrock import event_frame, frame

WIRE = BedrockWire()
SERVICE = botocore.session.Session().get_service_model("bedrock-runtime")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "A city's", "parameters": CITY},
}
FORM = {"type": "json_schema", "json_schema": {"name": "place", "schema": CITY}}
MODELS = [
    "anthropic.claude-3-5-sonnet-20240620-v1:0",
    "us.amazon.nova-pro-v1:0",
    "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2c3",
    "arn:aws:bedrock:us-east-1::foundation-model/meta.llama3-70b-instruct-v1:0",
    "what no model is called: ~/ü?#%",
]


def request(*messages: tuple[str, str], model: str = "m", stream: bool = False, **params: Any) -> Request:
    said = [{"role": role, "content": content} for role, content in messages or [("user", "hi")]]
    return Request(model, said, params, stream, 1.0, 1024)


def sent(*messages: tuple[str, str], **params: Any) -> dict[str, Any]:
    return Bedrock().body(request(*messages, **params))


# What is sent


@pytest.mark.parametrize("model", MODELS)
def test_a_target_is_what_the_sdk_asks_for(model: str) -> None:
    serializer = create_serializer("rest-json", include_validation=False)
    for name, stream in (("Converse", False), ("ConverseStream", True)):
        theirs = serializer.serialize_to_request({"modelId": model}, SERVICE.operation_model(name))
        assert Bedrock().target(request(model=model, stream=stream)) == theirs["url_path"]


@pytest.mark.parametrize("model", MODELS)
def test_a_target_arrives_as_it_was_encoded(model: str) -> None:
    asked = Request(model, [{"role": "user", "content": "hi"}], {}, False, 5.0, 1024)
    _, server = call(WIRE, asked, [http(200, WIRE.whole("x"))])
    assert server.received[0].path == Bedrock().target(asked)


def test_every_translated_parameter_is_in_the_place_that_the_sdk_knows() -> None:
    body = sent(
        ("system", "Be brief."),
        ("user", "Where?"),
        max_completion_tokens=50,
        temperature=0,
        top_p=0.5,
        stop="END",
        response_format=FORM,
        tools=[WEATHER],
        tool_choice="auto",
        top_k=5,
        seed=1,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        thinking={"type": "enabled"},
    )
    shape = SERVICE.operation_model("Converse").input_shape
    assert body.keys() < shape.members.keys()
    assert body["messages"] == [{"role": "user", "content": [{"text": "Where?"}]}]
    assert body["system"] == [{"text": "Be brief."}]
    assert body["inferenceConfig"] == {
        "maxTokens": 50,
        "temperature": 0,
        "topP": 0.5,
        "stopSequences": ["END"],
    }
    spec = {"name": "weather", "description": "A city's", "inputSchema": {"json": CITY}}
    assert body["toolConfig"] == {"tools": [{"toolSpec": spec}], "toolChoice": {"auto": {}}}
    form = body["outputConfig"]["textFormat"]
    assert form["type"] == "json_schema"
    assert form["structure"]["jsonSchema"].pop("schema") == json.dumps(CITY)
    assert form["structure"] == {"jsonSchema": {"name": "place"}}
    assert body["additionalModelRequestFields"] == {
        "top_k": 5,
        "seed": 1,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "thinking": {"type": "enabled"},
    }


def test_a_run_without_parameters_sends_its_messages_alone() -> None:
    assert sent() == {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}


def test_what_one_says_in_a_row_is_one_message() -> None:
    body = sent(("user", "a"), ("user", "b"), ("assistant", "c"), ("developer", "d"), ("user", "e"))
    assert body["messages"] == [
        {"role": "user", "content": [{"text": "a"}, {"text": "b"}]},
        {"role": "assistant", "content": [{"text": "c"}]},
        {"role": "user", "content": [{"text": "e"}]},
    ]
    assert body["system"] == [{"text": "d"}]


@pytest.mark.parametrize("given", ["First.", [{"text": "First."}]])
def test_a_system_prompt_among_the_parameters_comes_first(given: Any) -> None:
    assert sent(("system", "Then."), ("user", "hi"), system=given)["system"] == [
        {"text": "First."},
        {"text": "Then."},
    ]


def test_converse_s_own_objects_win_field_by_field() -> None:
    guard = {"guardrailIdentifier": "g", "guardrailVersion": "1"}
    body = sent(
        max_tokens=5,
        temperature=0.5,
        top_k=3,
        inferenceConfig={"maxTokens": 9, "temperature": None, "topP": 1},
        additionalModelRequestFields={"top_k": None, "inferenceConfig": {"topK": 3}},
        guardrailConfig=guard,
        requestMetadata=None,
    )
    assert body["inferenceConfig"] == {"maxTokens": 9, "topP": 1}
    assert body["additionalModelRequestFields"] == {"inferenceConfig": {"topK": 3}}
    assert body["guardrailConfig"] == guard
    assert "requestMetadata" not in body


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (None, None),
        ("required", {"any": {}}),
        ({"type": "function", "function": {"name": "weather"}}, {"tool": {"name": "weather"}}),
    ],
)
def test_a_choice_of_tools_is_said_its_way(choice: Any, said: Any) -> None:
    assert sent(tools=[WEATHER], tool_choice=choice)["toolConfig"].get("toolChoice") == said


def test_tools_that_must_not_be_called_are_not_offered() -> None:
    assert "toolConfig" not in sent(tools=[WEATHER], tool_choice="none")


def test_a_strict_tool_stays_strict() -> None:
    function = {**WEATHER["function"], "strict": True}
    (tool,) = sent(tools=[{"type": "function", "function": function}])["toolConfig"]["tools"]
    assert tool["toolSpec"]["strict"] is True
    assert "strict" not in sent(tools=[WEATHER])["toolConfig"]["tools"][0]["toolSpec"]


def test_what_changes_no_answer_is_nothing_for_the_model() -> None:
    idle = {"user": "u", "metadata": {"a": "b"}, "prompt_cache_key": "k", "safety_identifier": "s"}
    nothing = {
        "n": 1,
        "logprobs": False,
        "logit_bias": {},
        "presence_penalty": 0,
        "parallel_tool_calls": True,
    }
    assert sent(**idle, **nothing) == sent()
    further = {"n": 2, "logprobs": True, "presence_penalty": 0.5, "reasoning_effort": "low", "top_k": 3}
    assert sent(**further)["additionalModelRequestFields"] == further


def test_every_field_of_a_request_is_in_its_place() -> None:
    names = SERVICE.operation_model("Converse").input_shape.members.keys() - {"modelId", "messages"}
    names |= {"projectIdentifier"}  # of later packages
    given = {name: [{"x": "y"}] if name == "system" else {"x": "y"} for name in names}
    assert sent(**given).keys() - {"messages"} == names


def test_an_answer_that_was_begun_ends_without_blanks() -> None:
    said = [("assistant", "a "), ("user", "b "), ("assistant", "c ")]
    shown = [turn["content"][0]["text"] for turn in sent(*said)["messages"]]
    assert shown == ["a ", "b ", "c"]


def pdf(name: str | None) -> dict[str, Any]:
    named = {} if name is None else {"filename": name}
    return {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0xLg==", **named}}


def test_no_two_documents_have_one_name_and_none_a_wrong_one() -> None:
    names = [None, None, "a.pdf", "a (2).pdf", "a.pdf", "b  c_é.pdf", "x" * 300]
    own = {"document": {"format": "txt", "name": "a-pdf", "source": {"text": "t"}}}
    chat = [{"role": "user", "content": [*map(pdf, names), own]}, {"role": "user", "content": [pdf("a.pdf")]}]
    (turn,) = Bedrock().body(Request("m", chat, {}, False, 1.0, 1024))["messages"]
    sent = [block["document"]["name"] for block in turn["content"]]
    assert sent[:6] == ["document", "document (2)", "a-pdf", "a (2)-pdf", "a-pdf (2)", "b -c-pdf"]
    assert sent[7:] == ["a-pdf (3)", "a-pdf (4)"]
    assert len(set(sent)) == len(sent)
    assert max(map(len, sent)) <= 200


@pytest.mark.parametrize(
    ("given", "kept"), [("c:1.a-b_c", True), ("x" * 64, True), ("x" * 65, False), ("ü", False)]
)
def test_an_id_that_bedrock_rejects_is_another_one_in_a_call_and_its_result(given: str, kept: bool) -> None:
    chat = calling(given)
    sent = Bedrock().body(Request("m", chat, {}, False, 1.0, 1024))["messages"]
    called, answered = sent[0]["content"][0]["toolUse"], sent[1]["content"][0]["toolResult"]
    assert called["toolUseId"] == answered["toolUseId"]
    assert (called["toolUseId"] == given) == kept
    assert re.fullmatch(r"[a-zA-Z0-9_.:-]{1,64}", called["toolUseId"])


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_a_blank_text_beside_another_part_is_left_out(blank: str) -> None:
    parts = [{"type": "text", "text": blank}, {"type": "text", "text": "hi"}]
    body = Bedrock().body(Request("m", [{"role": "user", "content": parts}], {}, False, 1.0, 1024))
    assert body["messages"] == [{"role": "user", "content": [{"text": "hi"}]}]


def test_json_without_a_schema_cannot_be_said() -> None:
    with pytest.raises(UnmappableError, match="json_object"):
        sent(response_format={"type": "json_object"})


# What is read


def read(content: list[Any], reason: str = "end_turn", **usage: int) -> Answer:
    answer = Answer()
    document = {"output": {"message": {"content": content}}, "stopReason": reason, "usage": usage}
    Bedrock().read(document, answer)
    return answer


def folded(*events: tuple[str, dict[str, Any]]) -> Answer:
    answer, dialect = Answer(), Bedrock()
    for name, payload in events:
        dialect.fold(StreamEvent(name, json.dumps(payload)), answer)
    return answer


def test_of_an_answer_with_reasoning_and_citations_the_text_counts() -> None:
    answer = read(
        [
            {"reasoningContent": {"reasoningText": {"text": "hm"}}},
            {"text": "a"},
            {"citationsContent": {"content": [{"text": "b"}], "citations": []}},
            {"guardContent": {}},
        ]
    )
    assert answer.text == "ab"
    deltas = [{"reasoningContent": {"text": "hm"}}, {"text": "a"}, {"citation": {}}, {"text": "b"}]
    assert folded(*(("contentBlockDelta", {"delta": delta}) for delta in deltas)).text == "ab"


def test_tokens_of_the_cache_are_input() -> None:
    usage = {"inputTokens": 5, "outputTokens": 2, "cacheReadInputTokens": 30, "cacheWriteInputTokens": 4}
    assert read([{"text": "a"}], **usage).usage == Usage(39, 2, 30, 4)
    assert folded(("metadata", {"usage": usage})).usage == Usage(39, 2, 30, 4)


def test_the_model_that_a_prompt_router_chose_is_named() -> None:
    trace = {"promptRouter": {"invokedModelId": "arn:aws:bedrock:us-east-1:1:inference-profile/us.m-v1:0"}}
    answer = Answer()
    message = {"content": [{"text": "a"}]}
    Bedrock().read({"output": {"message": message}, "stopReason": "end_turn", "trace": trace}, answer)
    assert (
        answer.model
        == folded(("metadata", {"trace": trace})).model
        == trace["promptRouter"]["invokedModelId"]
    )


def test_a_tool_s_call_is_read_whole_and_in_pieces() -> None:
    use = {"toolUseId": "t1", "name": "weather", "input": {"city": "Köln"}}
    whole = read([{"text": "Let me see."}, {"toolUse": use}], "tool_use")
    start = {"toolUse": {"toolUseId": "t1", "name": "weather"}}
    pieces = folded(
        ("contentBlockDelta", {"delta": {"text": "Let me see."}}),
        ("contentBlockStart", {"contentBlockIndex": 1, "start": start}),
        *(
            ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"toolUse": {"input": piece}}})
            for piece in ("", '{"city": ', '"Köln"}')
        ),
        ("messageStop", {"stopReason": "tool_use"}),
    )
    for answer in (whole, pieces):
        assert json.loads(answer.output or "") == {
            "text": "Let me see.",
            "tool_calls": [{"name": "weather", "arguments": {"city": "Köln"}}],
        }
        assert answer.finish_reason == "tool_use"


def test_a_tool_that_bedrock_calls_itself_is_nobody_s_to_call() -> None:
    use = {"toolUseId": "t1", "name": "nova_grounding", "type": "server_tool_use"}
    assert read([{"toolUse": {**use, "input": {}}}, {"text": "a"}]).output == "a"
    answer = folded(
        ("contentBlockStart", {"start": {"toolUse": use}}),
        ("contentBlockDelta", {"delta": {"toolUse": {"input": "{}"}}}),
        ("contentBlockDelta", {"delta": {"text": "a"}}),
        ("messageStop", {"stopReason": "end_turn"}),
    )
    assert answer.output == "a"


@pytest.mark.parametrize("reason", ["guardrail_intervened", "content_filtered"])
def test_what_a_filter_stopped_is_a_refusal(reason: str) -> None:
    assert reason in (read([{"text": "a"}], reason).refusal or "")


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
def test_output_that_bedrock_could_not_read_is_no_answer(reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        read([{"text": "a"}], reason)


@pytest.mark.parametrize(
    "event",
    [
        ("contentBlockDelta", {"delta": {"toolUse": {"input": "{"}}}),
        ("contentBlockDelta", {"delta": "text"}),
    ],
)
def test_a_delta_out_of_place_breaks_the_schema(event: tuple[str, dict[str, Any]]) -> None:
    with pytest.raises(UnreadableError, match="delta"):
        folded(event)


NAMES = [
    *("output", "message", "content", "text", "toolUse", "input", "name", "type", "usage", "inputTokens"),
    *("delta", "start", "stopReason", "__type", "citationsContent", "cacheReadInputTokens", "Message"),
]
EVENTS = ["contentBlockStart", "contentBlockDelta", "messageStop", "metadata", "error:x", "other"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**60) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=20,
)


@given(document=JSON, name=st.sampled_from(EVENTS))
def test_no_document_does_more_than_break_the_schema(document: Any, name: str) -> None:
    answer = Answer()
    with suppress(UnreadableError):
        Bedrock().fold(StreamEvent(name, json.dumps(document)), answer)
    if isinstance(document, dict):
        with suppress(UnreadableError):
            Bedrock().read(document, answer)
    (answer.output or "").encode()
    assert Bedrock().error({}, json.dumps(document).encode()).message != ""


# Refusals


def refused(status: int, body: dict[str, Any], **headers: str) -> Outcome:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return call(WIRE, ask(), [http(status, body, named)])[0]


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        ("ThrottlingException", 429, RateLimited),
        ("ModelNotReadyException", 429, Overloaded),
        ("ModelTimeoutException", 408, TimedOut),
        ("ModelErrorException", 424, ServerError),
        ("RequestTimeout", 400, TimedOut),
        ("RequestTimeoutException", 400, TimedOut),
        ("ServiceUnavailableException", 503, Overloaded),
        ("InternalServerException", 500, ServerError),
        ("ValidationException", 400, PermanentFailure),
        ("ResourceNotFoundException", 404, PermanentFailure),
        ("AccessDeniedException", 403, AccessDenied),
        ("ExpiredTokenException", 403, AccessDenied),
        ("UnrecognizedClientException", 403, AccessDenied),
        ("InvalidSignatureException", 403, AccessDenied),
        ("IncompleteSignatureException", 400, AccessDenied),
        ("ExpiredTokenException", 400, AccessDenied),
        ("ServiceQuotaExceededException", 400, AccessDenied),
    ],
)
def test_an_error_is_named_in_a_header_or_in_the_body(kind: str, status: int, expected: type) -> None:
    outcomes = [
        refused(status, {"message": "said"}, x_amzn_errortype=f"{kind}:http://internal.amazon.com/coral/"),
        refused(status, {"Message": "said"}, x_amzn_errortype=kind),
        refused(status, {"__type": f"com.amazon.coral.service#{kind}", "message": "said"}),
    ]
    for outcome in outcomes:
        assert type(outcome) is expected
        assert (outcome.status, outcome.message) == (status, "said")  # type: ignore[union-attr]
        if isinstance(outcome, AccessDenied):
            assert outcome.reason == ("quota" if kind == "ServiceQuotaExceededException" else "auth")


def test_an_error_may_be_mapped_by_its_name() -> None:
    told_kinds = Bedrock().error({"x-amzn-errortype": "ModelNotReadyException:"}, b"{}").kinds
    assert told_kinds == ("modelnotreadyexception",)


@pytest.mark.parametrize(
    ("words", "axis"),
    [
        ("Too many requests, please wait before trying again.", "requests"),
        ("Too many tokens, please wait before trying again.", "tokens"),
        ("Too many tokens per day, please wait before trying again.", "day"),
        ("Your account is currently throttled", None),
    ],
)
def test_a_throttle_names_its_axis_in_prose_alone(words: str, axis: Any) -> None:
    outcome = refused(429, {"message": words}, x_amzn_errortype="ThrottlingException")
    assert isinstance(outcome, RateLimited)
    assert outcome.hints == (Hints({}, axis) if axis else None)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("throttlingException", RateLimited),
        ("modelStreamErrorException", ServerError),
        ("internalServerException", ServerError),
        ("validationException", PermanentFailure),
        ("somethingNewException", ServerError),
    ],
)
def test_an_exception_in_mid_stream_is_what_it_would_have_been(kind: str, expected: type) -> None:
    data = WIRE.begin() + WIRE.piece("half")
    data += frame({":message-type": "exception", ":exception-type": kind}, b'{"message": "said"}')
    outcome, _ = call(WIRE, ask(stream=True), streamed(WIRE, data))
    assert type(outcome) is expected
    assert outcome.message == "said"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("status", "expected"), [(400, PermanentFailure), (429, RateLimited), (500, ServerError)]
)
def test_an_exception_in_mid_stream_has_the_status_of_the_model(status: int, expected: type) -> None:
    said = json.dumps({"message": "said", "originalStatusCode": status}).encode()
    kind = {":message-type": "exception", ":exception-type": "modelStreamErrorException"}
    outcome, _ = call(WIRE, ask(stream=True), streamed(WIRE, WIRE.begin() + frame(kind, said)))
    assert type(outcome) is expected
    assert outcome.message == "said"  # type: ignore[union-attr]


def test_every_error_of_the_service_has_its_status() -> None:
    for shape in SERVICE.error_shapes:
        assert LATE_STATUSES[shape.name.lower()] == shape.metadata["error"]["httpStatusCode"]


def test_events_that_nobody_knows_are_passed_over() -> None:
    data = (
        event_frame("initial-response", {}) + WIRE.begin() + event_frame("later", {"x": 1}) + WIRE.piece("a")
    )
    outcome, _ = call(WIRE, ask(stream=True), streamed(WIRE, data + WIRE.finish() + WIRE.end()))
    assert isinstance(outcome, Success)
    assert outcome.output == "a"
