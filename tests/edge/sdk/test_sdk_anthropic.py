"""Anthropic's own client understands the simulated provider: what it parses is what was meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import pytest
from anthropic.types import MessageParam, TextBlock, ToolUseBlock

from fairlane.testing import Faults
from tests.support.sdk_calls import KEY, MODEL, SCHEMA, Forecast, simulated

HI: list[MessageParam] = [{"role": "user", "content": "hi"}]
TOOL: Any = {"name": "forecast", "description": "Tells the weather.", "input_schema": SCHEMA}


@contextmanager
def client_of(key: str = KEY, **model: Any) -> Iterator[anthropic.Anthropic]:
    with (
        simulated(**model) as served,
        anthropic.Anthropic(api_key=key, base_url=served.url, max_retries=0, timeout=10) as client,
    ):
        yield client


def test_a_message_is_parsed_with_its_usage() -> None:
    with client_of() as client:
        message = client.messages.create(model=MODEL, max_tokens=64, system="Be brief.", messages=HI)
    (block,) = message.content
    assert isinstance(block, TextBlock)
    assert (block.text, message.stop_reason, message.role) == ("hi", "end_turn", "assistant")
    assert message.usage.input_tokens > 0
    assert message.usage.output_tokens > 0


def test_an_answer_that_is_too_long_says_so() -> None:
    with client_of(output="fixed", fixed_text="word " * 50) as client:
        message = client.messages.create(model=MODEL, max_tokens=2, messages=HI)
    assert message.stop_reason == "max_tokens"


def test_a_stream_adds_up_to_the_message() -> None:
    with (
        client_of(output="fixed", fixed_text="four words are enough") as client,
        client.messages.stream(model=MODEL, max_tokens=64, messages=HI) as stream,
    ):
        texts = list(stream.text_stream)
        message = stream.get_final_message()
    assert len(texts) == 4
    assert "".join(texts) == "four words are enough"
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens > 1


def test_a_tool_is_called() -> None:
    with client_of(output="tool") as client:
        message = client.messages.create(
            model=MODEL, max_tokens=64, messages=HI, tools=[TOOL], tool_choice={"type": "any"}
        )
    (block,) = message.content
    assert isinstance(block, ToolUseBlock)
    assert (message.stop_reason, block.name) == ("tool_use", "forecast")
    assert Forecast.model_validate(block.input)


def test_a_tool_is_called_in_a_stream() -> None:
    with (
        client_of(output="tool") as client,
        client.messages.stream(model=MODEL, max_tokens=64, messages=HI, tools=[TOOL]) as stream,
    ):
        (block,) = stream.get_final_message().content
    assert isinstance(block, ToolUseBlock)
    assert block.name == "forecast"
    assert Forecast.model_validate(block.input)


def test_structured_output_is_parsed() -> None:
    with client_of(output="schema") as client:
        message = client.messages.parse(model=MODEL, max_tokens=64, messages=HI, output_format=Forecast)
    assert isinstance(message.parsed_output, Forecast)


def test_a_rate_limit_reports_its_limits_and_when_to_come_back() -> None:
    with client_of(requests_per_minute=6, headers="full") as client:
        client.messages.create(model=MODEL, max_tokens=64, messages=HI)
        with pytest.raises(anthropic.RateLimitError) as caught:
            client.messages.create(model=MODEL, max_tokens=64, messages=HI)
    headers = caught.value.response.headers
    assert caught.value.type == "rate_limit_error"
    assert 8 < int(headers["retry-after"]) <= 10
    assert headers["anthropic-ratelimit-requests-limit"] == "6"
    assert headers["anthropic-ratelimit-requests-remaining"] == "0"


def test_a_spent_limit_is_a_rate_limit_with_a_reason() -> None:
    with (
        client_of(status_always="insufficient_quota") as client,
        pytest.raises(anthropic.RateLimitError) as e,
    ):
        client.messages.create(model=MODEL, max_tokens=64, messages=HI)
    assert type(e.value).__name__ == "EnforcedSpendLimitReachedError"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, anthropic.BadRequestError),
        (402, anthropic.APIStatusError),
        (403, anthropic.PermissionDeniedError),
        (404, anthropic.NotFoundError),
        (413, anthropic.APIStatusError),
        (500, anthropic.InternalServerError),
        (529, anthropic.InternalServerError),
    ],
)
def test_an_error_has_its_type(status: int, error: type[anthropic.APIStatusError]) -> None:
    with client_of(status_always=status) as client, pytest.raises(error) as caught:
        client.messages.create(model=MODEL, max_tokens=64, messages=HI)
    assert caught.value.status_code == status


def test_a_wrong_key_and_an_unknown_model_are_distinguished() -> None:
    with client_of("wrong") as client, pytest.raises(anthropic.AuthenticationError):
        client.messages.create(model=MODEL, max_tokens=64, messages=HI)
    with client_of() as client, pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="other", max_tokens=64, messages=HI)


def test_what_is_no_parameter_is_refused() -> None:
    with client_of() as client, pytest.raises(anthropic.BadRequestError, match="seed"):
        client.messages.create(model=MODEL, max_tokens=64, messages=HI, extra_body={"seed": 1})


def test_an_overload_in_mid_stream_is_an_error() -> None:
    with (
        client_of(faults=Faults(error_in_stream=1.0), output="fixed", fixed_text="a b c d e f") as client,
        pytest.raises(anthropic.APIStatusError, match="overloaded_error"),
        client.messages.stream(model=MODEL, max_tokens=64, messages=HI) as stream,
    ):
        stream.get_final_message()


def test_tokens_are_counted_and_a_deprecated_temperature_is_rejected() -> None:
    with client_of(reasoning=True) as client:
        assert client.messages.count_tokens(model=MODEL, messages=HI).input_tokens == 1
        with pytest.raises(anthropic.BadRequestError, match="`temperature` is deprecated for this model"):
            client.messages.create(model=MODEL, max_tokens=64, messages=HI, extra_body={"temperature": 0})


def test_a_refusal_is_a_stop_reason() -> None:
    with client_of(refusals=1.0) as client:
        message = client.messages.create(model=MODEL, max_tokens=64, messages=HI)
    assert message.stop_reason == "refusal"
