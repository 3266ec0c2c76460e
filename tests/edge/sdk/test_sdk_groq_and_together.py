"""The clients of Groq and of Together take the simulated provider for theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import groq
import pytest
import together

from tests.support.sdk_calls import KEY, MODEL, QUESTION, SCHEMA, TOOLS, Forecast, simulated


@dataclass(frozen=True)
class Vendor:
    """A client library: its classes, where it looks for the API below a server, and what it calls a limit."""

    sdk: ModuleType
    sync: Callable[..., Any]
    asynchronous: Callable[..., Any]
    path: str
    most: str

    @contextmanager
    def client(self, key: str = KEY, **model: Any) -> Iterator[Any]:
        with (
            simulated(**model) as served,
            self.sync(base_url=served.url + self.path, api_key=key, max_retries=0, timeout=10) as client,
        ):
            yield client


GROQ = Vendor(groq, groq.Groq, groq.AsyncGroq, "/groq", "max_completion_tokens")
TOGETHER = Vendor(together, together.Together, together.AsyncTogether, "", "max_tokens")

either = pytest.mark.parametrize("vendor", [GROQ, TOGETHER], ids=lambda vendor: vendor.sdk.__name__)


@either
def test_a_whole_answer_has_its_text_usage_and_reason(vendor: Vendor) -> None:
    with vendor.client() as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, **{vendor.most: 50})
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("four words of text", "stop")
    assert answer.usage.total_tokens > 0


@either
def test_a_stream_has_the_same_text(vendor: Vendor) -> None:
    with vendor.client() as sdk:
        chunks = list(sdk.chat.completions.create(model=MODEL, messages=QUESTION, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "four words of text"
    assert chunks[-1].choices[0].finish_reason == "stop"


@either
def test_the_async_client_streams_too(vendor: Vendor) -> None:
    async def scenario() -> str:
        with simulated() as served:
            address = served.url + vendor.path
            async with vendor.asynchronous(base_url=address, api_key=KEY, max_retries=0) as sdk:
                stream = await sdk.chat.completions.create(model=MODEL, messages=QUESTION, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(scenario()) == "four words of text"


@either
def test_a_tool_is_called(vendor: Vendor) -> None:
    with vendor.client(output="tool") as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, tools=TOOLS)
    (choice,) = answer.choices
    (call,) = choice.message.tool_calls
    assert (call.function.name, choice.finish_reason) == ("forecast", "tool_calls")
    Forecast.model_validate_json(call.function.arguments)


@either
def test_an_answer_follows_a_schema(vendor: Vendor) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "forecast", "schema": SCHEMA}}
    with vendor.client(output="schema") as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, response_format=form)
    Forecast.model_validate_json(answer.choices[0].message.content or "")


def refused_second(vendor: Vendor, **limits: Any) -> Any:
    """The headers that the second of two calls is refused with."""
    with vendor.client(headers="full", **limits) as sdk:
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)
        with pytest.raises(vendor.sdk.RateLimitError) as caught:
            sdk.chat.completions.create(model=MODEL, messages=QUESTION)
    return caught.value.response.headers


def test_groqs_rate_limit_says_when_to_come_back_and_counts_requests_by_the_day() -> None:
    headers = refused_second(GROQ, requests_per_day=1, header_style="groq")
    assert int(headers["retry-after"]) > 60
    assert headers["x-ratelimit-limit-requests"] == "1"


def test_togethers_rate_limit_counts_by_the_second() -> None:
    headers = refused_second(TOGETHER, requests_per_minute=60, header_style="together")
    assert headers["retry-after"] == "1"
    assert headers["x-ratelimit-limit"] == "1"


@either
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "BadRequestError"),
        (401, "AuthenticationError"),
        (404, "NotFoundError"),
        (422, "UnprocessableEntityError"),
        (503, "InternalServerError"),
    ],
)
def test_a_refusal_is_the_exception_that_they_mean(vendor: Vendor, status: int, expected: str) -> None:
    with vendor.client(status_always=status) as sdk, pytest.raises(getattr(vendor.sdk, expected)):
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)


@either
def test_a_wrong_key_is_refused(vendor: Vendor) -> None:
    with vendor.client("sk-wrong") as sdk, pytest.raises(vendor.sdk.AuthenticationError):
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)


@either
def test_an_error_in_mid_stream_is_raised(vendor: Vendor) -> None:
    with vendor.client(faults={"error_in_stream": 1.0}) as sdk:
        stream = sdk.chat.completions.create(model=MODEL, messages=QUESTION, stream=True)
        with pytest.raises(vendor.sdk.APIError, match="Overloaded"):
            list(stream)
