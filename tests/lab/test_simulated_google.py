"""The simulated Gemini accepts the requests that Google documents, and rejects others as Google does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlane.lab.simulator.protocols.google.gemini import Gemini, Vertex
from fairlane.lab.simulator.wire.dialect import (
    Call,
    Exceeded,
    OfferedTool,
    Problem,
    Reply,
    RequestError,
    Stamp,
)

CONTENTS = [{"role": "user", "parts": [{"text": "Why?"}]}]
PATH = {"model": "m", "method": "generateContent"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
DECLARED = {"functionDeclarations": [{"name": name, "parametersJsonSchema": SCHEMA} for name in ("a", "b")]}
EXCEEDED = Exceeded("m", "requests", 6, 6, 1)


def parse(**fields: Any) -> Call:
    return Gemini().parse({"contents": CONTENTS, **fields}, PATH)


def calling(**config: Any) -> tuple[OfferedTool, ...]:
    return parse(tools=[DECLARED], toolConfig={"functionCallingConfig": config}).tools


def details(problem: Problem) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Gemini().error(problem))["error"].get("details", [])
    return found


def test_a_request_is_read_with_all_text_the_last_question_and_the_limit() -> None:
    talk = [*CONTENTS, {"role": "model", "parts": [{"text": "Because"}]}]
    call = Gemini().parse(
        {
            "contents": talk,
            "systemInstruction": {"parts": [{"text": "Be"}, {"text": " brief."}]},
            "generationConfig": {"maxOutputTokens": 9},
        },
        {"model": "m", "method": "streamGenerateContent", "alt": "sse"},
    )
    assert (call.model, call.question, call.max_tokens, call.stream) == ("m", "Why?", 9, True)
    assert call.prompt == "Be brief.\nWhy?\nBecause"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"contents": []}, "contents"),
        ({"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]}, "valid role"),
        ({"contents": [{"role": "user", "parts": []}]}, "parts"),
        ({"contents": [{"role": "user", "parts": [{"text": 3}]}]}, "parts"),
        ({"seed": 1}, '"seed"'),
        ({"messages": []}, '"messages"'),
        ({"generationConfig": {"max_tokens": 1}}, '"maxTokens" at .generation_config'),
        ({"generationConfig": {"temperature": "warm"}}, "temperature"),
        ({"generationConfig": {"topP": 2}}, "topP"),
        ({"generationConfig": {"maxOutputTokens": 0}}, "maxOutputTokens"),
        ({"generationConfig": {"seed": 1.5}}, "seed"),
        ({"generationConfig": {"stopSequences": list("abcdef")}}, "stop_sequences"),
        ({"generationConfig": {"responseJsonSchema": SCHEMA}}, "response_mime_type"),
        ({"tools": [{"type": "function", "function": {}}]}, '"type"'),
        ({"tools": [{"functionDeclarations": [{"name": ""}]}]}, "name"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "SOMETIMES"}}}, "mode"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "function_declarations"),
    ],
)
def test_an_invalid_request_is_rejected_with_its_field(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError, match=named):
        parse(**fields)


def test_a_stream_without_alt_sse_is_rejected() -> None:
    with pytest.raises(RequestError, match="alt"):
        Gemini().parse({"contents": CONTENTS}, {"model": "m", "method": "streamGenerateContent"})


def test_snake_case_names_are_accepted_too() -> None:
    assert parse(generation_config={"max_output_tokens": 9}).max_tokens == 9


def test_an_openapi_schema_becomes_a_json_schema() -> None:
    openapi = {"type": "OBJECT", "properties": {"type": {"type": "STRING"}}}
    held = {"responseMimeType": "application/json", "responseSchema": openapi}
    assert parse(generationConfig=held).schema == {
        "type": "object",
        "properties": {"type": {"type": "string"}},
    }


def test_the_mode_selects_the_functions_that_the_model_may_call() -> None:
    assert [tool.name for tool in calling()] == ["a", "b"]
    assert [tool.name for tool in calling(mode="ANY", allowedFunctionNames=["b"])] == ["b"]
    assert calling(mode="NONE") == ()
    with pytest.raises(RequestError, match="ANY"):
        calling(mode="AUTO", allowedFunctionNames=["b"])
    with pytest.raises(RequestError, match="declared"):
        calling(mode="ANY", allowedFunctionNames=["c"])


def test_only_the_last_event_has_a_reason_and_all_counts() -> None:
    call = parse()
    frames = Gemini().frames(call, Reply("ab", 2, True), ["a", "b"], Stamp(1, 0))
    first, last = (json.loads(frame.removeprefix(b"data: ")) for frame in frames)
    assert "finishReason" not in first["candidates"][0]
    assert last["candidates"][0]["finishReason"] == "MAX_TOKENS"
    assert last["usageMetadata"]["candidatesTokenCount"] == 2


def test_a_rejection_names_its_quota_and_the_wait_in_whole_seconds() -> None:
    quota, retry = details(Problem(429, "", "requests", EXCEEDED, retry_after_ms=21_001))
    assert quota["violations"][0]["quotaValue"] == "6"
    assert retry == {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "22s"}


def test_a_days_quota_reports_the_same_seconds_for_every_wait() -> None:
    _, retry = details(Problem(429, "", "day", Exceeded("m", "day", 1, 1, 1), retry_after_ms=40_000_000))
    assert retry["retryDelay"] == "22s"


def test_without_hints_a_rejection_has_no_details() -> None:
    assert details(Problem(429, "Rate limit reached", "requests")) == []


def test_a_wrong_key_is_an_argument_at_ai_studio_and_not_on_vertex() -> None:
    problem = Problem(401, "Incorrect API key provided.")
    assert (Gemini().status(problem), Vertex().status(problem)) == (400, 401)
    assert details(problem)[0]["reason"] == "API_KEY_INVALID"


def test_ai_studio_and_vertex_accept_different_keys() -> None:
    headers = {"x-goog-api-key": "k-1", "Authorization": "Bearer k-2"}
    assert (Gemini().presented_key(headers), Vertex().presented_key(headers)) == ("k-1", "k-2")
