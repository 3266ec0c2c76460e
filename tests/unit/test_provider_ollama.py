"""What is sent to Ollama, and what its answers, streams and refusals become."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ollama._types import ChatRequest, Options

from fairlane.model.outcome import (
    InvalidResponse,
    Overloaded,
    PermanentFailure,
    ServerError,
    Success,
)
from fairlane.model.tokens import Usage
from fairlane_workers.providers.answers.answer import Answer, UnreadableError
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import UnmappableError
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.protocols.ollama import Ollama
from tests.support.provider_calls import ask, call, streamed
from tests.support.scripted_server import http
from tests.support.wires import OllamaWire

WIRE = OllamaWire()
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "A city's", "parameters": CITY},
}
FORM = {"type": "json_schema", "json_schema": {"name": "place", "schema": CITY}}
SAMPLING = {
    "temperature": 0,
    "top_p": 0.5,
    "top_k": 5,
    "seed": 1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.2,
}


def sent(*messages: tuple[str, str], stream: bool = False, **params: Any) -> dict[str, Any]:
    said = [{"role": role, "content": content} for role, content in messages or [("user", "hi")]]
    return Ollama().body(Request("m", said, params, stream, 1.0, 1024))


# What is sent


def test_a_run_without_parameters_sends_model_messages_and_stream() -> None:
    body = sent(("developer", "Be brief."), ("user", "hi"), stream=True)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert body == {"model": "m", "messages": messages, "stream": True}
    assert sent()["stream"] is False


def test_sampling_goes_to_the_options_that_the_sdk_knows() -> None:
    options = sent(max_tokens=50, stop="END", **SAMPLING)["options"]
    assert options == {**SAMPLING, "num_predict": 50, "stop": ["END"]}
    assert options.keys() <= Options.model_fields.keys()


def test_names_that_are_not_the_api_s_are_options_and_its_own_stay() -> None:
    body = sent(num_ctx=8192, keep_alive="10m", think="low", logprobs=True, mirostat=None)
    assert body["options"] == {"num_ctx": 8192}
    assert (body["keep_alive"], body["think"], body["logprobs"]) == ("10m", "low", True)
    assert body.keys() <= ChatRequest.model_fields.keys()


def test_given_options_win_and_none_takes_one_out() -> None:
    body = sent(
        max_tokens=5, temperature=0.5, top_k=3, options={"num_predict": -1, "top_k": None, "num_ctx": 9}
    )
    assert body["options"] == {"num_predict": -1, "temperature": 0.5, "num_ctx": 9}


@pytest.mark.parametrize(
    ("params", "format"),
    [
        ({"response_format": FORM}, CITY),
        ({"response_format": {"type": "json_object"}}, "json"),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": FORM, "format": "json"}, "json"),
        ({"format": CITY}, CITY),
    ],
)
def test_the_form_of_an_answer_is_its_format(params: dict[str, Any], format: Any) -> None:
    assert sent(**params).get("format") == format


def test_tools_go_as_they_are_unless_none_may_be_called() -> None:
    assert sent(tools=[WEATHER], tool_choice="auto")["tools"] == [WEATHER]
    assert "tools" not in sent(tools=[WEATHER], tool_choice="none")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_call_cannot_be_demanded(choice: Any) -> None:
    with pytest.raises(UnmappableError, match="tool_choice"):
        sent(tools=[WEATHER], tool_choice=choice)


@pytest.mark.parametrize(
    ("name", "value"),
    [("reasoning_effort", "low"), ("logit_bias", {"5": 1}), ("n", 2), ("parallel_tool_calls", False)],
)
def test_a_parameter_that_ollama_would_ignore_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UnmappableError, match=f"params.{name}: the protocol 'ollama' has no such parameter"):
        sent(**{name: value})
    assert "options" not in sent(n=1, user="u", metadata={"a": "b"}, stream_options={}, store=False)


# What is read


def line(done: str | None = None, **message: Any) -> dict[str, Any]:
    ending = {"done_reason": done, "prompt_eval_count": 7, "eval_count": 3} if done else {}
    return {"message": {"role": "assistant", **message}, "done": done is not None, **ending}


def folded(*lines: dict[str, Any]) -> Answer:
    answer, dialect = Answer(), Ollama()
    for each in lines:
        dialect.fold(StreamEvent("message", json.dumps(each)), answer)
    return answer


def test_thinking_is_not_the_answer() -> None:
    answer = folded(
        line(content="", thinking="hm"), line(content="a"), line(content="b"), line("stop", content="")
    )
    assert (answer.text, answer.usage, answer.finish_reason) == ("ab", Usage(7, 3), "stop")
    whole = Answer()
    Ollama().read(line("length", content="ab", thinking="hm"), whole)
    assert (whole.text, whole.finish_reason) == ("ab", "length")


def test_a_tool_s_call_is_read_whole_and_streamed() -> None:
    calls = [{"function": {"name": "weather", "arguments": {"city": "Köln"}}}]
    whole = Answer()
    Ollama().read(line("stop", content="", tool_calls=calls), whole)
    for answer in (whole, folded(line(content="", tool_calls=calls), line("stop", content=""))):
        assert json.loads(answer.output or "") == {
            "text": "",
            "tool_calls": [{"name": "weather", "arguments": {"city": "Köln"}}],
        }


def test_a_model_that_was_only_loaded_has_not_answered() -> None:
    with pytest.raises(UnreadableError, match="loaded"):
        folded(line("load", content=""))
    outcome, _ = call(WIRE, ask(), [http(200, WIRE.whole("", "load"))])
    assert isinstance(outcome, InvalidResponse)


@pytest.mark.parametrize(
    "message", [{"tool_calls": 7}, {"tool_calls": ["x"]}, {"tool_calls": [{"function": "x"}]}]
)
def test_calls_of_another_form_break_the_schema(message: dict[str, Any]) -> None:
    with pytest.raises(UnreadableError, match="tool_calls"):
        folded(line(content="", **message))


def test_counts_may_be_missing() -> None:
    outcome, _ = call(WIRE, ask(), [http(200, {"message": {"content": "a"}, "done": True})])
    assert outcome == Success("a", Usage(), None, 200)


NAMES = [
    *("message", "content", "tool_calls", "function", "name", "arguments", "done", "done_reason", "error"),
    *("prompt_eval_count", "eval_count"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**60) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=20,
)


@given(document=JSON)
def test_no_document_does_more_than_break_the_schema(document: Any) -> None:
    answer = Answer()
    with suppress(UnreadableError):
        Ollama().fold(StreamEvent("message", json.dumps(document)), answer)
    (answer.output or "").encode()
    assert Ollama().error({}, json.dumps(document).encode()).message != ""


# Refusals


@pytest.mark.parametrize(
    "words",
    ["model 'llama3.2:3b' not found", 'model "llama3.2:3b" not found, try pulling it first'],
)
def test_a_missing_model_comes_with_the_command_that_fetches_it(words: str) -> None:
    outcome, _ = call(WIRE, ask(), [http(404, {"error": words})])
    assert isinstance(outcome, PermanentFailure)
    assert outcome.message == "model 'llama3.2:3b' not found: run `ollama pull llama3.2:3b` on the server"


@pytest.mark.parametrize(("status", "expected"), [(503, Overloaded), (429, Overloaded), (400, Overloaded)])
def test_a_refusal_has_the_server_s_words(status: int, expected: type) -> None:
    words = "server busy, please try again.  maximum pending requests exceeded"
    outcome, _ = call(WIRE, ask(), [http(status, {"error": words})])
    assert type(outcome) is expected
    assert outcome.message == words  # type: ignore[union-attr]


def test_an_error_in_mid_stream_is_tried_again() -> None:
    data = (
        WIRE.begin() + WIRE.piece("half") + b'{"error":"an error was encountered while running the model"}\n'
    )
    outcome, _ = call(WIRE, ask(stream=True), streamed(WIRE, data))
    assert outcome == ServerError("an error was encountered while running the model", 500)
