"""Anthropic's requests and answers, in the words of its own documents."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.config.connections.connection import Connection
from fairlane.model.outcome import AccessDenied, RateLimited
from fairlane.model.tokens import Usage
from fairlane_workers.providers.answers.answer import Answer, ToolCall, UnreadableError
from fairlane_workers.providers.answers.classify import Reading, classify
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import UnmappableError
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.protocols.anthropic_messages import AnthropicMessages
from tests.support.classified import dialect_of
from tests.support.conversations import calling

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False}
FUNCTION = {"name": "forecast", "description": "Tells the weather.", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]
HELD = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": SCHEMA}}


def body(**params: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": "hi"}]
    return AnthropicMessages().body(Request("m", said, params, False, 1.0, 1024))


def folded(*documents: dict[str, Any]) -> Answer:
    answer = Answer()
    for each in documents:
        AnthropicMessages().fold(StreamEvent(each["type"], json.dumps(each)), answer)
    return answer


def started(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stopped(reason: str, **more: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, **more}, "usage": {"output_tokens": 1}}


# What is asked


def test_nothing_is_sent_that_was_not_given() -> None:
    assert body() == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 1024,
        "stream": False,
    }


def test_common_parameters_have_their_own_names() -> None:
    sent = body(max_completion_tokens=5, max_tokens=9, stop=["END"], temperature=0, top_p=0.5, top_k=3)
    assert (sent["max_tokens"], sent["stop_sequences"]) == (5, ["END"])
    assert (sent["temperature"], sent["top_p"], sent["top_k"]) == (0, 0.5, 3)
    assert not sent.keys() & {"max_completion_tokens", "stop"}
    assert body(stop="END")["stop_sequences"] == ["END"]
    assert body(max_tokens=None)["max_tokens"] == 1024


def test_own_names_pass_and_win() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2048}
    sent = body(
        thinking=thinking, stop_sequences=["own"], stop="END", cache_control=None, service_tier="auto"
    )
    assert (sent["thinking"], sent["stop_sequences"], sent["service_tier"]) == (thinking, ["own"], "auto")
    assert "cache_control" not in sent


@pytest.mark.parametrize(
    ("name", "value"),
    [("n", 2), ("seed", 1), ("frequency_penalty", 0.5), ("presence_penalty", 1), ("logprobs", True)],
)
def test_a_parameter_that_cannot_be_said_is_named(name: str, value: Any) -> None:
    with pytest.raises(UnmappableError, match=rf"params\.{name}.*'anthropic'"):
        body(**{name: value})


def test_what_asks_for_nothing_is_left_out() -> None:
    idle: dict[str, Any] = {
        "n": 1,
        "seed": None,
        "frequency_penalty": 0,
        "logit_bias": {},
        "stream_options": {},
    }
    assert body(**idle, store=False, safety_identifier="x") == body()


def said(*messages: dict[str, Any]) -> dict[str, Any]:
    return AnthropicMessages().body(Request("m", list(messages), {}, False, 1.0, 1024))


@pytest.mark.parametrize(("given", "kept"), [("toolu_1-a", True), ("functions.add:0", False), ("ü", False)])
def test_an_id_that_anthropic_rejects_is_another_one_in_a_call_and_its_result(given: str, kept: bool) -> None:
    called, answered = said(*calling(given))["messages"]
    key = called["content"][0]["id"]
    assert key == answered["content"][0]["tool_use_id"]
    assert (key == given) == kept
    assert re.fullmatch("[a-zA-Z0-9_-]+", key)


def test_texts_of_blanks_alone_are_left_out() -> None:
    parts = [{"type": "text", "text": " \n"}, {"type": "text", "text": "hi"}]
    sent = said({"role": "system", "content": ""}, {"role": "user", "content": parts})
    assert sent["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert "system" not in sent


@pytest.mark.parametrize("in_parts", [False, True])
def test_an_answer_that_was_begun_ends_without_blanks(in_parts: bool) -> None:
    def content(text: str) -> Any:
        return [{"type": "text", "text": text}] if in_parts else text

    chat = [{"role": role, "content": content(f"{role}: ")} for role in ("assistant", "user", "assistant")]
    shown = [turn["content"] for turn in said(*chat)["messages"]]
    assert shown == [content("assistant: "), content("user: "), content("assistant:")]


def test_a_user_is_reported_as_metadata() -> None:
    assert body(user="u-1")["metadata"] == {"user_id": "u-1"}
    assert body(user="u-1", metadata={"user_id": "own"})["metadata"] == {"user_id": "own"}
    assert body(user="u-1", metadata={"team": "search"})["metadata"] == {"user_id": "u-1"}
    assert body(metadata={"team": "search"}) == body(metadata=None) == body()


def test_a_schema_and_an_effort_go_into_the_output_config() -> None:
    held = {"type": "json_schema", "schema": SCHEMA}
    assert body(response_format=HELD)["output_config"] == {"format": held}
    sent = body(response_format=HELD, reasoning_effort="low", output_config={"effort": "max"})
    assert sent["output_config"] == {"format": held, "effort": "max"}
    assert "response_format" not in sent


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"reasoning_effort": "minimal"}, "reasoning_effort"),
    ],
)
def test_what_it_has_no_form_for_is_named(params: dict[str, Any], named: str) -> None:
    with pytest.raises(UnmappableError, match=rf"params\.{named}"):
        body(**params)


def test_tools_have_an_input_schema_and_own_ones_pass() -> None:
    own = {"type": "web_search_20250305", "name": "web_search"}
    strict = {"type": "function", "function": {**FUNCTION, "strict": True}}
    shown = {"name": "forecast", "description": "Tells the weather.", "input_schema": SCHEMA}
    assert body(tools=[*TOOLS, own])["tools"] == [shown, own]
    assert body(tools=[strict])["tools"] == [{**shown, "strict": True}]


@pytest.mark.parametrize(
    ("choice", "shown"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ({"type": "function", "function": {"name": "forecast"}}, {"type": "tool", "name": "forecast"}),
        (
            {"type": "any", "disable_parallel_tool_use": True},
            {"type": "any", "disable_parallel_tool_use": True},
        ),
    ],
)
def test_a_tool_choice_is_translated_and_an_own_one_passes(choice: Any, shown: dict[str, Any]) -> None:
    assert body(tools=TOOLS, tool_choice=choice)["tool_choice"] == shown


def test_tools_one_at_a_time_are_asked_for_in_the_tool_choice() -> None:
    alone = {"type": "auto", "disable_parallel_tool_use": True}
    assert body(tools=TOOLS, parallel_tool_calls=False)["tool_choice"] == alone
    assert "tool_choice" not in body(tools=TOOLS, parallel_tool_calls=True)
    assert "parallel_tool_calls" not in body(tools=TOOLS, parallel_tool_calls=False)
    own: list[Any] = [{"type": "web_search_20250305", "name": "web_search"}]
    assert body(tools=own, parallel_tool_calls=False)["tool_choice"] == alone
    asked = body(tools=own, tool_choice={"type": "any"}, parallel_tool_calls=False)
    assert asked["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert body(tool_choice={"type": "none"}, parallel_tool_calls=False)["tool_choice"] == {"type": "none"}


def test_a_connection_may_ask_for_another_version() -> None:
    settings = {"protocol": "anthropic", "base_url": "http://x", "api_version": "2027-01-01"}
    dialect = dialect_of(Connection.model_validate(settings))
    assert dialect.headers() == {"anthropic-version": "2027-01-01"}


# What is answered


def test_tool_use_is_a_tool_beside_the_text() -> None:
    answer, thinking = Answer(), {"type": "thinking", "thinking": "hm", "signature": "s"}
    use = {"type": "tool_use", "id": "1", "name": "forecast", "input": {"city": "Oslo"}}
    content = [thinking, {"type": "text", "text": "Let me see."}, use]
    AnthropicMessages().read({"content": content, "stop_reason": "tool_use"}, answer)
    assert answer.tools == [ToolCall("forecast", '{"city": "Oslo"}')]
    assert (answer.text, answer.finish_reason) == ("Let me see.", "tool_use")


@pytest.mark.parametrize("end", [[stopped("tool_use")], [stopped("tool_use"), {"type": "message_stop"}]])
def test_streamed_tools_are_put_together_by_their_index(end: list[dict[str, Any]]) -> None:
    answer = folded(
        started(0, type="text", text=""),
        delta(0, "text_delta", text="So"),
        started(1, type="tool_use", id="1", name="forecast", input={}),
        delta(1, "input_json_delta", partial_json=""),
        delta(1, "input_json_delta", partial_json='{"city": '),
        started(2, type="tool_use", id="2", name="clock", input={}),
        delta(1, "input_json_delta", partial_json='"Oslo"}'),
        *end,
    )
    assert answer.text == "So"
    assert answer.tools == [ToolCall("forecast", '{"city": "Oslo"}'), ToolCall("clock", "")]
    assert json.loads(answer.output or "")["tool_calls"][1] == {"name": "clock", "arguments": {}}


def test_tools_that_the_provider_runs_are_not_ours() -> None:
    answer = folded(
        started(0, type="server_tool_use", id="1", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"query": "x"}'),
        started(1, type="web_search_tool_result", content=[]),
        started(2, type="text", text="found"),
        stopped("end_turn"),
    )
    assert (answer.text, answer.tools) == ("found", [])


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "pause_turn"])
def test_an_answer_that_was_cut_short_is_one_and_its_reason_says_so(reason: str) -> None:
    answer = folded(started(0, type="text", text="half"), stopped(reason))
    assert (answer.text, answer.finish_reason, answer.refusal) == ("half", reason, None)


COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
GROWTH = st.dictionaries(st.sampled_from(COUNTS), st.integers(0, 1000))


@given(start=GROWTH, growths=st.lists(GROWTH, max_size=3), omitted=st.sampled_from(["absent", None]))
def test_counts_that_a_later_event_omits_stay(
    start: dict[str, int], growths: list[dict[str, int]], omitted: str | None
) -> None:
    """As Anthropic's own client has it: cumulative counts of a ``message_delta`` replace those before."""
    so_far: dict[str, int] = {"input_tokens": 0, **start}
    events = [{"type": "message_start", "message": {"usage": {**so_far}}}]
    for growth in growths:
        so_far |= {name: so_far.get(name, 0) + more for name, more in growth.items()}
        shown = {name: so_far[name] for name in growth}
        usage = {**dict.fromkeys(COUNTS), **shown} if omitted is None else shown
        events.append({"type": "message_delta", "delta": {}, "usage": usage})
    rest, read, written, put_out = (so_far.get(name) for name in COUNTS)
    total = (rest or 0) + (read or 0) + (written or 0)
    assert folded(*events).usage == Usage(total, put_out, read, written)


def test_what_compacting_the_context_took_counts() -> None:
    """Its entry's tokens are not in the totals; those of all other steps are."""
    steps = [
        {"type": "compaction", **dict(zip(COUNTS, (100, 20, 3, 40), strict=True))},
        {"type": "message", **dict(zip(COUNTS, (5, 0, 0, 7), strict=True))},
    ]
    usage = {**dict(zip(COUNTS, (5, None, 0, 7), strict=True)), "iterations": steps}
    answer = Answer()
    AnthropicMessages().read({"content": [], "stop_reason": "end_turn", "usage": usage}, answer)
    streamed = folded({"type": "message_delta", "delta": {}, "usage": usage})
    assert answer.usage == streamed.usage == Usage(128, 47, 20, 3)


def test_a_refusal_says_why_where_the_provider_does() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "It could do harm."}
    answer = folded(stopped("refusal", stop_details=details))
    assert answer.refusal is not None
    assert answer.refusal.endswith("cyber: It could do harm.")
    assert folded(stopped("refusal", stop_details=None)).refusal


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (429, "enforced_spend_limit_reached", "quota"),
        (400, "contract_spend_limit_reached", "quota"),
        (400, "organization_on_hold", "auth"),
    ],
)
def test_what_no_wait_will_mend_parks(status: int, code: str, reason: str) -> None:
    error = {"type": "rate_limit_error", "message": "m", "details": {"error_code": code}}
    shown = classify(ErrorBody.of({"type": "error", "error": error}), status, {}, Reading(), now_ms=0)
    assert isinstance(shown, AccessDenied)
    assert shown.reason == reason


def test_growing_too_fast_is_a_rate_limit() -> None:
    error = {"type": "rate_limit_error", "message": "m", "details": {"error_code": "ramp_limit_exceeded"}}
    assert isinstance(classify(ErrorBody.of({"error": error}), 429, {}, Reading(), now_ms=0), RateLimited)


EVENTS = st.sampled_from(["content_block_start", "content_block_delta", "message_delta", "message_stop"])
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["tool_use", "text", "input_json_delta", "text_delta"])},
    optional={
        name: st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=1)
        for name in ("name", "input", "partial_json", "text", "stop_reason", "stop_details")
    },
)


@given(st.lists(st.tuples(EVENTS, st.none() | st.integers(0, 1) | st.text(max_size=1), BLOCK), max_size=6))
def test_no_order_of_events_does_more_than_break_the_schema(shown: list[tuple[str, Any, Any]]) -> None:
    answer = Answer()
    for kind, index, block in shown:
        event = {"type": kind, "index": index, "content_block": block, "delta": block}
        with suppress(UnreadableError):
            AnthropicMessages().fold(StreamEvent(kind, json.dumps(event)), answer)
    (answer.output or "").encode()
