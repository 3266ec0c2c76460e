"""Together's own client takes the simulated provider for Together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import together
from together import AsyncTogether, Together

from tests.support.sdk_calls import KEY, MODEL, QUESTION, SCHEMA, TOOLS, Forecast, simulated


@contextmanager
def client(key: str = KEY, **model: Any) -> Iterator[Together]:
    with (
        simulated(**model) as served,
        Together(base_url=served.url, api_key=key, max_retries=0, timeout=10) as sdk,
    ):
        yield sdk


def test_a_whole_answer_has_its_text_usage_and_reason() -> None:
    with client() as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=50)
    (choice,) = answer.choices
    assert choice.message is not None
    assert (choice.message.content, choice.finish_reason) == ("four words of text", "stop")
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
            async with AsyncTogether(base_url=served.url, api_key=KEY, max_retries=0) as sdk:
                stream = await sdk.chat.completions.create(model=MODEL, messages=QUESTION, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(scenario()) == "four words of text"


def test_a_tool_is_called() -> None:
    with client(output="tool") as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, tools=TOOLS)
    (choice,) = answer.choices
    assert choice.message is not None
    (call,) = choice.message.tool_calls or []
    assert (call.function.name, choice.finish_reason) == ("forecast", "tool_calls")
    Forecast.model_validate_json(call.function.arguments)


def test_an_answer_follows_a_schema() -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "forecast", "schema": SCHEMA}}
    with client(output="schema") as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, response_format=form)
    assert answer.choices[0].message is not None
    Forecast.model_validate_json(answer.choices[0].message.content or "")


def test_a_rate_limit_counts_by_the_second() -> None:
    limited = {"requests_per_minute": 60, "headers": "full", "header_style": "together"}
    with client(**limited) as sdk:
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)
        with pytest.raises(together.RateLimitError) as caught:
            sdk.chat.completions.create(model=MODEL, messages=QUESTION)
    headers = caught.value.response.headers
    assert headers["retry-after"] == "1"
    assert headers["x-ratelimit-limit"] == "1"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, together.BadRequestError),
        (401, together.AuthenticationError),
        (404, together.NotFoundError),
        (503, together.InternalServerError),
    ],
)
def test_a_refusal_is_the_exception_that_together_means(status: int, expected: type[Exception]) -> None:
    with client(status_always=status) as sdk, pytest.raises(expected):
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)


def test_a_wrong_key_is_refused() -> None:
    with client("sk-wrong") as sdk, pytest.raises(together.AuthenticationError):
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)


def test_an_error_in_mid_stream_is_raised() -> None:
    with client(faults={"error_in_stream": 1.0}) as sdk:
        stream = sdk.chat.completions.create(model=MODEL, messages=QUESTION, stream=True)
        with pytest.raises(together.APIError, match="Overloaded"):
            list(stream)
