"""What ended as an answer should and holds none is no success; a model that says nothing is one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.export.finish_reasons import OPENAIS, Ending, ending_of, openai_reason
from fairlane.model.outcome import FlawedAnswer, InvalidResponse, Outcome, Overloaded, ServerError, Success
from fairlane_workers.providers.answers.answer import Answer, UnreadableError
from fairlane_workers.providers.answers.classify import Reading, conclude
from fairlane_workers.providers.framing.event import StreamEvent
from tests.support.classified import connection_of, dialect_of
from tests.support.provider_calls import ask, call, streamed
from tests.support.scripted_server import event, http
from tests.support.wires import OpenAIChatWire
from tests.support.wires.ollama import OllamaWire

WIRE = OpenAIChatWire()
COUNTED = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
UNCOUNTED = {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}


def whole(message: dict[str, Any], reason: object = "stop", usage: Any = None) -> Outcome:
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return call(WIRE, ask(), [http(200, {"choices": [choice], "usage": usage})])[0]


def in_pieces(*deltas: dict[str, Any], reason: object = "stop", usage: Any = None) -> Outcome:
    choices: list[dict[str, Any]] = [{"index": 0, "delta": each, "finish_reason": None} for each in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": reason})
    data = b"".join(event({"choices": [choice]}) for choice in choices)
    data += event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n"
    return call(WIRE, ask(stream=True), streamed(WIRE, data))[0]


@pytest.mark.parametrize("usage", [None, UNCOUNTED, {}])
def test_an_empty_text_without_a_token_is_made_again(usage: Any) -> None:
    for outcome in (whole({"content": ""}, usage=usage), in_pieces({"content": ""}, usage=usage)):
        assert isinstance(outcome, FlawedAnswer), outcome
        assert outcome.message == "the answer is empty, and no token was counted for it (finish reason stop)"


@pytest.mark.parametrize("reason", ["stop", "eos", None])
def test_a_model_that_says_nothing_has_answered(reason: object) -> None:
    for outcome in (
        whole({"content": ""}, reason, COUNTED),
        in_pieces({"content": ""}, reason=reason, usage=COUNTED),
    ):
        assert isinstance(outcome, Success), outcome
        assert outcome.output == ""


def test_an_answer_that_was_cut_before_its_first_text_stays_empty() -> None:
    outcome = whole({"content": ""}, "length")
    assert isinstance(outcome, Success)
    assert (outcome.output, outcome.finish_reason) == ("", "length")


def test_a_call_of_a_tool_needs_no_count() -> None:
    tool = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    assert isinstance(whole({"content": "", "tool_calls": [tool]}, "tool_calls"), Success)


@pytest.mark.parametrize(
    "message",
    [
        {"content": "", "reasoning_content": "hmm"},
        {"content": "", "reasoning": "hmm"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]}]},
        {"content": []},
    ],
)
def test_reasoning_is_no_text(message: dict[str, Any]) -> None:
    for outcome in (whole(message, usage=COUNTED), in_pieces(message, usage=COUNTED)):
        assert isinstance(outcome, FlawedAnswer), outcome


def test_an_ollama_model_that_only_thinks_has_not_answered() -> None:
    body = {"message": {"content": "", "thinking": "long"}, "done": True, "done_reason": "stop"}
    outcome, _ = call(OllamaWire(), ask(), [http(200, {**body, "eval_count": 99})])
    assert isinstance(outcome, FlawedAnswer)
    outcome, _ = call(OllamaWire(), ask(), [http(200, {**body, "message": {"content": ""}, "eval_count": 1})])
    assert isinstance(outcome, Success)


@pytest.mark.parametrize(
    ("protocol", "document"),
    [
        (
            "anthropic",
            {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": ""}]}
            | {"stop_reason": "end_turn", "usage": {"input_tokens": 3, "output_tokens": 9}},
        ),
        (
            "bedrock",
            {"output": {"message": {"content": [{"reasoningContent": {}}, {"text": ""}]}}}
            | {"stopReason": "end_turn", "usage": {"inputTokens": 3, "outputTokens": 9}},
        ),
    ],
)
def test_a_model_that_only_thinks_has_not_answered(protocol: str, document: dict[str, Any]) -> None:
    dialect, answer = dialect_of(connection_of(protocol)), Answer()
    dialect.read(document, answer)
    outcome = conclude(answer, 200, {}, Reading(), now_ms=0)
    assert isinstance(outcome, FlawedAnswer), outcome
    assert outcome.message.startswith("the answer holds reasoning alone")


def test_an_endpoint_without_counts_may_answer_nothing() -> None:
    dialect, answer = dialect_of(connection_of("http")), Answer()
    dialect.read({"text": ""}, answer)
    outcome = conclude(answer, 200, {}, Reading(), now_ms=0)
    assert isinstance(outcome, Success)
    assert outcome.output == ""


@given(st.lists(st.text("ab ", max_size=4), min_size=1, max_size=4), st.booleans())
def test_texts_in_a_list_are_text(texts: list[str], wrapped: bool) -> None:
    parts = [{"type": "text", "text": text} if wrapped else text for text in texts]
    answer = Answer()
    dialect = dialect_of(connection_of("openai"))
    dialect.read({"choices": [{"message": {"content": parts}, "finish_reason": "stop"}]}, answer)
    streamed_answer = Answer()
    chunk = {"choices": [{"delta": {"content": parts}}]}
    dialect.fold(StreamEvent("message", json.dumps(chunk)), streamed_answer)
    assert answer.text == streamed_answer.text == "".join(texts)


# Reasons


@pytest.mark.parametrize(
    "reason",
    [
        *("unload", "cancel", "interrupted", "preempted", "disconnect", "failed", "engine_error"),
        *("server_error", "upstream_error", "connection_error", "ClientDisconnect", "timed-out", "crashed"),
        "FinishReason.CANCELLED_BY_SERVER",
    ],
)
def test_a_reason_that_names_a_failure_ends_no_answer(reason: str) -> None:
    for outcome in (whole({"content": "part"}, reason), in_pieces({"content": "part"}, reason=reason)):
        assert isinstance(outcome, ServerError), outcome
        assert reason in outcome.message
    assert openai_reason(reason, calls=False) == "length"


@pytest.mark.parametrize("reason", ["repetition", "other", "unknown", "load", "no_error", "success"])
def test_a_new_reason_that_names_no_failure_is_recorded(reason: str) -> None:
    outcome = in_pieces({"content": "text"}, reason=reason)
    assert isinstance(outcome, Success)
    assert (outcome.output, outcome.finish_reason) == ("text", reason)


def test_a_reason_may_be_an_object() -> None:
    abort = {"type": "abort", "message": "out of memory", "status_code": 503}
    for outcome in (whole({"content": "part"}, abort), in_pieces({"content": "part"}, reason=abort)):
        assert isinstance(outcome, Overloaded)
        assert outcome.message == "the provider broke off (abort): out of memory"
    outcome = whole({"content": "text"}, {"type": "stop", "matched": 2})
    assert isinstance(outcome, Success)
    assert outcome.finish_reason == "stop"


@pytest.mark.parametrize("reason", [1, True, ["stop"], {"matched": 2}, {"type": 3}])
def test_a_reason_that_cannot_be_read_is_no_end(reason: object) -> None:
    with pytest.raises(UnreadableError, match="finish reason"):
        Answer().finish(reason)
    assert isinstance(whole({"content": "part"}, reason), InvalidResponse)


@given(
    before=st.text("abcxyz_", max_size=5),
    word=st.sampled_from(["error", "abort", "cancel", "interrupt", "disconnect", "timeout", "unload"]),
    after=st.text("abcxyz_", max_size=5),
    upper=st.booleans(),
)
def test_failures_are_found_within_reasons(before: str, word: str, after: str, upper: bool) -> None:
    reason = f"{before}-{word}{after}"
    ending = ending_of(reason.upper() if upper else reason)
    assert ending is Ending.BROKEN_OFF or before.endswith("no_")


def test_a_context_that_is_used_up_is_a_length() -> None:
    assert ending_of("context_length_exceeded") is Ending.LENGTH
    assert set(OPENAIS) >= {openai_reason("context_length_exceeded", calls=False)}
