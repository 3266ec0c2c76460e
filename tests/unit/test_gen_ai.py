"""Spans of models' calls carry the names and values of OpenTelemetry's conventions."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as conventions
from opentelemetry.semconv.attributes import error_attributes, server_attributes

from fairlane.config.connections.connection import Connection
from fairlane.model.outcome import RateLimited, Success
from fairlane.model.tokens import Usage
from fairlane.pipeline.rendering import Call
from fairlane_workers.providers.answers.answer import Answer
from fairlane_workers.providers.answers.classify import Reading, conclude
from fairlane_workers.telemetry.spans import attributes, provider_name, span_name

NAMING = getattr(conventions, "GenAiProviderNameValues", None)
names_providers = pytest.mark.skipif(
    NAMING is None, reason="these conventions are older than the names in use"
)

PARAMS: dict[str, Any] = {
    "temperature": 1,
    "top_p": 0.5,
    "top_k": 3,
    "max_tokens": 9,
    "seed": 7,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.2,
    "stop": ["a secret"],
}
CHAT = Call("sim:ft:gpt:org", [{"role": "user", "content": "a secret"}], PARAMS)


def connection(**fields: Any) -> Connection:
    return Connection.model_validate(fields)


@names_providers
def test_every_name_is_one_of_the_conventions() -> None:
    known = {
        value
        for room in (conventions, error_attributes, server_attributes)
        for name, value in vars(room).items()
        if name.isupper()
    }
    answer = Success("a secret", Usage(5, 2, 1), "stop", model="gpt-1")
    fields = attributes(CHAT, answer, connection(provider="openai"))
    assert fields.keys() <= known
    assert len(fields) == 17
    assert "secret" not in repr(fields)


def test_a_span_is_named_for_operation_and_model() -> None:
    assert span_name(CHAT) == "chat ft:gpt:org"
    embedding = Call("sim:e", [], {}, inputs=("x",))
    assert span_name(embedding) == "embeddings e"
    assert attributes(embedding, None, None) == {
        "gen_ai.operation.name": conventions.GenAiOperationNameValues.EMBEDDINGS.value,
        "gen_ai.request.model": "e",
    }


def test_a_refused_call_has_its_request_alone() -> None:
    fields = attributes(CHAT, RateLimited("no"), None)
    assert not [name for name in fields if name.startswith(("gen_ai.response", "gen_ai.usage"))]


@names_providers
@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"provider": "openai"}, "openai"),
        ({"provider": "anthropic"}, "anthropic"),
        ({"provider": "gemini"}, "gcp.gemini"),
        ({"provider": "mistral"}, "mistral_ai"),
        ({"provider": "xai"}, "x_ai"),
        ({"provider": "groq"}, "groq"),
        ({"provider": "deepseek"}, "deepseek"),
        ({"provider": "bedrock", "region": "us-east-1"}, "aws.bedrock"),
        ({"provider": "vertex", "region": "us-east5", "project": "p"}, "gcp.vertex_ai"),
        ({"provider": "azure_openai", "base_url": "https://x.openai.azure.com/openai"}, "azure.ai.openai"),
        ({"provider": "openrouter"}, "openrouter"),
        ({"protocol": "openai", "base_url": "https://api.deepseek.com/v1"}, "deepseek"),
        ({"protocol": "openai", "base_url": "http://vllm:8000/v1"}, "openai"),
        ({"protocol": "openai", "base_url": "http://127.0.0.1:9000/v1"}, "openai"),
        ({"protocol": "openai_responses", "base_url": "http://x/v1"}, "openai"),
    ],
)
def test_providers_have_the_names_of_the_conventions(fields: dict[str, Any], name: str) -> None:
    assert provider_name(connection(**fields)) == name
    assert NAMING is not None
    assert name in {each.value for each in NAMING} | {"openrouter"}


def test_the_model_that_answers_is_the_first_that_an_answer_names() -> None:
    answer = Answer(ended=True, parts=["yes"])
    for name in (None, "", "gpt-1-2026", "other"):
        answer.name_model(name)
    outcome = conclude(answer, 200, {}, Reading(), now_ms=0)
    assert isinstance(outcome, Success)
    assert outcome.model == "gpt-1-2026"
