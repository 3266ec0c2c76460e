"""Groq's own client takes the simulated provider for Groq."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import groq
import pytest
from groq import AsyncGroq, Groq

from tests.support.sdk_calls import KEY, MODEL, QUESTION, SCHEMA, TOOLS, Forecast, simulated


@contextmanager
def client(key: str = KEY, **model: Any) -> Iterator[Groq]:
    with (
        simulated(**model) as served,
        Groq(base_url=f"{served.url}/groq", api_key=key, max_retries=0, timeout=10) as sdk,
    ):
        yield sdk


def test_a_whole_answer_has_its_text_usage_and_reason() -> None:
    with client() as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, max_completion_tokens=50)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (
        "four words of text",
        "stop",
    )
    assert answer.usage is not None
    assert answer.usage.total_tokens > 0


def test_a_stream_has_the_same_text() -> None:
    with client() as sdk:
        chunks = list(sdk.chat.completions.create(model=MODEL, messages=QUESTION, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "four words of text"
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_the_async_client_streams_too() -> None:
    async def scenario() -> str:
        with simulated() as served:
            async with AsyncGroq(base_url=f"{served.url}/groq", api_key=KEY, max_retries=0) as sdk:
                stream = await sdk.chat.completions.create(model=MODEL, messages=QUESTION, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(scenario()) == "four words of text"


def test_a_tool_is_called() -> None:
    with client(output="tool") as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, tools=TOOLS)
    (call,) = answer.choices[0].message.tool_calls or []
    assert (call.function.name, answer.choices[0].finish_reason) == ("forecast", "tool_calls")
    Forecast.model_validate_json(call.function.arguments)


def test_an_answer_follows_a_schema() -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "forecast", "schema": SCHEMA}}
    with client(output="schema") as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, response_format=form)
    Forecast.model_validate_json(answer.choices[0].message.content or "")


def test_a_rate_limit_says_when_to_come_back_and_counts_requests_by_the_day() -> None:
    limited = {"requests_per_day": 1, "headers": "full", "header_style": "groq"}
    with client(**limited) as sdk:
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)
        with pytest.raises(groq.RateLimitError) as caught:
            sdk.chat.completions.create(model=MODEL, messages=QUESTION)
    headers = caught.value.response.headers
    assert int(headers["retry-after"]) > 60
    assert headers["x-ratelimit-limit-requests"] == "1"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, groq.BadRequestError),
        (401, groq.AuthenticationError),
        (404, groq.NotFoundError),
        (422, groq.UnprocessableEntityError),
        (503, groq.InternalServerError),
    ],
)
def test_a_refusal_is_the_exception_that_groq_means(status: int, expected: type[Exception]) -> None:
    with client(status_always=status) as sdk, pytest.raises(expected):
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)


def test_a_wrong_key_is_refused() -> None:
    with client("sk-wrong") as sdk, pytest.raises(groq.AuthenticationError):
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)


def test_an_error_in_mid_stream_is_raised() -> None:
    with client(faults={"error_in_stream": 1.0}) as sdk:
        stream = sdk.chat.completions.create(model=MODEL, messages=QUESTION, stream=True)
        with pytest.raises(groq.APIError, match="Overloaded"):
            list(stream)
