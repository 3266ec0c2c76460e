"""Amazon's SDK against the simulated provider: it parses what is answered, and raises what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError
from pydantic import SecretStr

from fairlane.config.connections.connection import Connection
from fairlane.model.outcome import AccessDenied, Outcome, Success
from fairlane.testing import Faults, ServedProvider, SimulatedModel, SimulatorConfig, serve_in_thread
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.registry import build_provider

IDENTITY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
PLAIN = "anthropic.claude-3-5-sonnet-20240620-v1:0"
PROFILE = (
    "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-3-5-sonnet-20240620-v1:0"
)
ECHO = SimulatedModel(latency_ms=1.0, output="echo", chunks=3)
ASKED = [{"role": "user", "content": [{"text": "How many are there?"}]}]
WEATHER = {"type": "object", "properties": {"city": {"enum": ["Bonn"]}}, "required": ["city"]}
TOOLS = {"tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": WEATHER}}}]}


@contextmanager
def served(model: SimulatedModel = ECHO, key: str = f"{IDENTITY}:{SECRET}") -> Iterator[ServedProvider]:
    models = {PLAIN: model, PROFILE: model}
    config = SimulatorConfig.model_validate({"models": models, "api_key": key})
    with serve_in_thread(config) as provider:
        yield provider


@contextmanager
def client(provider: ServedProvider, secret: str = SECRET) -> Iterator[Any]:
    sdk = boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=provider.url,
        aws_access_key_id=IDENTITY,
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}),
    )
    with closing(sdk):
        yield sdk


@pytest.mark.parametrize("model", [PLAIN, PROFILE])
def test_a_whole_answer_is_parsed_with_its_usage(model: str) -> None:
    with served() as provider, client(provider) as sdk:
        answer = sdk.converse(
            modelId=model,
            messages=ASKED,
            system=[{"text": "Be brief."}],
            inferenceConfig={"maxTokens": 50, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"]},
            additionalModelRequestFields={"top_k": 5},
        )
    assert answer["output"]["message"] == {"role": "assistant", "content": [{"text": "How many are there?"}]}
    assert answer["stopReason"] == "end_turn"
    usage = answer["usage"]
    assert usage["inputTokens"] + usage["outputTokens"] == usage["totalTokens"] > usage["inputTokens"] > 0


def test_a_stream_is_parsed_event_by_event() -> None:
    with served() as provider, client(provider) as sdk:
        events = list(sdk.converse_stream(modelId=PROFILE, messages=ASKED)["stream"])
    texts = [each["contentBlockDelta"]["delta"]["text"] for each in events if "contentBlockDelta" in each]
    assert (len(texts), "".join(texts)) == (3, "How many are there?")
    assert events[0] == {"messageStart": {"role": "assistant"}}
    assert events[-2] == {"messageStop": {"stopReason": "end_turn"}}
    assert events[-1]["metadata"]["usage"]["totalTokens"] > 0


def test_an_answer_that_is_cut_says_so() -> None:
    with served() as provider, client(provider) as sdk:
        answer = sdk.converse(modelId=PLAIN, messages=ASKED, inferenceConfig={"maxTokens": 1})
    assert (answer["stopReason"], answer["output"]["message"]["content"]) == (
        "max_tokens",
        [{"text": "How "}],
    )


def test_a_tool_is_called_whole_and_in_pieces() -> None:
    with served(ECHO.model_copy(update={"output": "tool"})) as provider, client(provider) as sdk:
        choice = {**TOOLS, "toolChoice": {"any": {}}}
        whole = sdk.converse(modelId=PLAIN, messages=ASKED, toolConfig=choice)
        events = list(sdk.converse_stream(modelId=PLAIN, messages=ASKED, toolConfig=TOOLS)["stream"])
    (block,) = whole["output"]["message"]["content"]
    assert whole["stopReason"] == "tool_use"
    assert (block["toolUse"]["name"], block["toolUse"]["input"]) == ("weather", {"city": "Bonn"})
    starts = [each["contentBlockStart"]["start"] for each in events if "contentBlockStart" in each]
    deltas = [each["contentBlockDelta"]["delta"] for each in events if "contentBlockDelta" in each]
    assert [start["toolUse"]["name"] for start in starts] == ["weather"]
    assert json.loads("".join(delta["toolUse"]["input"] for delta in deltas)) == {"city": "Bonn"}


def test_an_answer_can_be_held_to_a_schema() -> None:
    schema = {"name": "answer", "schema": json.dumps(WEATHER)}
    form = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}
    with served(ECHO.model_copy(update={"output": "schema"})) as provider, client(provider) as sdk:
        answer = sdk.converse(modelId=PLAIN, messages=ASKED, outputConfig=form)
    assert json.loads(answer["output"]["message"]["content"][0]["text"]) == {"city": "Bonn"}


@pytest.mark.parametrize(
    ("change", "name", "status"),
    [
        ({"status_always": 400}, "ValidationException", 400),
        ({"status_always": 403}, "AccessDeniedException", 403),
        ({"status_always": 404}, "ResourceNotFoundException", 404),
        ({"status_always": 408}, "ModelTimeoutException", 408),
        ({"status_always": 424}, "ModelErrorException", 424),
        ({"status_always": 429}, "ThrottlingException", 429),
        ({"status_always": "insufficient_quota"}, "ServiceQuotaExceededException", 429),
        ({"status_always": 500}, "InternalServerException", 500),
        ({"status_always": 503}, "ServiceUnavailableException", 503),
    ],
)
def test_a_refusal_is_the_exception_of_its_type(change: dict[str, Any], name: str, status: int) -> None:
    with served(ECHO.model_copy(update=change)) as provider, client(provider) as sdk:
        with pytest.raises(getattr(sdk.exceptions, name)) as whole:
            sdk.converse(modelId=PLAIN, messages=ASKED)
        with pytest.raises(getattr(sdk.exceptions, name)):
            sdk.converse_stream(modelId=PLAIN, messages=ASKED)
    assert whole.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert whole.value.response["Error"]["Code"] == name
    assert whole.value.response["Error"]["Message"]


def test_a_rate_limit_names_its_axis() -> None:
    with served(ECHO.model_copy(update={"requests_per_minute": 1.0})) as provider, client(provider) as sdk:
        sdk.converse(modelId=PLAIN, messages=ASKED)
        with pytest.raises(sdk.exceptions.ThrottlingException, match="Too many requests, please wait"):
            sdk.converse(modelId=PLAIN, messages=ASKED)


def test_a_failure_in_mid_stream_is_raised_after_the_text_before_it() -> None:
    model = ECHO.model_copy(update={"faults": Faults(error_in_stream=1.0)})
    with (
        served(model) as provider,
        client(provider) as sdk,
        closing(sdk.converse_stream(modelId=PLAIN, messages=ASKED)["stream"]) as stream,
    ):
        events = iter(stream)
        assert next(events) == {"messageStart": {"role": "assistant"}}
        assert "contentBlockDelta" in next(events)
        with pytest.raises(EventStreamError, match="serviceUnavailableException"):
            next(events)


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": [{"role": "assistant", "content": [{"text": "hi"}]}]},
        {"messages": [*ASKED, *ASKED]},
        {"messages": [{"role": "user", "content": [{"text": " "}]}]},
        {"messages": ASKED, "inferenceConfig": {"temperature": 1.5}},
        {"messages": ASKED, "toolConfig": {**TOOLS, "toolChoice": {"tool": {"name": "unknown"}}}},
    ],
)
def test_what_is_no_conversation_is_a_validation_exception(wrong: dict[str, Any]) -> None:
    with served() as provider, client(provider) as sdk, pytest.raises(sdk.exceptions.ValidationException):
        sdk.converse(modelId=PLAIN, **wrong)


def test_a_wrong_secret_is_refused() -> None:
    with served() as provider, client(provider, "another") as sdk, pytest.raises(ClientError) as refused:
        sdk.converse(modelId=PLAIN, messages=ASKED)
    assert refused.value.response["Error"]["Code"] == "UnrecognizedClientException"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


# The worker's own way, with the same keys


def called(provider: ServedProvider, model: str, key: SecretStr | None = None, **settings: Any) -> Outcome:
    said = {"protocol": "bedrock", "base_url": provider.url, "region": "us-east-1", **settings}
    request = Request(model, [{"role": "user", "content": "hi"}], {}, True, 5.0, 1 << 20)

    async def scenario() -> Outcome:
        own = build_provider("c", Connection.model_validate(said), key)
        try:
            return await own.call(request)
        finally:
            await own.aclose()

    return asyncio.run(scenario())


@pytest.mark.parametrize("model", [PLAIN, PROFILE])
def test_a_worker_s_signature_is_that_of_the_sdk(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", IDENTITY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with served() as provider:
        outcome = called(provider, model)
    assert isinstance(outcome, Success)
    assert outcome.output == "hi"


def test_a_worker_with_another_secret_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", IDENTITY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with served() as provider:
        outcome = called(provider, PLAIN)
    assert isinstance(outcome, AccessDenied)
    assert (outcome.status, outcome.reason) == (403, "auth")


def test_a_worker_s_bearer_key_is_taken() -> None:
    with served(key="bedrock-api-key-1") as provider:
        key = SecretStr("bedrock-api-key-1")
        outcome = called(provider, PROFILE, key, api_key_env="AWS_BEARER_TOKEN_BEDROCK")
    assert isinstance(outcome, Success)


def test_tokens_are_counted() -> None:
    with served() as provider, client(provider) as sdk:
        answer = sdk.count_tokens(modelId=PLAIN, input={"converse": {"messages": ASKED}})
    assert answer["inputTokens"] == 5
