"""The simulated Bedrock accepts only unchanged signed requests and valid conversations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from aiohttp import hdrs
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from multidict import CIMultiDict

from fairlane.lab.simulator.protocols.bedrock import Bedrock
from fairlane.lab.simulator.wire.dialect import Call, OfferedTool, Presented, Problem, RequestError

KEY = "AKIDEXAMPLE:s3cret"
URL = "http://127.0.0.1:8100/model/a.b-v1%3A0/converse"
PATH = {"model": "m", "operation": "converse"}
SAID = [{"role": "user", "content": [{"text": "Why?"}]}]
SPEC = {"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}


def presented(service: str = "bedrock", **headers: str) -> Presented:
    """A request that botocore has signed."""
    request = AWSRequest("POST", URL, {"host": "127.0.0.1:8100", **headers}, b"{}")
    SigV4Auth(Credentials(*KEY.split(":")), service, "eu-central-1").add_auth(request)
    return Presented("POST", URL, CIMultiDict(request.headers.items()), b"{}")


def test_a_signature_of_the_known_key_is_accepted() -> None:
    assert Bedrock().accepts(presented(), KEY)
    assert Bedrock().accepts(presented(accept="*/*"), KEY)


@pytest.mark.parametrize("key", ["AKIDEXAMPLE:another", "ANOTHER:s3cret", "AKIDEXAMPLE", ""])
def test_a_signature_of_another_key_is_rejected(key: str) -> None:
    assert not Bedrock().accepts(presented(), key)


@pytest.mark.parametrize(
    "change",
    [
        {"body": b'{"messages": []}'},
        {"url": URL.replace("%3A", ":")},
        {"url": URL + "?x=1"},
        {"method": "PUT"},
        {"headers": {"Host": "elsewhere"}},
        {"headers": {"X-Amz-Date": "20150830T123600Z"}},
        {"headers": {hdrs.AUTHORIZATION: "AWS4-HMAC-SHA256 Credential=x"}},
        {"headers": {hdrs.AUTHORIZATION: ""}},
    ],
)
def test_a_request_changed_after_signing_is_rejected(change: dict[str, Any]) -> None:
    sent = presented()
    if "headers" in change:
        headers = CIMultiDict(sent.headers)
        headers.update(change["headers"])
        change = {"headers": headers}
    assert not Bedrock().accepts(replace(sent, **change), KEY)


def test_a_signature_for_another_service_or_without_the_host_is_rejected() -> None:
    assert not Bedrock().accepts(presented(service="s3"), KEY)
    sent = presented()
    signed = sent.headers["Authorization"].replace("host;x-amz-date", "x-amz-date")
    assert not Bedrock().accepts(
        replace(sent, headers=CIMultiDict({**sent.headers, "Authorization": signed})), KEY
    )


def test_a_bearer_key_is_compared_as_a_whole() -> None:
    def bearing(text: str) -> Presented:
        return Presented("POST", URL, CIMultiDict({"Authorization": text}), b"{}")

    assert Bedrock().accepts(bearing("Bearer k-1"), "k-1")
    assert not Bedrock().accepts(bearing("Bearer k-2"), "k-1")


def test_a_conversation_is_read_with_all_its_options() -> None:
    schema = '{"type": "object"}'
    form = {"type": "json_schema", "structure": {"jsonSchema": {"schema": schema, "name": "x"}}}
    payload = {
        "messages": [*SAID, {"role": "assistant", "content": [{"text": "So."}]}, *SAID],
        "system": [{"text": "Be brief."}],
        "inferenceConfig": {"maxTokens": 9, "temperature": 1, "stopSequences": ["."]},
        "toolConfig": {"tools": [SPEC], "toolChoice": {"tool": {"name": "f"}}},
        "outputConfig": {"textFormat": form},
    }
    assert Bedrock().parse(payload, {**PATH, "operation": "converse-stream"}) == Call(
        "m",
        "Be brief.\nWhy?\nSo.\nWhy?",
        "Why?",
        9,
        stream=True,
        include_usage=True,
        schema={"type": "object"},
        tools=(OfferedTool("f", {"type": "object"}),),
    )


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ([], "body"),
        ({}, "messages"),
        ({"messages": []}, "user message"),
        ({"messages": [{"role": "system", "content": [{"text": "a"}]}]}, "role"),
        ({"messages": [*SAID, *SAID]}, "alternate"),
        ({"messages": [{"role": "user", "content": "Why?"}]}, "content"),
        ({"messages": [{"role": "user", "content": [{"text": ""}]}]}, "blank"),
        ({"messages": SAID, "temperature": 0}, "temperature"),
        ({"messages": SAID, "system": "Be brief."}, "system"),
        ({"messages": SAID, "inferenceConfig": {"max_tokens": 1}}, "max_tokens"),
        ({"messages": SAID, "inferenceConfig": {"maxTokens": 0}}, "maxTokens"),
        ({"messages": SAID, "inferenceConfig": {"temperature": "0"}}, "temperature"),
        ({"messages": SAID, "inferenceConfig": {"topP": None}}, "topP"),
        ({"messages": SAID, "inferenceConfig": {"stopSequences": "END"}}, "stopSequences"),
        ({"messages": SAID, "additionalModelRequestFields": 1}, "additionalModelRequestFields"),
        ({"messages": SAID, "outputConfig": {"textFormat": {"type": "json"}}}, "textFormat"),
        ({"messages": SAID, "toolConfig": {"tools": []}}, "tools"),
        ({"messages": SAID, "toolConfig": {"tools": [{"type": "function"}]}}, "toolSpec"),
        ({"messages": SAID, "toolConfig": {"tools": [SPEC], "toolChoice": {"none": {}}}}, "toolChoice"),
        ({"messages": SAID, "toolConfig": {"tools": [SPEC], "toolChoice": "auto"}}, "toolChoice"),
    ],
)
def test_an_invalid_conversation_is_rejected_with_its_field(payload: Any, field: str) -> None:
    with pytest.raises(RequestError, match=field):
        Bedrock().parse(payload, PATH)


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (Problem(429, "m", "tokens"), "ThrottlingException"),
        (Problem(429, "m", "quota"), "ServiceQuotaExceededException"),
        (Problem(403, "m", "key"), "UnrecognizedClientException"),
        (Problem(403, "m"), "AccessDeniedException"),
        (Problem(502, "m"), "InternalServerException"),
    ],
)
def test_a_header_names_the_type_of_a_problem(problem: Problem, kind: str) -> None:
    assert Bedrock().error_headers(problem)["x-amzn-errortype"] == kind
