"""The simulated OpenAI, Azure and Mistral check requests and reject them in their own forms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlane.lab.simulator.protocols.openai.azure import AzureOpenAI
from fairlane.lab.simulator.protocols.openai.chat import OpenAIChat, chosen
from fairlane.lab.simulator.protocols.openai.mistral import MistralChat
from fairlane.lab.simulator.protocols.openai.responses import OpenAIResponses
from fairlane.lab.simulator.wire.dialect import (
    Call,
    OfferedTool,
    Problem,
    Reply,
    RequestError,
    Stamp,
    ToolUse,
)

MESSAGES = [{"role": "user", "content": "Why?"}]
ASKED: dict[str, Any] = {"model": "m", "messages": MESSAGES}
FIRST, SECOND = OfferedTool("first", {}), OfferedTool("second", {})
CALL = Call("m", "Q" * 40, "Q" * 40, None, stream=True, include_usage=True)
TOOL = Reply("", 6, False, ToolUse("find", '{"word":"lane"}'))
STAMP = Stamp(7, 1_700_000_000)


@pytest.mark.parametrize(
    ("choice", "left"),
    [
        (None, (FIRST, SECOND)),
        ("auto", (FIRST, SECOND)),
        ("required", (FIRST, SECOND)),
        ("none", ()),
        ({"type": "function", "function": {"name": "second"}}, (SECOND,)),
    ],
)
def test_the_tool_choice_selects_the_tools_that_openai_may_call(
    choice: Any, left: tuple[OfferedTool, ...]
) -> None:
    assert chosen((FIRST, SECOND), choice) == left


@pytest.mark.parametrize("choice", [7, "any", {}, {"type": "function", "function": {"name": "third"}}])
def test_an_invalid_tool_choice_is_rejected(choice: Any) -> None:
    with pytest.raises(RequestError, match="tool_choice"):
        chosen((FIRST, SECOND), choice)


@pytest.mark.parametrize("value", [True, "1", -0.1, 2.1])
def test_a_temperature_is_a_number_from_0_to_2(value: object) -> None:
    for dialect, payload in ((OpenAIChat(), ASKED), (OpenAIResponses(), {"model": "m", "input": "x"})):
        with pytest.raises(RequestError, match="temperature: a number from 0 to 2"):
            dialect.parse({**payload, "temperature": value})


def test_a_streamed_tool_call_equals_a_whole_one() -> None:
    whole = json.loads(OpenAIChat().completion(CALL, TOOL, STAMP))["choices"][0]
    assert (whole["finish_reason"], whole["message"]["content"]) == ("tool_calls", None)
    (block,) = OpenAIChat().frames(CALL, TOOL, [""], STAMP)
    lines = [line.removeprefix("data: ") for line in block.decode().split("\n") if line]
    assert lines.pop() == "[DONE]"
    deltas = [choice["delta"] for line in lines for choice in json.loads(line)["choices"]]
    pieces = [piece for delta in deltas for piece in delta.get("tool_calls", [])]
    (called,) = whole["message"]["tool_calls"]
    assert pieces[0] == {"index": 0, **called, "function": {"name": "find", "arguments": ""}}
    assert "".join(piece["function"]["arguments"] for piece in pieces) == called["function"]["arguments"]


# Azure


@pytest.mark.parametrize("version", ["2024-10-21", "2025-01-01-preview"])
def test_the_deployment_replaces_the_model_of_the_body(version: str) -> None:
    path = {"deployment": "d-1", "api-version": version}
    assert AzureOpenAI().parse(ASKED, path).model == "d-1"
    assert AzureOpenAI().parse({"messages": MESSAGES}, path).model == "d-1"
    assert AzureOpenAI().parse(ASKED, {}).model == "m"


@pytest.mark.parametrize("path", [{"deployment": "d"}, {"deployment": "d", "api-version": "2024"}])
def test_a_deployment_without_a_version_is_not_found(path: dict[str, str]) -> None:
    with pytest.raises(RequestError) as caught:
        AzureOpenAI().parse(ASKED, path)
    problem = caught.value.problem
    assert problem.status == 404
    assert json.loads(AzureOpenAI().error(problem)) == {
        "error": {"code": "404", "message": "Resource not found"}
    }


@pytest.mark.parametrize(
    ("headers", "key"),
    [({"api-key": "k"}, "k"), ({"Authorization": "Bearer k"}, "k"), ({"x-api-key": "k"}, None)],
)
def test_azure_accepts_a_key_or_a_token(headers: dict[str, str], key: str | None) -> None:
    assert AzureOpenAI().presented_key(headers) == key


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (Problem(400, "m"), None),
        (Problem(401, "m"), "401"),
        (Problem(404, "m"), "DeploymentNotFound"),
        (Problem(429, "m", "requests"), "429"),
        (Problem(429, "m", "quota"), "insufficient_quota"),
        (Problem(500, "m"), "InternalServerError"),
        (Problem(529, "m"), "529"),
    ],
)
def test_a_problem_has_azures_code(problem: Problem, code: str | None) -> None:
    assert json.loads(AzureOpenAI().error(problem))["error"]["code"] == code


# Mistral


def test_mistral_names_every_unknown_field() -> None:
    with pytest.raises(RequestError) as caught:
        MistralChat().parse({**ASKED, "stream_options": {"include_usage": True}, "seed": 7})
    assert caught.value.problem.status == 422
    document = json.loads(MistralChat().error(caught.value.problem))
    detail = document["message"]["detail"]
    assert [each["loc"] for each in detail] == [["body", "seed"], ["body", "stream_options"]]
    assert {each["type"] for each in detail} == {"extra_forbidden"}


@pytest.mark.parametrize(
    ("problem", "body"),
    [
        (Problem(401, "m"), {"detail": "Unauthorized"}),
        (
            Problem(422, "m"),
            {
                "object": "error",
                "message": "m",
                "type": "invalid_request_error",
                "param": None,
                "code": "3001",
            },
        ),
        (
            Problem(429, "m", "requests"),
            {"object": "error", "message": "m", "type": "rate_limited", "param": None, "code": "1300"},
        ),
        (
            Problem(500, "m"),
            {
                "object": "error",
                "message": "m",
                "type": "internal_server_error",
                "param": None,
                "code": "500",
            },
        ),
    ],
)
def test_a_problem_has_mistrals_form(problem: Problem, body: dict[str, Any]) -> None:
    assert json.loads(MistralChat().error(problem)) == body
