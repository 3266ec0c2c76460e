"""What adapters send to a provider itself is in the schema that the provider's own package publishes."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from anthropic.types.message_create_params import MessageCreateParamsBase as AnthropicRequest
from openai.types import EmbeddingCreateParams
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatRequest
from openai.types.responses.response_create_params import ResponseCreateParamsBase as ResponsesRequest

from fairlane.config.connections.connection import Connection
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import UnmappableError
from tests.support.classified import dialect_of

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
PARAMS: dict[str, Any] = {
    "max_tokens": 64,
    "max_completion_tokens": 64,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "stop": ["END"],
    "seed": 1,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "response_format": SCHEMA,
    "tools": [TOOL],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "user": "u",
    "reasoning_effort": "low",
    "logprobs": True,
    "n": 2,
}
SAMPLING = {"temperature", "top_p", "top_k"}
OPENAI = {"provider": "openai"}
CASES = [
    (OPENAI, ChatRequest),
    ({"provider": "azure_openai", "base_url": "https://x.openai.azure.com/openai/v1"}, ChatRequest),
    ({"protocol": "openai_responses", "base_url": "https://api.openai.com/v1"}, ResponsesRequest),
    ({"provider": "anthropic"}, AnthropicRequest),
]


@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize(("connection", "schema"), CASES)
def test_a_parameter_is_sent_in_the_published_schema_or_refused(
    connection: dict[str, str], schema: type, name: str
) -> None:
    params = {name: PARAMS[name]} if name != "tool_choice" else {name: PARAMS[name], "tools": [TOOL]}
    request = Request("m", [{"role": "user", "content": "hi"}], params, False, 1.0, 1024)
    try:
        body = dialect_of(Connection.model_validate(connection)).body(request)
    except UnmappableError as refused:
        assert f"params.{name}" in str(refused)  # noqa: PT017  either is right
    else:
        # Anthropic's older models take sampling parameters, which its package has dropped with newer ones.
        older = SAMPLING if schema is AnthropicRequest else set()
        assert body.keys() - {"stream"} - older <= get_type_hints(schema).keys()


def test_embeddings_have_the_published_schema() -> None:
    request = Request("m", [], {"dimensions": 8, "user": "u"}, False, 1.0, 1024, inputs=("a",))
    dialect = type(dialect_of(Connection.model_validate(OPENAI))).embeddings_of(
        Connection.model_validate(OPENAI)
    )
    assert dialect is not None
    assert dialect.body(request).keys() <= get_type_hints(EmbeddingCreateParams).keys()


@pytest.mark.parametrize(
    ("connection", "name"),
    [
        ({"protocol": "openai", "base_url": "http://vllm:8000/v1"}, "top_k"),
        ({"provider": "together"}, "top_k"),
    ],
)
def test_other_servers_of_a_protocol_have_more(connection: dict[str, str], name: str) -> None:
    request = Request("m", [{"role": "user", "content": "hi"}], {name: 1}, False, 1.0, 1024)
    assert dialect_of(Connection.model_validate(connection)).body(request)[name] == 1
