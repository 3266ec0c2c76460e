"""Mistral gets its own names for parameters, and none that it would refuse."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.config.connections.connection import Connection
from fairlane_workers.providers.contract import Request
from tests.support.classified import dialect_of


def sent(params: dict[str, Any], stream: bool = True, **connection: str) -> dict[str, Any]:
    shown = Connection.model_validate(
        {"protocol": "openai", "base_url": "https://api.mistral.ai/v1", **connection}
    )
    request = Request("m", [{"role": "user", "content": "hi"}], params, stream, 1.0, 1024)
    return dialect_of(shown).body(request)


@pytest.mark.parametrize(
    "connection",
    [
        {},
        {"base_url": "https://codestral.mistral.ai/v1/"},
        {"base_url": "https://gateway.example/v1", "provider": "mistral"},
    ],
)
def test_mistral_is_not_asked_for_what_it_refuses(connection: dict[str, str]) -> None:
    body = sent({"max_completion_tokens": 5, "seed": 7, "temperature": 0}, **connection)
    assert set(body) == {"model", "messages", "stream", "max_tokens", "random_seed", "temperature"}
    assert (body["max_tokens"], body["random_seed"]) == (5, 7)


def test_what_changes_no_answer_is_left_out_where_mistral_lacks_it() -> None:
    idle = {"user": "u", "safety_identifier": "s", "store": False, "logit_bias": {}, "modalities": ["text"]}
    theirs = {"metadata": {"a": "b"}, "prompt_cache_key": "k", "n": 2, "logprobs": True, "top_k": 3}
    assert sent({**idle, **theirs}).keys() == {"model", "messages", "stream", *theirs}


def test_what_would_change_the_answer_is_left_to_mistral_to_refuse() -> None:
    assert sent({"logit_bias": {"5": 1}})["logit_bias"] == {"5": 1}


DUMP = {"refusal": None, "annotations": [], "audio": None, "reasoning_content": "hm"}
PDF, WAV = "data:application/pdf;base64,JVBERi0=", "UklGRg=="


def test_messages_have_what_mistral_knows_alone() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    parts = [
        {"type": "text", "text": "hi"},
        {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
        {"type": "file", "file": {"file_id": "f-1"}},
        {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}},
        {"type": "document_url", "document_url": "https://x/y.pdf"},
    ]
    messages = [
        {"role": "developer", "content": "Be brief.", "name": "ann"},
        {"role": "user", "content": parts, "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [call], **DUMP},
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "4"},
        {"role": "assistant", "content": "Four", "prefix": True, "tool_calls": None},
    ]
    connection = Connection.model_validate({"provider": "mistral"})
    body = dialect_of(connection).body(Request("m", messages, {}, False, 1.0, 1024))
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hi"},
                {"type": "document_url", "document_url": PDF, "document_name": "a.pdf"},
                {"type": "file", "file_id": "f-1"},
                {"type": "input_audio", "input_audio": WAV},
                {"type": "document_url", "document_url": "https://x/y.pdf"},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "4"},
        {"role": "assistant", "content": "Four", "prefix": True},
    ]
    assert messages[0]["role"] == "developer"


def test_names_of_mistral_win() -> None:
    body = sent(
        {"max_tokens": 3, "max_completion_tokens": 5, "random_seed": 1, "seed": 7, "stream_options": {}}
    )
    assert (body["max_tokens"], body["random_seed"]) == (3, 1)
    assert body["stream_options"] == {"include_usage": True}
    assert not {"max_completion_tokens", "seed"} & set(body)


@pytest.mark.parametrize(
    "connection",
    [
        {"base_url": "https://api.notmistral.ai/v1"},
        {"base_url": "https://api.mistral.ai/v1", "provider": "together"},
        {"base_url": "http://[::1"},
    ],
)
def test_other_servers_get_the_parameters_as_they_are(connection: dict[str, str]) -> None:
    body = sent({"max_completion_tokens": 5, "seed": 7}, **connection)
    assert (body["max_completion_tokens"], body["seed"]) == (5, 7)
    assert body["stream_options"] == {"include_usage": True}
