"""OpenAI's own client takes the simulated provider's responses for OpenAI's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import ResponseCompletedEvent, ResponseError, ResponseFunctionToolCall

from fairlane_workers.providers.protocols.openai.errors import LATE_STATUSES
from tests.support.sdk_calls import FUNCTION, KEY, MODEL, QUESTION, Forecast, simulated

TOOLS: Any = [{"type": "function", "strict": True, **FUNCTION}]


@contextmanager
def client(key: str = KEY, **model: Any) -> Iterator[OpenAI]:
    with (
        simulated(**model) as served,
        OpenAI(base_url=served.base_url, api_key=key, max_retries=0, timeout=10) as sdk,
    ):
        yield sdk


@pytest.mark.parametrize("given", ["four words of text", QUESTION])
def test_a_whole_response_has_its_text_usage_and_status(given: Any) -> None:
    with client() as sdk:
        response = sdk.responses.create(
            model=MODEL, input=given, instructions="Be brief.", max_output_tokens=16, temperature=0.5
        )
    assert response.output_text == "four words of text"
    assert (response.status, response.error, response.incomplete_details) == ("completed", None, None)
    assert (response.id, response.object, response.max_output_tokens) == ("resp_0", "response", 16)
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 0
    assert response.usage.input_tokens_details.cached_tokens == 0
    assert response.usage.output_tokens_details.reasoning_tokens == 0


def test_a_response_that_became_too_long_is_incomplete() -> None:
    with client(output="text", output_tokens=99) as sdk:
        response = sdk.responses.create(model=MODEL, input="x", max_output_tokens=16)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


def test_a_stream_reports_all_that_happens_in_its_order() -> None:
    with client() as sdk:
        events = list(sdk.responses.create(model=MODEL, input="four words of text", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) == len(events) - 8 == 4
    assert "".join(deltas) == "four words of text"
    last = events[-1]
    assert isinstance(last, ResponseCompletedEvent)
    assert last.response.output_text == "four words of text"
    assert last.response.usage is not None


def test_a_stream_that_became_too_long_ends_incomplete() -> None:
    with client(output="text", output_tokens=99) as sdk:
        events = list(sdk.responses.create(model=MODEL, input="x", max_output_tokens=16, stream=True))
    assert events[-1].type == "response.incomplete"


def test_the_async_client_streams_too() -> None:
    async def scenario() -> str:
        with simulated() as served:
            async with AsyncOpenAI(base_url=served.base_url, api_key=KEY, max_retries=0) as sdk:
                stream = await sdk.responses.create(model=MODEL, input="four words", stream=True)
                texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        return "".join(texts)

    assert asyncio.run(scenario()) == "four words"


def test_a_tool_is_called_with_arguments_that_its_schema_allows() -> None:
    with client(output="tool") as sdk:
        response = sdk.responses.create(model=MODEL, input="x", tools=TOOLS)
    (call,) = response.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, call.call_id, call.status) == ("forecast", "call_0", "completed")
    Forecast.model_validate_json(call.arguments)
    assert response.output_text == ""
    assert [tool.type for tool in response.tools] == ["function"]


def test_a_streamed_call_is_put_together() -> None:
    with client(output="tool") as sdk, sdk.responses.stream(model=MODEL, input="x", tools=TOOLS) as stream:
        deltas = [each.delta for each in stream if each.type == "response.function_call_arguments.delta"]
        (call,) = stream.get_final_response().output
    assert call.type == "function_call"
    assert "".join(deltas) == call.arguments
    assert len(deltas) == 2
    Forecast.model_validate_json(call.arguments)


def test_a_result_of_a_tool_is_part_of_the_input() -> None:
    said: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "four words of text"}]},
        {"type": "function_call", "call_id": "call_0", "name": "forecast", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_0", "output": "rain"},
    ]
    with client() as sdk:
        assert sdk.responses.create(model=MODEL, input=said).output_text == "four words of text"


def test_an_answer_follows_a_schema() -> None:
    with client(output="schema") as sdk:
        response = sdk.responses.parse(model=MODEL, input="x", text_format=Forecast)
    assert isinstance(response.output_parsed, Forecast)
    assert response.text is not None
    assert response.text.format is not None
    assert response.text.format.type == "json_schema"


def test_a_rate_limit_says_when_to_come_back() -> None:
    with client(requests_per_minute=6, headers="full") as sdk:
        sdk.responses.create(model=MODEL, input="x")
        with pytest.raises(openai.RateLimitError) as caught:
            sdk.responses.create(model=MODEL, input="x")
    assert caught.value.code == "rate_limit_exceeded"
    assert 8 <= int(caught.value.response.headers["retry-after"]) <= 11


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        ("insufficient_quota", openai.RateLimitError),
        (503, openai.InternalServerError),
    ],
)
def test_a_refusal_is_the_exception_that_openai_means(status: int | str, expected: type[Exception]) -> None:
    with client(status_always=status) as sdk, pytest.raises(expected):
        sdk.responses.create(model=MODEL, input="x")


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"extra_body": {"stop": ["."]}}, "Unknown parameter: 'stop'"),
        ({"extra_body": {"max_tokens": 50}}, "Unknown parameter: 'max_tokens'"),
        ({"extra_body": {"response_format": {"type": "text"}}}, "Unknown parameter: 'response_format'"),
        ({"stream_options": {"include_usage": True}}, "Unknown parameter: 'stream_options.include_usage'"),
        ({"max_output_tokens": 5}, "Expected a value >= 16"),
        ({"tools": [{"type": "function", "function": FUNCTION}]}, "tools\\[0\\].name"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "json_schema": {}}}}, "text.format.name"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
        ({"temperature": 3}, "temperature"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input\\[0\\]"),
        ({"input": []}, "input"),
    ],
)
def test_what_openai_does_not_understand_is_a_bad_request(params: Any, said: str) -> None:
    with client() as sdk, pytest.raises(openai.BadRequestError, match=said):
        sdk.responses.create(**{"model": MODEL, "input": "x", **params})


def test_an_error_in_mid_stream_is_raised() -> None:
    with client(faults={"error_in_stream": 1.0}) as sdk:
        stream = sdk.responses.create(model=MODEL, input="four words of text", stream=True)
        with pytest.raises(openai.APIError, match="Overloaded"):
            list(stream)


def test_tokens_are_counted() -> None:
    with client() as sdk:
        assert sdk.responses.input_tokens.count(model=MODEL, input="four words of text").input_tokens == 5


def test_a_refusal_is_a_part_of_its_own() -> None:
    with client(refusals=1.0) as sdk:
        response = sdk.responses.create(model=MODEL, input="x")
    (item,) = response.output
    assert item.type == "message"
    assert [part.type for part in item.content] == ["refusal"]


def test_every_code_of_a_failed_response_that_rejects_the_request_is_known() -> None:
    codes = set(get_args(ResponseError.model_fields["code"].annotation))
    assert codes - {"server_error", "vector_store_timeout"} <= set(LATE_STATUSES)
