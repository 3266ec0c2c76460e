"""Requests that rows hold: of chats, embeddings and responses, for connections of any protocol."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import TemplateError
from fairlane.model.run import Cell, Plan
from fairlane.pipeline.rendering import Call, Rendering
from tests.support.records import spec_of

CELL = Cell(0, 0, 0, 0)
SCHEMA = {"name": "n", "schema": {}, "strict": True}
EMBEDDINGS, RESPONSES = "/v1/embeddings", "/v1/responses"


def call(url: str | None, body: Any, *, responses: tuple[str, ...] = (), **changes: Any) -> Call:
    spec = spec_of(prompts=(), request_field="body", models=("sim:m",), **changes)
    return Rendering(Plan(spec=spec, responses=responses)).task(CELL, {"url": url, "body": body})


def test_a_request_for_embeddings_embeds_its_input() -> None:
    made = call(EMBEDDINGS, {"model": "e", "input": "x", "dimensions": 8})
    assert (made.inputs, made.messages, dict(made.params)) == (("x",), [], {"dimensions": 8})
    assert call(EMBEDDINGS, {"input": ["x", "y"]}).inputs == ("x", "y")


def test_a_request_for_a_response_goes_as_it_is_to_who_takes_it() -> None:
    body = {
        "model": "m",
        "input": [{"type": "function_call_output", "call_id": "c", "output": "4"}],
        "max_output_tokens": 9,
        "include": ["reasoning.encrypted_content"],
        "stream": True,
    }
    made = call(RESPONSES, body, responses=("sim",))
    assert made.messages == body["input"]
    assert dict(made.params) == {"max_output_tokens": 9, "include": ["reasoning.encrypted_content"]}
    assert call(RESPONSES, {"input": "hi"}, responses=("sim",)).messages == [
        {"role": "user", "content": "hi"}
    ]
    assert made.tokens.output == 9


def test_others_get_a_request_for_a_response_as_a_chat() -> None:
    body = {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "2 + 2?"}]},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 2}'},
            {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "4"},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "and this?"},
                    {"type": "input_image", "image_url": "data:x", "detail": "low"},
                ],
            },
        ],
        "max_output_tokens": 9,
        "temperature": 0.5,
        "text": {"format": {"type": "json_schema", **SCHEMA}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "tools": [{"type": "function", "name": "add", "parameters": {}, "strict": None}],
        "tool_choice": {"type": "function", "name": "add"},
        "truncation": "disabled",
    }  # fmt: skip
    made = call(RESPONSES, body)
    assert made.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 + 2?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}},
                {"id": "c2", "type": "function", "function": {"name": "add", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "and this?"},
                {"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}},
            ],
        },
    ]
    assert dict(made.params) == {
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "verbosity": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": SCHEMA,
        },
        "reasoning_effort": "low",
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {}}}],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
    }


@pytest.mark.parametrize(
    ("url", "body", "shown"),
    [
        (None, {"model": "m"}, "it has no messages"),
        (None, {"messages": []}, "it has no messages"),
        (None, "hi", "it is no object"),
        (EMBEDDINGS, {"input": [[1, 2]]}, "numbers of tokens are not taken"),
        (
            RESPONSES,
            {"input": "x", "tools": [{"type": "web_search"}]},
            r"tools\[0\]: only the provider can run it",
        ),
        (RESPONSES, {"input": "x", "max_tool_calls": 2}, "max_tool_calls: chats do not have it"),
        (RESPONSES, {"input": [{"type": "item_reference", "id": "i"}]}, r"input\[0\]: a chat cannot say it"),
        (RESPONSES, {"input": []}, "input: a text or a list of items"),
        (RESPONSES, {"input": "x", "extra_headers": {}}, "extra_headers"),
    ],
)
def test_a_request_that_cannot_be_made_names_its_part(url: str | None, body: Any, shown: str) -> None:
    with pytest.raises(TemplateError, match=shown):
        call(url, body)


def test_parameters_of_the_run_are_defaults_of_its_requests() -> None:
    made = call(RESPONSES, {"input": "x", "temperature": 0}, params={"temperature": 1, "seed": 3})
    assert dict(made.params) == {"temperature": 0, "seed": 3}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "name", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
BODIES = JSON | st.dictionaries(
    st.sampled_from(["messages", "input", "instructions", "tools", "max_tokens", "n", "text", "tool_choice"]),
    JSON | st.lists(JSON, max_size=3),
    max_size=5,
)


@given(st.sampled_from([None, EMBEDDINGS, RESPONSES, 5]), BODIES, st.sampled_from([(), ("sim",)]))
def test_any_body_is_a_request_or_is_refused_with_the_reason(
    url: Any, body: Any, responses: tuple[str, ...]
) -> None:
    try:
        made = call(url, body, responses=responses)
    except TemplateError:
        return
    assert made.tokens.most >= 0
    assert made.digest("", {made.model.partition(":")[0]: "one"})
