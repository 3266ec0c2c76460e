"""OpenAI's client for Azure takes the simulated provider for Azure OpenAI."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from openai import AsyncAzureOpenAI, AzureOpenAI, OpenAI

from tests.support.sdk_calls import KEY, MODEL, QUESTION, TOOLS, Forecast, simulated

VERSION = "2024-10-21"


@contextmanager
def client(key: str = KEY, version: str = VERSION, **model: Any) -> Iterator[AzureOpenAI]:
    with (
        simulated(**model) as served,
        AzureOpenAI(
            azure_endpoint=served.url, api_version=version, api_key=key, max_retries=0, timeout=10
        ) as sdk,
    ):
        yield sdk


def test_a_whole_answer_has_text_usage_and_what_the_filter_found() -> None:
    with client() as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION)
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("four words of text", "stop")
    assert answer.usage is not None
    assert answer.usage.total_tokens > 0
    assert answer.model_extra is not None
    assert choice.model_extra is not None
    assert answer.model_extra["prompt_filter_results"][0]["prompt_index"] == 0
    assert choice.model_extra["content_filter_results"]["hate"] == {"filtered": False, "severity": "safe"}


def test_a_stream_begins_with_what_the_filter_found() -> None:
    options: Any = {"include_usage": True}
    with client() as sdk:
        first, *chunks, last = sdk.chat.completions.create(
            model=MODEL, messages=QUESTION, stream=True, stream_options=options
        )
    assert first.choices == []
    assert first.model_extra is not None
    assert "prompt_filter_results" in first.model_extra
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "four words of text"
    assert last.usage is not None


def test_the_async_client_streams_too() -> None:
    async def scenario() -> str:
        with simulated() as served:
            async with AsyncAzureOpenAI(
                azure_endpoint=served.url, api_version=VERSION, api_key=KEY, max_retries=0
            ) as sdk:
                stream = await sdk.chat.completions.create(model=MODEL, messages=QUESTION, stream=True)
                chunks = [chunk async for chunk in stream]
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    assert asyncio.run(scenario()) == "four words of text"


def test_a_client_of_one_deployment_reaches_it() -> None:
    with (
        simulated() as served,
        AzureOpenAI(
            azure_endpoint=served.url,
            azure_deployment=MODEL,
            api_version=VERSION,
            api_key=KEY,
            max_retries=0,
        ) as sdk,
    ):
        answer = sdk.chat.completions.create(model="whatever", messages=QUESTION)
    assert answer.choices[0].message.content == "four words of text"


def test_a_token_of_entra_is_taken_too() -> None:
    with (
        simulated() as served,
        AzureOpenAI(azure_endpoint=served.url, api_version=VERSION, azure_ad_token=KEY, max_retries=0) as sdk,
    ):
        assert sdk.chat.completions.create(model=MODEL, messages=QUESTION).choices


def test_the_v1_api_needs_no_version() -> None:
    with (
        simulated() as served,
        OpenAI(base_url=f"{served.url}/openai/v1/", api_key=KEY, max_retries=0) as sdk,
    ):
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION)
    assert answer.choices[0].message.content == "four words of text"


def test_a_tool_is_called() -> None:
    with client(output="tool") as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, tools=TOOLS)
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    Forecast.model_validate_json(call.function.arguments)


def test_an_answer_follows_a_schema() -> None:
    with client(output="schema") as sdk:
        answer = sdk.chat.completions.parse(model=MODEL, messages=QUESTION, response_format=Forecast)
    assert isinstance(answer.choices[0].message.parsed, Forecast)


def test_a_rate_limit_has_azures_code_and_headers() -> None:
    with client(requests_per_minute=6, headers="full") as sdk:
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)
        with pytest.raises(openai.RateLimitError, match="have exceeded call rate limit") as caught:
            sdk.chat.completions.create(model=MODEL, messages=QUESTION)
    headers = caught.value.response.headers
    assert caught.value.code == "429"
    assert 8 <= int(headers["retry-after"]) <= 11
    assert headers["x-ratelimit-renewalperiod-requests"] == "10"
    assert headers["apim-request-id"]


def test_a_wrong_key_is_refused_in_azures_words() -> None:
    with (
        client("sk-wrong") as sdk,
        pytest.raises(openai.AuthenticationError, match="subscription key") as caught,
    ):
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)
    assert caught.value.code == "401"


def test_an_unknown_deployment_is_not_found() -> None:
    with client() as sdk, pytest.raises(openai.NotFoundError) as caught:
        sdk.chat.completions.create(model="m-2", messages=QUESTION)
    assert caught.value.code == "DeploymentNotFound"


def test_an_unknown_version_is_not_found() -> None:
    with client(version="tomorrow") as sdk, pytest.raises(openai.NotFoundError, match="Resource not found"):
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, openai.BadRequestError),
        ("insufficient_quota", openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
def test_a_refusal_is_the_exception_that_azure_means(status: int | str, expected: type[Exception]) -> None:
    with client(status_always=status) as sdk, pytest.raises(expected):
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)


def test_an_error_in_mid_stream_is_raised() -> None:
    with client(faults={"error_in_stream": 1.0}) as sdk:
        stream = sdk.chat.completions.create(model=MODEL, messages=QUESTION, stream=True)
        with pytest.raises(openai.APIError, match="Overloaded"):
            list(stream)


def test_a_deployment_embeds_texts() -> None:
    with client() as sdk:
        answer = sdk.embeddings.create(model=MODEL, input=["a cat", "a dog"])
    assert [len(each.embedding) for each in answer.data] == [32, 32]
