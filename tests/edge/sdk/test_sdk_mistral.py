"""Mistral's own client takes the simulated provider for Mistral, and so does a worker that knows Mistral."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from mistralai.client import Mistral
from mistralai.client.errors import HTTPValidationError, SDKError
from pydantic import SecretStr

from fairlane.config.connections.connection import Connection
from fairlane.model.outcome import Outcome, PermanentFailure, Success
from fairlane_workers.providers.registry import build_provider
from tests.support.provider_calls import ask, streamed_or_not
from tests.support.sdk_calls import KEY, MODEL, QUESTION, SCHEMA, TOOLS, Forecast, simulated


@contextmanager
def client(key: str = KEY, **model: Any) -> Iterator[Mistral]:
    with (
        simulated(**model) as served,
        Mistral(server_url=f"{served.url}/mistral", api_key=key, timeout_ms=10_000) as sdk,
    ):
        yield sdk


def test_a_whole_answer_has_its_text_usage_and_reason() -> None:
    with client() as sdk:
        answer = sdk.chat.complete(model=MODEL, messages=QUESTION, temperature=0, random_seed=1)
    (choice,) = answer.choices
    assert choice.message is not None
    assert (choice.message.content, choice.finish_reason) == ("four words of text", "stop")
    assert answer.usage.total_tokens


def test_a_stream_has_the_same_text_and_ends_with_usage() -> None:
    with client() as sdk, sdk.chat.stream(model=MODEL, messages=QUESTION) as stream:
        chunks = [event.data for event in stream]
    assert "".join(str(chunk.choices[0].delta.content or "") for chunk in chunks) == "four words of text"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert [bool(chunk.usage) for chunk in chunks[-2:]] == [False, True]


def test_the_async_client_streams_too() -> None:
    async def scenario() -> str:
        with simulated() as served:
            async with Mistral(server_url=f"{served.url}/mistral", api_key=KEY) as sdk:
                stream = await sdk.chat.stream_async(model=MODEL, messages=QUESTION)
                texts = [str(event.data.choices[0].delta.content or "") async for event in stream]
        return "".join(texts)

    assert asyncio.run(scenario()) == "four words of text"


def test_a_tool_is_called() -> None:
    with client(output="tool") as sdk:
        answer = sdk.chat.complete(model=MODEL, messages=QUESTION, tools=TOOLS)
    (choice,) = answer.choices
    assert choice.message is not None
    assert choice.message.tool_calls
    call = choice.message.tool_calls[0]
    assert (call.function.name, choice.finish_reason) == ("forecast", "tool_calls")
    Forecast.model_validate_json(str(call.function.arguments))


def test_an_answer_follows_a_schema() -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "forecast", "schema": SCHEMA}}
    with client(output="schema") as sdk:
        answer = sdk.chat.complete(model=MODEL, messages=QUESTION, response_format=form)
    assert answer.choices[0].message is not None
    Forecast.model_validate_json(str(answer.choices[0].message.content))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (429, "rate_limited"),
        (404, "invalid_model"),
        (503, "service_unavailable"),
    ],
)
def test_a_refusal_has_its_status_and_mistrals_words(status: int, kind: str) -> None:
    with client(status_always=status) as sdk, pytest.raises(SDKError) as caught:
        sdk.chat.complete(model=MODEL, messages=QUESTION)
    assert caught.value.status_code == status
    assert json.loads(caught.value.body)["type"] == kind


def test_a_rate_limit_says_when_to_come_back() -> None:
    with client(requests_per_minute=6, headers="full") as sdk:
        sdk.chat.complete(model=MODEL, messages=QUESTION)
        with pytest.raises(SDKError) as caught:
            sdk.chat.complete(model=MODEL, messages=QUESTION)
    assert 8 <= int(caught.value.headers["retry-after"]) <= 11


def test_a_wrong_key_is_refused() -> None:
    with client("sk-wrong") as sdk, pytest.raises(SDKError, match="Unauthorized") as caught:
        sdk.chat.complete(model=MODEL, messages=QUESTION)
    assert caught.value.status_code == 401


def test_what_mistral_does_not_understand_is_named() -> None:
    with client() as sdk, pytest.raises(HTTPValidationError) as caught:
        sdk.chat.complete(model=MODEL, messages=QUESTION, temperature=3)
    assert caught.value.status_code == 422
    assert json.loads(caught.value.body)["message"]["detail"][0]["loc"] == ["body", "temperature"]


# The worker


def worked(stream: bool, provider: str | None, **params: Any) -> Outcome:
    async def scenario() -> Outcome:
        with simulated() as served:
            shown = {"protocol": "openai", "base_url": f"{served.url}/mistral/v1", "provider": provider}
            worker = build_provider("c", Connection.model_validate(shown), SecretStr(KEY))
            try:
                return await worker.call(ask(stream, **params))
            finally:
                await worker.aclose()

    return asyncio.run(scenario())


@streamed_or_not
def test_a_worker_that_knows_mistral_is_answered_with_usage(stream: bool) -> None:
    outcome = worked(stream, "mistral", max_completion_tokens=50, seed=7)
    assert isinstance(outcome, Success)
    assert outcome.output == "hi"
    assert outcome.usage.input_tokens
    assert outcome.usage.output_tokens


def test_a_worker_that_does_not_know_it_sees_what_is_wrong() -> None:
    outcome = worked(True, None)
    assert outcome == PermanentFailure("stream_options: Extra inputs are not permitted", 422)


def test_texts_are_embedded() -> None:
    with client() as sdk:
        answer = sdk.embeddings.create(model=MODEL, inputs=["a cat", "a dog"])
    assert [len(each.embedding or []) for each in answer.data] == [32, 32]
    assert answer.usage.completion_tokens == 0
