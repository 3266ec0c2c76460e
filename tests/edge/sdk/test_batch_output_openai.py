"""Output lines of a batch are what OpenAI's own package takes for answers, whatever the provider said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types import CreateEmbeddingResponse
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from pydantic import BaseModel

from fairlane.apps.batchfile.writing import BatchWriter
from fairlane.evaluators.embeddings import pack
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.tokens import Usage

CHAT_TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
TOOLS = [{"type": "function", "name": "add", "parameters": {}, "strict": True}]
CALLED = '{"text": "", "tool_calls": [{"name": "add", "arguments": {"a": 2}}]}'
FORMAT = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
SHELL = {"type": "custom", "name": "shell"}
RAN = '{"text": "So:", "tool_calls": [{"name": "shell", "arguments": "ls"}]}'


def valid(kind: type[BaseModel], url: str | None, body: dict[str, Any], output: str, **changes: Any) -> Any:
    """The body of an output line, as the package reads it: strictly, and without unknown fields."""
    row = {"custom_id": "r0", "body": body, **({"url": url} if url else {})}
    made = Record(
        **{
            "item": 0,
            "row": row,
            "model": "sim:m",
            "prompt": 0,
            "repetition": 0,
            "state": JobState.SUCCEEDED,
            "output": output,
            "scores": {},
            "score_errors": {},
            "usage": Usage(24, 15, 3),
            "attempts": 1,
            "error": None,
            **changes,
        }
    )
    text = json.dumps(BatchWriter("01run", 1_700_000_000).answer(made)["response"]["body"])
    read = kind.model_validate_json(text, strict=True)
    assert not read.model_extra
    return read


@pytest.mark.parametrize("reason", ["stop", "end_turn", "MAX_TOKENS", "SAFETY", "eos_token", "odd", None])
def test_a_chat_completion(reason: str | None) -> None:
    read = valid(ChatCompletion, None, {"messages": []}, "Größe: 4", finish_reason=reason)
    assert read.choices[0].message.content == "Größe: 4"


@pytest.mark.parametrize("reason", ["tool_use", "STOP", None])
def test_a_chat_completion_with_calls(reason: str | None) -> None:
    read = valid(ChatCompletion, None, {"messages": [], "tools": CHAT_TOOLS}, CALLED, finish_reason=reason)
    (choice,) = read.choices
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, call.function.name, call.function.arguments) == (
        "tool_calls",
        "add",
        '{"a": 2}',
    )


@pytest.mark.parametrize("usage", [Usage(), Usage(5, 0)])
def test_embeddings(usage: Usage) -> None:
    read = valid(CreateEmbeddingResponse, "/v1/embeddings", {"input": "x"}, pack([[1.0, 0.5]]), usage=usage)
    assert read.data[0].embedding == [1.0, 0.5]


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ({"input": "x"}, "Größe: 4"),
        ({"input": "x", "tools": TOOLS, "tool_choice": {"type": "function", "name": "add"}}, CALLED),
        ({"input": "x", "tools": [SHELL], "tool_choice": "required"}, RAN),
        ({"input": "x", "instructions": "Be brief.", "temperature": 0.5, "metadata": {"a": "b"}}, "4"),
        ({"input": "x", "text": {"format": FORMAT}, "reasoning": {"effort": "low"}}, '{"a": 1}'),
    ],
)
@pytest.mark.parametrize("reason", ["completed", "max_output_tokens", "SAFETY", None])
def test_a_response(body: dict[str, Any], output: str, reason: str | None) -> None:
    read = valid(Response, "/v1/responses", body, output, finish_reason=reason)
    text = "" if output == CALLED else "So:" if output == RAN else output
    assert read.output_text == text
    assert (read.usage.input_tokens, read.usage.total_tokens) == (24, 39)
