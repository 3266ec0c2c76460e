"""Prompts and parameters of promptfoo that workers cannot render, as whole requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlane.apps.promptfoo.reading.chats import chat_of
from fairlane.apps.promptfoo.reading.parameters import tools_of
from fairlane.client.submitting.submission import build_spec
from tests.support.promptfoo import Folder, config, path_with_node

NODE = path_with_node()
needs_node = pytest.mark.skipif(NODE is None, reason="JavaScript needs Node.js")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("PATH", NODE or "")
    return Folder(tmp_path)


def requests(folder: Folder, text: str) -> list[dict[str, Any]]:
    (run,) = folder.read(text).runs
    assert build_spec("r", "t", 0, **run.options).request_field == "__request"
    return [row["__request"] for row in run.rows or ()]


def messages(folder: Folder, prompt: str, **parts: Any) -> Any:
    return requests(folder, config(prompts=[prompt], **parts))[0]["messages"]


def test_a_chat_with_parts_is_a_request_with_its_variables_filled_in(folder: Folder) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:;base64,{{word}}"}}
    chat = [{"role": "user", "content": [{"type": "text", "text": "see {{word}}"}, part]}]
    (message,) = messages(folder, json.dumps(chat))
    assert message["content"][0] == {"type": "text", "text": "see hi"}
    assert message["content"][1]["image_url"]["url"] == "data:;base64,hi"


def test_a_template_may_make_the_messages_of_a_chat(folder: Folder) -> None:
    prompt = (
        '[{% for m in turns %}{% for role, said in m %}{"role": "{{role}}", "content": {{said | dump}}},'
        '{% endfor %}{% endfor %}{"role": "user", "content": {{word | dump}} }]'
    )
    turns = [{"user": 'a "quoted" word'}, {"assistant": "b"}]
    made = messages(folder, prompt, tests=[{"vars": {"word": "c", "turns": turns}}])
    assert [(m["role"], m["content"]) for m in made] == [
        ("user", 'a "quoted" word'),
        ("assistant", "b"),
        ("user", "c"),
    ]


def test_a_prompt_that_is_made_cannot_read_what_the_run_remembers(folder: Folder) -> None:
    prompt = '[{% for t in _conversation %}{"role": "user", "content": "x"},{% endfor %} {"role": "user"}]'
    (problem,) = folder.refusals(config(prompts=[prompt]))
    assert "neither _conversation nor storeOutputAs" in problem


@needs_node
def test_functions_of_javascript_make_prompts_for_each_provider(folder: Folder) -> None:
    folder.write("prompt.js", "module.exports = async ({vars, provider}) => `${provider.id}: ${vars.word}`;")
    folder.write(
        "chat.mjs",
        "export const first = ({vars}) => ({prompt: [{role: 'user', content: vars.word}],"
        " config: {max_tokens: 7}});",
    )
    assert messages(folder, "file://prompt.js") == [{"role": "user", "content": "openai:gpt-4o: hi"}]
    (request,) = requests(folder, config(prompts=["file://chat.mjs:first"]))
    assert request == {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 7}


def test_functions_and_scripts_of_python_make_prompts(folder: Folder) -> None:
    folder.write(
        "prompt.py", "def chat(context):\n    return [{'role': 'user', 'content': context['vars']['word']}]"
    )
    folder.write("script.py", "import json, sys\nprint('Say ' + json.loads(sys.argv[1])['vars']['word'])")
    assert messages(folder, "file://prompt.py:chat") == [{"role": "user", "content": "hi"}]
    assert messages(folder, "script.py") == [{"role": "user", "content": "Say hi"}]


def test_a_program_that_fails_is_a_problem_with_its_place(folder: Folder) -> None:
    folder.write("prompt.py", "def chat(context):\n    raise ValueError('no vars')")
    (problem,) = folder.refusals(config(prompts=["file://prompt.py:chat"]))
    assert problem == "promptfooconfig.yaml:1: prompts[0]: prompt.py: ValueError: no vars"


def test_programs_can_be_refused(folder: Folder) -> None:
    folder.write("prompt.py", "print('x')")
    (problem,) = folder.refusals(config(prompts=["file://prompt.py"]), programs=False)
    assert "programs are refused (--no-programs)" in problem


def test_patterns_lists_and_tables_name_several_prompts(folder: Folder) -> None:
    folder.write("prompts/b.txt", "B {{word}}")
    folder.write("prompts/a.txt", "A {{word}}")
    folder.write("list.csv", "prompt,label\nOne {{word}},first\nTwo {{word}},\n")
    folder.write("lines.jsonl", '[{"role": "user", "content": "{{word}}"}]\n')
    read = folder.read(config(prompts=["file://prompts/*.txt", "list.csv", "lines.jsonl"]))
    assert read.prompts == ("a.txt", "b.txt", "first", "list.csv #2", "lines.jsonl")


def test_a_prompt_may_be_named_by_its_file_in_an_object(folder: Folder) -> None:
    folder.write("p.txt", "Say {{word}}")
    assert folder.read(config(prompts={"p.txt": "spoken"})).prompts == ("spoken",)


def test_what_stands_before_and_after_a_prompt_is_part_of_it(folder: Folder) -> None:
    options = {"prefix": "<", "suffix": ">"}
    assert messages(folder, "{{word}}", tests=[{"vars": {"word": "hi"}, "options": options}]) == [
        {"role": "user", "content": "<hi>"}
    ]


def test_a_test_is_asked_with_its_own_prompts_of_its_own_providers(folder: Folder) -> None:
    prompts = [{"label": "a", "raw": "A {{word}}"}, {"label": "b", "raw": "B {{word}}"}]
    tests = [
        {"vars": {"word": "x"}, "prompts": ["a"]},
        {"vars": {"word": "y"}, "providers": ["anthropic:*"]},
    ]
    providers = ["openai:gpt-4o", "anthropic:claude"]
    read = folder.read(config(prompts=prompts, tests=tests, providers=providers))
    asked = [[row["__asked"] for row in run.rows or ()] for run in read.runs]
    assert asked == [["A x"], ["A x", "A y", "B y"]]


def test_a_provider_gets_the_prompts_that_it_names(folder: Folder) -> None:
    prompts = [{"label": "a", "raw": "A {{word}}"}, {"label": "b", "raw": "B {{word}}"}]
    providers = ["openai:gpt-4o", {"id": "anthropic:claude", "prompts": ["b"]}]
    first, second = folder.read(config(prompts=prompts, providers=providers)).runs
    assert (first.prompts, second.prompts) == ((0, 1), (1,))
    assert second.options["prompts"] == ["B {{word}}"]


def test_parameters_of_other_providers_have_names_of_ours(folder: Folder) -> None:
    provider = {
        "id": "openai:gpt-4o",
        "config": {
            "apiKey": "k",
            "region": "eu",
            "showThinking": True,
            "maxOutputTokens": 5,
            "generationConfig": {"topP": 0.5, "response_schema": {"type": "OBJECT"}},
            "instructions": "Be {brief}.",
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "any"},
        },
    }
    read = folder.read(config(providers=[provider]))
    params = dict(read.runs[0].options["params"] or {})
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
    function = {"name": "f", "parameters": {"type": "object"}}
    assert params == {
        "max_tokens": 5,
        "top_p": 0.5,
        "response_format": schema,
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
    }
    assert read.runs[0].options["prompts"] == [
        [
            {"role": "system", "content": "{% raw %}Be {brief}.{% endraw %}"},
            {"role": "user", "content": "Say {{word}}"},
        ]
    ]
    assert [note for note in read.notes if "apiKey" in note or "region" in note] == [
        f"{name} of openai:gpt-4o is left out: fairlane.toml says where and as whom a connection calls"
        for name in ("apiKey", "region")
    ]


@pytest.mark.parametrize(
    "tool",
    [
        {"function": {"name": "f", "parameters": {"type": "object"}}},
        {"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}},
        {"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}}]},
        {"type": "function", "name": "f", "parameters": {"type": "object"}},
    ],
)
def test_a_function_is_described_as_openai_describes_it(tool: dict[str, Any]) -> None:
    assert tools_of([tool]) == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    ]


def test_chats_of_other_providers_are_chats() -> None:
    image = {"inline_data": {"mime_type": "image/png", "data": "QQ=="}}
    found = chat_of({"contents": [{"role": "model", "parts": [{"text": "a"}, image]}]})
    assert found == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
            ],
        }
    ]
    assert chat_of({"prompt": "x"}) is None


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_a_line_of_a_file_ends_where_its_format_says(folder: Folder, separator: str) -> None:
    said = f"one{separator}two"
    chat = json.dumps([{"role": "user", "content": said}], ensure_ascii=False)
    folder.write("chats.jsonl", f"{chat}\n")
    folder.write("prompts.csv", f"prompt\n{said}\n")
    folder.write("tests.jsonl", json.dumps({"vars": {"word": said}}, ensure_ascii=False) + "\n")
    prompts = ["file://chats.jsonl", "file://prompts.csv"]
    read = folder.read(config(prompts=prompts, tests="file://tests.jsonl"))
    assert [row["word"] for row in read.rows] == [said]
    assert read.runs[0].options["prompts"] == [[{"role": "user", "content": said}], said]
