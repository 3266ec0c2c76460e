"""Azure OpenAI: where a deployment is, how the key goes, and what a refusal says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import SecretStr

from fairlane.config.connections.connection import Connection
from fairlane.model.outcome import AccessDenied, Outcome, PermanentFailure, RateLimited, Success
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.registry import build_provider
from tests.support.classified import refusal
from tests.support.provider_calls import ask, call, streamed
from tests.support.scripted_server import Received, event, http, scripted_server
from tests.support.wires.azure_openai import AzureOpenAIWire

WIRE = AzureOpenAIWire()
GA = "api-version=2024-10-21"
NOT_FOUND = PermanentFailure("m", 404, doubtful=True)


def received(base: str, model: str = "m-1", **settings: Any) -> Received:
    async def scenario() -> Received:
        async with scripted_server([[http(200, WIRE.whole("x"))]]) as server:
            shown = {"protocol": "azure_openai", "base_url": server.url + base, **settings}
            provider = build_provider("c", Connection.model_validate(shown), SecretStr("k-1"))
            messages = [{"role": "user", "content": "hi"}]
            outcome = await provider.call(Request(model, messages, {}, False, 5.0, 1 << 20))
            await provider.aclose()
            assert isinstance(outcome, Success)
            return server.received[0]

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", f"/openai/deployments/m-1/chat/completions?{GA}"),
        ("/", f"/openai/deployments/m-1/chat/completions?{GA}"),
        ("/openai", f"/openai/deployments/m-1/chat/completions?{GA}"),
        ("/openai/", f"/openai/deployments/m-1/chat/completions?{GA}"),
        ("/gateway", f"/gateway/openai/deployments/m-1/chat/completions?{GA}"),
        ("?api-version=2024-06-01", "/openai/deployments/m-1/chat/completions?api-version=2024-06-01"),
        ("/openai/v1", "/openai/v1/chat/completions"),
        ("/openai/v1/", "/openai/v1/chat/completions"),
    ],
)
def test_a_deployment_is_where_the_base_url_says(base: str, path: str) -> None:
    assert received(base).path == path


def test_a_version_that_is_named_is_asked_for() -> None:
    assert received("", api_version="2025-01-01-preview").path.endswith("?api-version=2025-01-01-preview")
    v1 = received("/openai/v1", api_version="preview").path
    assert v1 == "/openai/v1/chat/completions?api-version=preview"


def test_a_deployment_stays_within_its_part_of_the_path() -> None:
    path = received("", model="a/b?c=1&d#e é").path
    assert path == f"/openai/deployments/a%2Fb%3Fc%3D1%26d%23e%20%C3%A9/chat/completions?{GA}"


def test_the_v1_api_gets_the_model_in_the_body() -> None:
    assert received("/openai/v1").json["model"] == "m-1"


@pytest.mark.parametrize(
    ("settings", "header", "value"),
    [({}, "api-key", "k-1"), ({"auth": "bearer"}, "authorization", "Bearer k-1")],
)
def test_the_key_goes_as_azure_asks_or_as_a_token(settings: dict[str, str], header: str, value: str) -> None:
    headers = received("", **settings).headers
    assert headers[header] == value
    assert len({"api-key", "authorization"} & set(headers)) == 1


# Refusals


def refused(status: int, error: dict[str, Any], **headers: str) -> Outcome:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return refusal("azure_openai", status, named, json.dumps(error).encode(), now_ms=0, limits="azure")


FILTERED = {
    "error": {
        "message": "The response was filtered.",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {
            "code": "ResponsibleAIPolicyViolation",
            "content_filter_result": {
                "hate": {"filtered": True, "severity": "high"},
                "jailbreak": {"filtered": True, "detected": True},
                "violence": {"filtered": False, "severity": "low"},
            },
        },
    }
}


def test_a_filtered_prompt_is_final_and_says_what_was_found() -> None:
    said = "The response was filtered. (hate: high, jailbreak: detected)"
    assert refused(400, FILTERED) == PermanentFailure(said, 400, content=True)


@pytest.mark.parametrize(
    "inner", [None, 7, {}, {"content_filter_result": 7}, {"content_filter_result": {"hate": 7}}]
)
def test_a_filter_that_says_nothing_more_keeps_its_message(inner: object) -> None:
    error = {"error": {"message": "m", "code": "content_filter", "innererror": inner}}
    assert refused(400, error) == PermanentFailure("m", 400, content=True)


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (404, {"error": {"code": "DeploymentNotFound", "message": "m"}}, NOT_FOUND),
        (404, {"error": {"code": "404", "message": "m"}}, NOT_FOUND),
        (401, {"error": {"code": "401", "message": "m"}}, AccessDenied("m", 401, "auth")),
        (401, {"statusCode": 401, "message": "m"}, AccessDenied("m", 401, "auth")),
        (
            403,
            {"error": {"code": "AuthenticationTypeDisabled", "message": "m"}},
            AccessDenied("m", 403, "auth"),
        ),
        (429, {"error": {"code": "429", "message": "m"}}, RateLimited("m", 429, 7_000)),
        (429, {"error": {"code": "RateLimitReached", "message": "m"}}, RateLimited("m", 429, 7_000)),
        (429, {"error": {"code": "insufficient_quota", "message": "m"}}, RateLimited("m", 429, 7_000)),
    ],
)
def test_refusals_are_what_they_mean(status: int, error: dict[str, Any], expected: Outcome) -> None:
    headers = {"apim_request_id": "x", "retry_after": "7"} if status == 429 else {}
    assert refused(status, error, **headers) == expected


def test_what_the_filter_says_beside_a_stream_is_no_answer() -> None:
    offsets = {"check_offset": 1, "start_offset": 0, "end_offset": 4}
    late = {"choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": offsets}]}
    data = WIRE.begin() + WIRE.piece("ja") + event(late) + WIRE.finish() + WIRE.end()
    outcome, _ = call(WIRE, ask(stream=True), streamed(WIRE, data))
    assert isinstance(outcome, Success)
    assert outcome.output == "ja"


@pytest.mark.parametrize(
    ("code", "expected"),
    [("DeploymentNotFound", NOT_FOUND), ("RateLimitReached", RateLimited("m", 429))],
)
def test_an_error_in_mid_stream_has_azures_code(code: str, expected: Outcome) -> None:
    data = WIRE.begin() + event({"error": {"code": code, "message": "m"}})
    assert call(WIRE, ask(stream=True), streamed(WIRE, data))[0] == expected
