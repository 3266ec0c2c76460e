"""Images, calls of tools and their results, in OpenAI's form, as each protocol writes them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from fairlane.config.connections.connection import Connection
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import UnmappableError
from tests.support.classified import connection_of, dialect_of
from tests.support.conversations import PNG, TURNS

NESTED = "[" * 100_000
"""JSON that is nested deeper than Python reads."""

TRANSLATED = ("anthropic", "gemini", "vertex", "bedrock", "ollama")


def body(protocol: str, messages: list[dict[str, Any]], **params: Any) -> Any:
    connection = connection_of(protocol)
    if protocol == "bedrock":
        connection = Connection.model_validate(
            {"protocol": "bedrock", "base_url": "https://bedrock-runtime.us-east-1.amazonaws.com"}
        )
    return dialect_of(connection).body(Request("m", messages, params, False, 1.0, 1024))


def test_anthropic_has_blocks_and_results_are_the_users() -> None:
    sent = body("anthropic", TURNS)
    assert sent["system"] == "Be brief."
    question, asked, results, answer = sent["messages"]
    assert question["content"] == [
        {"type": "text", "text": "Which animal, and how is the weather?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    ]
    assert asked == {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Rome"}},
            {"type": "tool_use", "id": "call_2", "name": "weather", "input": {}},
        ],
    }
    assert results == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "call_1", "content": '{"degrees": 20}'},
            {
                "type": "tool_result",
                "tool_use_id": "call_2",
                "content": [{"type": "text", "text": "no city"}],
            },
        ],
    }
    assert answer == {"role": "user", "content": "So?"}


@pytest.mark.parametrize("protocol", ["gemini", "vertex"])
def test_gemini_has_parts_and_names_the_function_of_a_result(protocol: str) -> None:
    sent = body(protocol, TURNS)
    assert sent["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    question, asked, results, _ = sent["contents"]
    assert question["parts"][1] == {"inlineData": {"mimeType": "image/png", "data": PNG}}
    assert asked == {
        "role": "model",
        "parts": [
            {"functionCall": {"name": "weather", "args": {"city": "Rome"}}, "thoughtSignature": "c2ln"},
            {"functionCall": {"name": "weather", "args": {}}},
        ],
    }
    assert results == {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": "weather", "response": {"degrees": 20}}},
            {"functionResponse": {"name": "weather", "response": {"output": "no city"}}},
        ],
    }


def test_converse_has_blocks_in_turns() -> None:
    sent = body("bedrock", TURNS)
    assert sent["system"] == [{"text": "Be brief."}]
    question, asked, results = sent["messages"]
    assert question["content"][1] == {"image": {"format": "png", "source": {"bytes": PNG}}}
    assert asked["content"][0] == {
        "toolUse": {"toolUseId": "call_1", "name": "weather", "input": {"city": "Rome"}}
    }
    assert [next(iter(block)) for block in results["content"]] == ["toolResult", "toolResult", "text"]
    assert results["content"][1] == {"toolResult": {"toolUseId": "call_2", "content": [{"text": "no city"}]}}


def test_ollama_has_images_beside_the_text_and_arguments_as_objects() -> None:
    _, question, asked, first, second, _ = body("ollama", TURNS)["messages"]
    assert question == {
        "role": "user",
        "content": "Which animal, and how is the weather?",
        "images": [PNG],
    }
    assert asked["tool_calls"][0] == {"function": {"name": "weather", "arguments": {"city": "Rome"}}}
    assert first == {"role": "tool", "content": '{"degrees": 20}', "tool_name": "weather"}
    assert second["content"] == "no city"


def user(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


WEB = image("https://example.com/cat.jpg?size=2")
AUDIO = {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}
PAGES = "JVBERi0xLjcK"
PDF = {"type": "file", "file": {"filename": "a_b.pdf", "file_data": f"data:application/pdf;base64,{PAGES}"}}
NOTE = {"type": "file", "file": {"file_data": "data:text/plain;base64,aGk="}}


@pytest.mark.parametrize(
    ("protocol", "part", "expected"),
    [
        ("anthropic", WEB, {"type": "image", "source": {"type": "url", "url": WEB["image_url"]["url"]}}),
        (
            "anthropic",
            PDF,
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PAGES},
                "title": "a_b.pdf",
            },
        ),
        (
            "anthropic",
            NOTE,
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}},
        ),
        (
            "gemini",
            WEB,
            {"fileData": {"mimeType": "image/jpeg", "fileUri": WEB["image_url"]["url"]}},
        ),
        ("gemini", AUDIO, {"inlineData": {"mimeType": "audio/wav", "data": PNG}}),
        ("gemini", PDF, {"inlineData": {"mimeType": "application/pdf", "data": PAGES}}),
        (
            "bedrock",
            image("s3://bucket/cat.webp"),
            {"image": {"format": "webp", "source": {"s3Location": {"uri": "s3://bucket/cat.webp"}}}},
        ),
        ("bedrock", AUDIO, {"audio": {"format": "wav", "source": {"bytes": PNG}}}),
        ("bedrock", PDF, {"document": {"format": "pdf", "name": "a-b-pdf", "source": {"bytes": PAGES}}}),
    ],
)
def test_a_part_is_written_as_the_protocol_has_it(
    protocol: str, part: dict[str, Any], expected: dict[str, Any]
) -> None:
    sent = body(protocol, user({"type": "text", "text": "See"}, part))
    message = (sent.get("messages") or sent["contents"])[0]
    assert (message.get("content") or message["parts"])[1] == expected


@pytest.mark.parametrize(
    ("protocol", "part", "words"),
    [
        ("anthropic", AUDIO, "takes no audio"),
        ("bedrock", {**AUDIO, "input_audio": {"data": PNG, "format": "midi"}}, "not audio/midi"),
        ("bedrock", WEB, "loads nothing from the web"),
        ("bedrock", image("data:image/tiff;base64,SUkqAA=="), "not image/tiff"),
        ("ollama", WEB, "loads no image"),
        ("ollama", PDF, "takes texts and images alone"),
        ("ollama", {"type": "input_text", "text": "hi"}, "no part of the type 'input_text'"),
        *[
            (protocol, part, words)
            for protocol in TRANSLATED
            for part, words in (
                (image("cat.png"), "an address or"),
                ({"type": "image_url", "image_url": ["https://x"]}, "OpenAI's form"),
                ({"type": "file", "file": {"file_id": "f-1"}}, "give file_data"),
            )
        ],
    ],
)
def test_what_a_protocol_cannot_say_is_refused_by_its_place(
    protocol: str, part: dict[str, Any], words: str
) -> None:
    with pytest.raises(UnmappableError, match=r"messages\[0\]\.content\[0\]") as refused:
        body(protocol, user(part))
    assert words in str(refused.value)


@pytest.mark.parametrize("protocol", TRANSLATED)
@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "model", "content": "x"}, r"messages\[0\]\.role"),
        ({"role": "user", "content": 5}, r"messages\[0\]\.content"),
        ({"role": "user", "content": ["x"]}, r"messages\[0\]\.content\[0\]"),
        ({"role": "assistant", "tool_calls": {}}, r"messages\[0\]\.tool_calls"),
        ({"role": "assistant", "tool_calls": [{}]}, r"tool_calls\[0\]"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
            r"arguments: this is no JSON",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[]"}}]},
            "a JSON object is expected",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": NESTED}}]},
            r"arguments: this is no JSON",
        ),
    ],
)
def test_a_malformed_message_is_refused_by_its_place(
    protocol: str, message: dict[str, Any], place: str
) -> None:
    with pytest.raises(UnmappableError, match=place):
        body(protocol, [message])


def test_a_result_whose_function_nobody_named_cannot_reach_gemini() -> None:
    result = {"role": "tool", "tool_call_id": "call_9", "content": "1"}
    with pytest.raises(UnmappableError, match="'call_9' is no call of an earlier message"):
        body("gemini", [result])
    sent = body("gemini", [{**result, "name": "weather"}])
    assert sent["contents"][0]["parts"][0]["functionResponse"]["name"] == "weather"


def test_a_result_that_is_nested_too_deep_reaches_gemini_as_a_text() -> None:
    sent = body("gemini", [{"role": "tool", "name": "f", "tool_call_id": "call_1", "content": NESTED}])
    assert sent["contents"][0]["parts"][0]["functionResponse"]["response"] == {"output": NESTED}


def test_a_schema_as_a_result_is_no_pointer_to_gemini() -> None:
    schema = '{"items": {"$ref": "#/$defs/city"}}'
    sent = body("gemini", [{"role": "tool", "name": "f", "tool_call_id": "call_1", "content": schema}])
    assert sent["contents"][0]["parts"][0]["functionResponse"]["response"] == {"output": schema}


def test_gemini_gets_no_empty_text() -> None:
    parts = [{"type": "text", "text": ""}, {"type": "text", "text": "hi"}]
    sent = body("gemini", [{"role": "system", "content": ""}, {"role": "user", "content": parts}])
    assert sent == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


@pytest.mark.parametrize("protocol", TRANSLATED)
def test_a_text_of_another_type_in_a_begun_answer_is_left_to_the_provider(protocol: str) -> None:
    begun = {"role": "assistant", "content": [{"type": "text", "text": 5}]}
    with suppress(UnmappableError):
        assert body(protocol, [{"role": "user", "content": "hi"}, begun])


@pytest.mark.parametrize("protocol", TRANSLATED)
def test_a_malformed_id_of_a_result_breaks_nothing(protocol: str) -> None:
    result = {"role": "tool", "tool_call_id": ["c"], "name": "f", "content": "x"}
    assert body(protocol, [{"role": "user", "content": "hi"}, result])


def test_a_result_of_a_tool_that_gemini_cannot_have_is_refused_by_its_place() -> None:
    result = {"role": "tool", "name": "f", "content": [{"type": "input_text", "text": "4"}]}
    with pytest.raises(UnmappableError, match=r"messages\[0\]\.content\[0\].*'input_text'"):
        body("gemini", [result])


def test_parts_in_a_protocols_own_form_stay() -> None:
    own = {
        "anthropic": {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
        "gemini": {"inlineData": {"mimeType": "image/png", "data": PNG}},
        "bedrock": {"cachePoint": {"type": "default"}},
    }
    for protocol, part in own.items():
        sent = body(protocol, user(part))
        message = (sent.get("messages") or sent["contents"])[0]
        assert (message.get("content") or message["parts"]) == [part]
    cached = {"type": "text", "text": "long", "cache_control": {"type": "ephemeral"}}
    assert body("anthropic", user(cached))["messages"][0]["content"] == [cached]
    system = [{"role": "system", "content": [cached]}, {"role": "user", "content": "hi"}]
    assert body("anthropic", system)["system"] == [cached]
    assert body("ollama", [{"role": "user", "content": "See", "images": [PNG]}])["messages"][0]["images"] == [
        PNG
    ]
