"""Chats that rows hold: a request is sent, and what cannot be one is refused before it is paid."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane import SubmissionError, llm_judge
from fairlane.pipeline.requests import CHAT_URL, URLS, MalformedRequest, body_of, read_request
from tests.support.stage import Stage

CHAT = [{"role": "user", "content": "hi"}]


def submit(stage: Stage, rows: Any, prompt: Any = None, **options: Any) -> Any:
    return stage.client.submit(rows, prompt, **{"model": "sim:fast"} | options)


def refused(stage: Stage, rows: Any, prompt: Any = None, **options: Any) -> SubmissionError:
    before = set(stage.redis.keys("*"))
    with pytest.raises(SubmissionError) as caught:
        submit(stage, rows, prompt, **options)
    assert set(stage.redis.keys("*")) == before
    return caught.value


@pytest.mark.parametrize(
    "held",
    [CHAT, {"messages": CHAT}, json.dumps(CHAT), json.dumps({"messages": CHAT})],
    ids=["list", "object", "list as text", "object as text"],
)
def test_a_list_of_messages_and_a_text_of_json_are_requests(stage: Stage, held: Any) -> None:
    assert read_request(None, held, as_responses=False).messages == CHAT
    submit(stage, [{"messages": held}] * 3, request="messages")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"r": "hello"}, "a text that is no JSON"),
        ({"r": '"hello"'}, "but a str"),
        ({"r": 3}, "but a int"),
        ({"r": {"prompt": "x"}}, "it has no messages"),
        ({"r": [{"from": "human", "value": "hi"}]}, "messages[0] has no role (from and value are role and"),
        ({"r": ["hi"]}, "messages[0] is no object"),
        ({"r": {"messages": CHAT}, "url": "/v1/rerank"}, ", ".join(URLS)),
        ({"r": {"input": [1, 2]}, "url": "/v1/embeddings"}, "numbers of tokens are not taken"),
    ],
)
def test_a_request_that_no_row_holds_is_refused_with_its_form(stage: Stage, row: Any, words: str) -> None:
    error = refused(stage, [row] * 3, request="r")
    assert (error.field, error.value) == ("request", "r")
    assert words in str(error)
    assert 'A request is {"messages": […]}' in str(error)
    submit(stage, [row] * 3, request="r", check=False)
    submit(stage, [row, {"r": CHAT}], request="r")


def test_responses_that_only_some_connections_take_are_the_schedulers_to_refuse(stage: Stage) -> None:
    row = {"url": "/v1/responses", "r": {"input": "x", "previous_response_id": "r_1"}}
    submit(stage, [row], request="r")


@pytest.mark.parametrize(
    "beside",
    [{"temperature": 0}, {"tools": [{"type": "function"}], "model": "m"}, {"top_p": 1, "max_tokens": 5}],
)
def test_a_row_that_is_a_request_loses_no_parameter(stage: Stage, beside: dict[str, Any]) -> None:
    row = {"messages": CHAT, **beside}
    said = str(refused(stage, [row], request="messages"))
    assert f"would leave out {', '.join(each for each in beside if each != 'model')}" in said
    submit(stage, [{"body": row}], request="body")
    submit(stage, [row], request="messages", check=False)
    submit(
        stage,
        [{"messages": CHAT, "temperature": None, "metadata": {"id": 1}, "user": "u"}],
        request="messages",
    )


@pytest.mark.parametrize("url", ["/v1/completions", "/v1/moderations", "/v1/audio/transcriptions"])
def test_another_api_is_left_to_a_function(stage: Stage, url: str) -> None:
    said = str(refused(stage, [{"url": url, "r": {"input": "x"}}], request="r"))
    assert "a function of yours (task=) can call others" in said


def test_a_column_of_web_addresses_is_no_api() -> None:
    asked = read_request("https://example.org/v1/page", {"messages": CHAT}, as_responses=False)
    assert asked.messages == CHAT


def test_what_a_text_asks_for_is_checked_as_in_an_object(stage: Stage) -> None:
    held = json.dumps({"messages": CHAT, "n": 3, "seed": 1})
    assert "all answers but the first dropped" in str(refused(stage, [{"r": held}], request="r"))


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"logprobs": True}, "r['logprobs']"),
        ({"top_logprobs": 3}, "r['top_logprobs']"),
        ({"prompt_logprobs": 1}, "r['prompt_logprobs']"),
        ({"include": ["message.output_text.logprobs"]}, "r['include']"),
        ({"generationConfig": {"responseLogprobs": True}}, "r['generationConfig']['responseLogprobs']"),
        ({"timeout": 9}, "r['timeout']"),
    ],
)
def test_what_no_record_keeps_and_what_is_replaced_is_refused_in_a_row(
    stage: Stage, asked: dict[str, Any], field: str
) -> None:
    error = refused(stage, [{"r": {"messages": CHAT}}, {"r": {"messages": CHAT, **asked}}], request="r")
    assert (error.field, error.row) == (field, 2)
    assert "check=False" in error.remedy
    rows = [{"r": {"messages": CHAT}}] * 130
    assert refused(stage, [*rows, {"r": {"messages": CHAT, **asked}}], request="r").row == 131
    submit(stage, [*rows, {"r": "no request"}], request="r")
    kept = {"messages": CHAT, "logprobs": False, "include": ["reasoning.encrypted_content"]}
    submit(stage, [{"r": kept}], request="r")


@pytest.mark.parametrize("role", ["human", "gpt", "Bot", "ai", "chatgpt", "model", "User", "SYSTEM"])
@pytest.mark.parametrize("as_text", [False, True])
def test_a_role_by_another_tools_name_is_refused_in_a_row_as_in_a_prompt(
    stage: Stage, role: str, as_text: bool
) -> None:
    held: Any = [*CHAT, {"role": role, "content": "x"}]
    rows = [{"r": CHAT}, {"r": json.dumps(held) if as_text else held}]
    error = refused(stage, rows, request="r")
    assert (error.field, error.value, error.row) == ("r.messages[1].role", role, 2)
    assert any(f"Write {known!r}." in error.remedy for known in ("user", "assistant", "system"))
    submit(stage, rows, request="r", check=False)


def test_a_role_in_a_request_for_a_response_is_checked_too(stage: Stage) -> None:
    row = {"url": "/v1/responses", "r": {"input": [{"role": "human", "content": "x"}]}}
    assert refused(stage, [row], request="r").field == "r.input[0].role"
    for known in ("tool", "function", "developer", "critic"):
        submit(stage, [{"r": [*CHAT, {"role": known, "content": "x", "tool_call_id": "c"}]}], request="r")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(held=JSON | st.text() | JSON.map(json.dumps), url=st.none() | st.sampled_from(URLS) | st.text())
def test_any_value_is_a_request_that_can_be_sent_or_has_a_reason(held: Any, url: Any) -> None:
    try:
        asked = read_request(url, held, as_responses=False)
    except MalformedRequest:
        return
    if isinstance(held, str):
        json.dumps([asked.messages, asked.params, asked.inputs], allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "text", ['{"messages": [], "x": NaN}', '{"x": 1e999}', '{"x": "\\ud800"}', "[" * 9000]
)
def test_a_text_of_json_that_cannot_be_sent_is_none(text: str) -> None:
    with pytest.raises(MalformedRequest, match="no JSON"):
        body_of(text)


def test_a_chat_in_a_prompt_is_named(stage: Stage) -> None:
    rows = [{"chat": CHAT, "q": "x"}] * 2
    assert 'request="<field>"' in str(refused(stage, rows, messages="{{ chat }}"))
    for prompt in ("{{ chat }}", " {{chat}}\n"):
        assert 'Give request="chat"' in str(refused(stage, rows, prompt))
    submit(stage, rows, "{{ chat }}", check=False)
    submit(stage, rows, "The chat: {{ chat }}")
    submit(stage, [*rows, {"chat": "a text"}], "{{ chat }}")


@pytest.mark.parametrize("role", ["{{ r }}", "{% if x %}user{% endif %}", "user{# #}"])
def test_a_template_in_a_role_is_refused(stage: Stage, role: str) -> None:
    error = refused(stage, [{"r": "user"}], messages=[{"role": role, "content": "x"}], check=False)
    assert error.field == "messages[0].role"


@pytest.mark.parametrize(
    ("role", "meant"), [("human", "user"), ("gpt", "assistant"), ("User", "user"), ("SYSTEM", "system")]
)
def test_a_role_of_another_tool_is_named(stage: Stage, role: str, meant: str) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": role, "content": "x"}]
    assert f"Write {meant!r}" in str(refused(stage, [{"r": 1}], messages=messages))
    submit(stage, [{"r": 1}], messages=messages, check=False)


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool", "function", "critic"])
def test_other_roles_are_the_servers_to_refuse(stage: Stage, role: str) -> None:
    submit(stage, [{"r": 1}], messages=[{"role": role, "content": "x"}])


@pytest.mark.parametrize(
    "params",
    [
        {"metadata": {"id": "{{ q }}"}},
        {"tools": "{{ tools }}"},
        {"stop": ["a", "{{q}}"]},
        {"user": "{% if q %}x{% endif %}"},
    ],
)
def test_a_template_in_parameters_is_refused(stage: Stage, params: Any) -> None:
    (name,) = params
    error = refused(stage, [{"q": 1}], "{{ q }}", params=params)
    assert error.field == f"params[{name!r}]"
    assert "is no template" in str(error)
    submit(stage, [{"q": 1}], "{{ q }}", params=params, check=False)
    judge = llm_judge("sim:judge", "{{ output }}", {"y": 1}, **{"params": params})
    assert "is no template" in str(refused(stage, [{"q": 1}], "{{ q }}", evaluators=[judge]))
    submit(stage, [{"q": 1}], "{{ q }}", model="python:m.f", params=params)


def test_what_only_looks_like_a_template_is_sent(stage: Stage) -> None:
    params = {"stop": ["{{", "}}"], "chat_template": "{{ messages }}", "metadata": {"a": "{b}"}}
    submit(stage, [{"q": 1}], "{{ q }}", params=params)


def test_a_timeout_among_the_parameters_is_named(stage: Stage) -> None:
    assert "Give timeout=" in str(refused(stage, [{"q": 1}], "{{ q }}", params={"timeout": 3}))


def test_a_known_address_is_a_chat() -> None:
    assert read_request(CHAT_URL, CHAT, as_responses=True).messages == CHAT
