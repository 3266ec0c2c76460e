"""What a provider's ``config`` becomes: parameters in OpenAI's form, or problems with their place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlane.apps.promptfoo.reading.chats import chat_of
from tests.support.promptfoo import Folder, config

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
ANSWER = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
FUNCTION = {"type": "function", "function": {"name": "f"}}
CALLED = {"tool_choice": FUNCTION}
REFUSED = "promptfooconfig.yaml:1: providers[0].config."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


def provider(given: dict[str, Any]) -> str:
    return config(providers=[{"id": "openai:gpt-4o", "config": given}])


@pytest.mark.parametrize(
    ("given", "params"),
    [
        ({"passthrough": {"odd": 1}, "extra_body": {"odder": {"a": 2}}}, {"odd": 1, "odder": {"a": 2}}),
        ({"modalities": ["text"], "seed": None, "debug": True}, {}),
        ({"responseMimeType": "application/json"}, {"response_format": {"type": "json_object"}}),
        ({"responseMimeType": "text/plain"}, {}),
        ({"response_format": "json_object"}, {"response_format": {"type": "json_object"}}),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, {"response_format": ANSWER}),
        ({"response_format": ANSWER}, {"response_format": ANSWER}),
        (
            {"response_format": {"type": "json_schema", "schema": "file://schema.json"}},
            {"response_format": ANSWER},
        ),
        ({"functions": [{"name": "f"}], "function_call": {"name": "f"}}, {"tools": [FUNCTION], **CALLED}),
        (
            {"toolConfig": {"tools": [{"toolSpec": {"name": "f"}}], "toolChoice": {"tool": {"name": "f"}}}},
            {"tools": [FUNCTION], **CALLED},
        ),
        ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, {"tool_choice": "required"}),
        ({"tools": "file://tools.yaml"}, {"tools": [FUNCTION]}),
        ({"tools": []}, {}),
        ({"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
        ({"tool_choice": {"auto": {}}}, {"tool_choice": "auto"}),
        ({"tool_choice": {"any": {}}}, {"tool_choice": "required"}),
        ({"tool_choice": {"type": "tool", "name": "f"}}, CALLED),
        ({"tool_choice": FUNCTION}, CALLED),
    ],
)
def test_a_config_becomes_parameters(folder: Folder, given: dict[str, Any], params: dict[str, Any]) -> None:
    folder.write("schema.json", json.dumps(SCHEMA))
    folder.write("tools.yaml", "- name: f\n")
    read = folder.read(provider(given))
    assert read.runs[0].options.get("params", {}) == params


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"temprature": 1},
            "temprature: the parameter temprature is not supported: did you mean 'temperature'?",
        ),
        ({"user": "{{ name }}"}, "user: parameters are no templates: write the value"),
        ({"tools": "file://{{ name }}.yaml"}, "tools: parameters are no templates: write the value"),
        ({"tools": [1]}, "tools: tools are a list of objects"),
        ({"instructions": 5}, "instructions: this is no text"),
        ({"transform": 5}, "transform: a transform is a text"),
    ],
)
def test_what_is_no_parameter_is_a_problem(folder: Folder, given: dict[str, Any], problem: str) -> None:
    assert REFUSED + problem in folder.refusals(provider(given))


@pytest.mark.parametrize(
    "given", [{"system": "file://system.txt"}, {"systemInstruction": {"parts": [{"text": "Be brief."}]}}]
)
def test_instructions_begin_each_chat(folder: Folder, given: dict[str, Any]) -> None:
    folder.write("system.txt", "Be brief.")
    (prompt,) = folder.read(provider(given)).runs[0].options["prompts"]
    assert [message["role"] for message in prompt] == ["system", "user"]
    assert "Be brief." in prompt[0]["content"]


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ("a", {"type": "text", "text": "a"}),
        (5, 5),
        ({"type": "input_image", "image_url": "u"}, {"type": "image_url", "image_url": {"url": "u"}}),
        (
            {"type": "image", "source": {"type": "url", "url": "u"}},
            {"type": "image_url", "image_url": {"url": "u"}},
        ),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
        ),
        ({"type": "own"}, {"type": "own"}),
    ],
)
def test_a_part_of_a_chat_has_openais_form(part: object, found: object) -> None:
    chat = chat_of([{"role": "user", "content": ["first", part]}])
    assert chat == [{"role": "user", "content": [{"type": "text", "text": "first"}, found]}]


def test_a_system_prompt_beside_a_chat_is_its_first_message() -> None:
    chat = {"system": {"parts": ["Be brief."]}, "messages": [{"role": "user", "content": "a"}]}
    assert chat_of(chat) == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"}]
