"""Images, calls of tools and their results are sent in the form that each vendor's own package takes."""

from __future__ import annotations

import base64
from typing import Any

import botocore.session
import ollama
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from botocore.validate import ParamValidator
from google.genai import types
from pydantic import ConfigDict, TypeAdapter, with_config

from fairlane.config.connections.connection import Connection
from fairlane_workers.providers.contract import Request
from tests.support.classified import dialect_of
from tests.support.conversations import TURNS, WEATHER

PDF = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}}
WITH_FILE = [*TURNS, {"role": "assistant", "content": "Sunny."}, {"role": "user", "content": [PDF]}]


def body(messages: list[dict[str, Any]], **connection: str) -> Any:
    dialect = dialect_of(Connection.model_validate(connection))
    return dialect.body(Request("m", messages, {"tools": [WEATHER]}, False, 1.0, 1024))


def test_anthropic() -> None:
    sent = body(WITH_FILE, provider="anthropic")
    sent.pop("stream", None)
    checked = TypeAdapter(with_config(ConfigDict(extra="forbid"))(MessageCreateParamsNonStreaming))
    checked.validate_python(sent)


def test_gemini() -> None:
    for connection in ({"provider": "gemini"}, {"protocol": "vertex", "base_url": "https://x/v1"}):
        sent = body(WITH_FILE, **connection)
        read = [types.Content.model_validate(each) for each in sent["contents"]]
        assert [content.role for content in read] == ["user", "model", "user", "user", "model", "user"]
        assert read[2].parts is not None
        assert [part.function_response is not None for part in read[2].parts] == [True, True]


def test_bedrock_converse() -> None:
    sent = body(WITH_FILE, protocol="bedrock", base_url="https://bedrock-runtime.us-east-1.amazonaws.com")
    shape = (
        botocore.session.get_session()
        .get_service_model("bedrock-runtime")
        .operation_model("Converse")
        .input_shape
    )
    report = ParamValidator().validate({"modelId": "m", **_with_bytes(sent)}, shape)
    assert not report.has_errors(), report.generate_report()


def test_ollama() -> None:
    for message in body(TURNS, provider="ollama")["messages"]:
        read = ollama.Message.model_validate({**message, "images": None}, extra="forbid")
        assert read.role == message["role"]


def _with_bytes(value: Any) -> Any:
    """The body as boto3 takes it: it writes base64 itself."""
    if isinstance(value, dict):
        return {
            name: base64.b64decode(part) if name == "bytes" else _with_bytes(part)
            for name, part in value.items()
        }
    return [_with_bytes(part) for part in value] if isinstance(value, list) else value
