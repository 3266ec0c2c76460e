"""OpenAI's own client takes the simulated provider's chat completions for OpenAI's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.support.sdk_calls import KEY, MODEL, QUESTION, TOOLS, Forecast, simulated

LIMITED = {"requests_per_minute": 6, "headers": "full"}


@contextmanager
def client(key: str = KEY, **model: Any) -> Iterator[OpenAI]:
    with (
        simulated(**model) as served,
        OpenAI(base_url=served.base_url, api_key=key, max_retries=0, timeout=10) as sdk,
    ):
        yield sdk


def test_a_whole_answer_has_its_text_usage_and_reason() -> None:
    with client() as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0, max_tokens=50)
    (choice,) = answer.choices
    assert (choice.message.content, choice.message.role) == ("four words of text", "assistant")
    assert (choice.finish_reason, choice.message.refusal, choice.message.tool_calls) == ("stop", None, None)
    assert (answer.object, answer.model, answer.id) == ("chat.completion", MODEL, "chatcmpl-0")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0


def test_an_answer_that_max_tokens_ended_says_so() -> None:
    with client() as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, max_completion_tokens=2)
    assert answer.choices[0].finish_reason == "length"


def test_a_stream_has_the_same_text_and_ends_with_usage() -> None:
    options: Any = {"include_usage": True}
    with client() as sdk:
        stream = sdk.chat.completions.create(
            model=MODEL, messages=QUESTION, stream=True, stream_options=options
        )
        *chunks, last = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "four words of text"
    assert len(chunks) > 3
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["stop"]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens > 0


def test_the_async_client_streams_too() -> None:
    async def scenario() -> str:
        with simulated() as served:
            async with AsyncOpenAI(base_url=served.base_url, api_key=KEY, max_retries=0) as sdk:
                stream = await sdk.chat.completions.create(model=MODEL, messages=QUESTION, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(scenario()) == "four words of text"


def test_a_tool_is_called_with_arguments_that_its_schema_allows() -> None:
    with client(output="tool") as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, tools=TOOLS)
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, call.id) == ("forecast", "call_0")
    Forecast.model_validate_json(call.function.arguments)


def test_a_streamed_call_is_put_together() -> None:
    with (
        client(output="tool") as sdk,
        sdk.chat.completions.stream(model=MODEL, messages=QUESTION, tools=TOOLS) as stream,
    ):
        deltas = [
            event.arguments_delta
            for event in stream
            if event.type == "tool_calls.function.arguments.delta" and event.arguments_delta
        ]
        answer = stream.get_final_completion()
    (call,) = answer.choices[0].message.tool_calls or []
    assert "".join(deltas) == call.function.arguments
    assert len(deltas) == 2
    Forecast.model_validate_json(call.function.arguments)


@pytest.mark.parametrize("choice", ["none", "auto"])
def test_no_tool_is_called_where_none_is_to_be(choice: Any) -> None:
    with client(output="tool") as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, tools=TOOLS, tool_choice=choice)
    assert bool(answer.choices[0].message.tool_calls) == (choice == "auto")


def test_an_answer_follows_a_schema() -> None:
    with client(output="schema") as sdk:
        answer = sdk.chat.completions.parse(model=MODEL, messages=QUESTION, response_format=Forecast)
    assert isinstance(answer.choices[0].message.parsed, Forecast)


def test_a_rate_limit_says_when_to_come_back() -> None:
    with client(**LIMITED) as sdk:
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)
        with pytest.raises(openai.RateLimitError) as caught:
            sdk.chat.completions.create(model=MODEL, messages=QUESTION)
    headers = caught.value.response.headers
    assert (caught.value.code, caught.value.type) == ("rate_limit_exceeded", "requests")
    assert "Rate limit reached for m-1 on requests per min (RPM): Limit 6" in caught.value.message
    assert 8 <= int(headers["retry-after"]) <= 11
    assert 8_000 < int(headers["retry-after-ms"]) <= 11_000
    assert headers["x-ratelimit-limit-requests"] == "6"


@pytest.mark.parametrize(
    ("status", "expected", "code"),
    [
        (400, openai.BadRequestError, None),
        (401, openai.AuthenticationError, "invalid_api_key"),
        (403, openai.PermissionDeniedError, "model_not_found"),
        ("insufficient_quota", openai.RateLimitError, "insufficient_quota"),
        (500, openai.InternalServerError, None),
        (503, openai.InternalServerError, "server_is_overloaded"),
    ],
)
def test_a_refusal_is_the_exception_that_openai_means(
    status: int | str, expected: type[openai.APIStatusError], code: str | None
) -> None:
    with client(status_always=status) as sdk, pytest.raises(expected) as caught:
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)
    assert caught.value.code == code


def test_a_wrong_key_is_refused() -> None:
    with client("sk-wrong") as sdk, pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
        sdk.chat.completions.create(model=MODEL, messages=QUESTION)


def test_an_unknown_model_is_not_found() -> None:
    with client() as sdk, pytest.raises(openai.NotFoundError) as caught:
        sdk.chat.completions.create(model="m-2", messages=QUESTION)
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 3},
        {"top_p": "much"},
        {"max_tokens": 0},
        {"tools": [{"type": "function", "name": "flat"}]},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}},
        {"tool_choice": "required"},
        {"response_format": {"type": "json_schema", "schema": {}}},
    ],
)
def test_what_openai_does_not_understand_is_a_bad_request(params: Any) -> None:
    with client() as sdk, pytest.raises(openai.BadRequestError, match=next(reversed(params))):
        sdk.chat.completions.create(model=MODEL, messages=QUESTION, **params)


def test_an_error_in_mid_stream_is_raised() -> None:
    with client(faults={"error_in_stream": 1.0}) as sdk:
        stream = sdk.chat.completions.create(model=MODEL, messages=QUESTION, stream=True)
        with pytest.raises(openai.APIError, match="Overloaded") as caught:
            list(stream)
    assert caught.value.code == "overloaded"


def test_the_models_are_listed() -> None:
    with client() as sdk:
        assert [model.id for model in sdk.models.list()] == [MODEL]


@pytest.mark.parametrize("stream", [True, False])
def test_lines_that_keep_a_connection_alive_are_passed_over(stream: bool) -> None:
    with client(keep_alive=True, latency_ms=40.0) as sdk:
        answer: Any = sdk.chat.completions.create(model=MODEL, messages=QUESTION, stream=stream)
        if stream:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)
        else:
            text = answer.choices[0].message.content
    assert text == "four words of text"


@pytest.mark.parametrize("form", ["float", "base64"])
def test_embeddings_are_as_many_as_the_texts(form: Any) -> None:
    with client() as sdk:
        made = sdk.embeddings.create(model=MODEL, input=["a cat", "a dog"], encoding_format=form)
    assert [each.index for each in made.data] == [0, 1]
    assert made.usage.prompt_tokens == made.usage.total_tokens > 0
    assert len(made.data[0].embedding) == (32 if form == "float" else len(made.data[1].embedding))


def test_embeddings_have_base64_where_the_client_does_not_say() -> None:
    with client() as sdk:
        made = sdk.embeddings.create(model=MODEL, input="a cat")
    assert abs(sum(each * each for each in made.data[0].embedding) - 1) < 1e-5


def test_several_answers_are_several_choices() -> None:
    with client(output="text") as sdk:
        answer = sdk.chat.completions.create(model=MODEL, messages=QUESTION, n=3)
    assert len({choice.message.content for choice in answer.choices}) == 3


@pytest.mark.parametrize("rejected", [{"temperature": 0}, {"max_tokens": 9}])
def test_a_reasoning_model_names_the_parameter_that_it_rejects(rejected: Any) -> None:
    with client(reasoning=True) as sdk, pytest.raises(openai.BadRequestError) as caught:
        sdk.chat.completions.create(model=MODEL, messages=QUESTION, **rejected)
    assert caught.value.param == next(iter(rejected))
