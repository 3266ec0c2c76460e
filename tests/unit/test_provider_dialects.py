"""What a protocol sends, and that no document makes its reader do more than complain."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.tokens import Usage
from fairlane_workers.providers.answers.answer import Answer, UnreadableError
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.protocols.anthropic_messages import AnthropicMessages
from fairlane_workers.providers.protocols.openai.chat import OpenAIChat
from fairlane_workers.providers.protocols.openai.responses import OpenAIResponses

DIALECTS: tuple[Dialect, ...] = (OpenAIChat(), OpenAIResponses(), AnthropicMessages())

NAMES = [
    *("choices", "message", "delta", "content", "finish_reason", "usage", "prompt_tokens", "refusal", "text"),
    *("completion_tokens", "index", "type", "error", "object", "content_block", "stop_reason"),
    *("input_tokens", "output_tokens", "cache_creation_input_tokens"),
    *("cache_read_input_tokens", "prompt_tokens_details", "cached_tokens"),
    *("tool_calls", "function", "custom", "name", "arguments", "id", "x_groq", "metadata", "detail", "loc"),
    *("output", "response", "item", "status", "incomplete_details", "reason", "input_tokens_details"),
]
KINDS = [
    *("text", "text_delta", "error", "content_block_start", "content_block_delta", "message_start"),
    *("message_delta", "message_stop", "content_filter", "stop"),
    *("message", "output_text", "function_call", "response.output_text.delta", "response.completed"),
    *("response.output_item.done", "response.incomplete", "response.failed", "failed", "incomplete"),
]
SCALAR = st.none() | st.booleans() | st.integers(-5, 2**60) | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 2**60)
    | st.floats()
    | st.sampled_from(KINDS)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=20,
)


def request(*messages: tuple[str, str], stream: bool = False, **params: Any) -> Request:
    said = [{"role": role, "content": content} for role, content in messages or [("user", "hi")]]
    return Request("m", said, params, stream, 1.0, 1024)


def event(data: object, name: str = "message") -> StreamEvent:
    return StreamEvent(name, json.dumps(data))


def folded(dialect: Dialect, *events: StreamEvent) -> Answer:
    answer = Answer()
    for each in events:
        dialect.fold(each, answer)
    return answer


@given(document=JSON, name=st.sampled_from(["message", "error"]))
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.protocol)
def test_no_document_does_more_than_break_the_schema(dialect: Dialect, document: Any, name: str) -> None:
    answer = Answer()
    with suppress(UnreadableError):
        dialect.fold(event(document, name), answer)
    if isinstance(document, dict):
        with suppress(UnreadableError):
            dialect.read(document, answer)
    answer.take_drafts()
    (answer.text or "").encode()
    (answer.output or "").encode()
    assert answer.usage.total is None or 0 <= answer.usage.total < 2**55


# OpenAI


def test_openai_asks_for_usage_only_when_it_streams() -> None:
    dialect = OpenAIChat()
    assert dialect.body(request(stream=True))["stream_options"] == {"include_usage": True}
    assert "stream_options" not in dialect.body(request())
    assert "stream_options" not in dialect.body(request(stream_options={"x": 1}))


def test_stream_options_of_the_user_are_kept_and_none_leaves_them_out() -> None:
    dialect = OpenAIChat()
    merged = dialect.body(request(stream=True, stream_options={"include_obfuscation": False}))
    assert merged["stream_options"] == {"include_usage": True, "include_obfuscation": False}
    assert "stream_options" not in dialect.body(request(stream=True, stream_options=None))


def test_of_several_choices_the_first_is_the_answer() -> None:
    def choice(index: int, text: str) -> dict[str, Any]:
        return {"index": index, "delta": {"content": text}, "finish_reason": None}

    events = [
        event({"choices": [choice(index, text)]}) for index, text in [(1, "x"), (0, "a"), (1, "y"), (0, "b")]
    ]
    assert folded(OpenAIChat(), *events).text == "ab"


def test_chunks_without_choices_are_no_violation() -> None:
    chunks = [
        event({"choices": [], "prompt_filter_results": []}),
        event({"choices": [{"delta": {"content": "a"}}]}),
    ]
    assert folded(OpenAIChat(), *chunks).text == "a"


def test_usage_in_the_last_chunk_with_a_choice_counts() -> None:
    usage = {"prompt_tokens": 4, "completion_tokens": 2}
    last = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage}
    answer = folded(OpenAIChat(), event(last))
    assert (answer.input_tokens, answer.output_tokens, answer.finish_reason) == (4, 2, "stop")


def test_text_parts_are_joined() -> None:
    content = [
        {"type": "thinking", "thinking": []},
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    answer = Answer()
    OpenAIChat().read({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}, answer)
    assert answer.text == "ab"


def test_a_refusal_of_the_model_is_kept_in_its_words() -> None:
    message = {"content": None, "refusal": "I will not."}
    answer = Answer()
    OpenAIChat().read({"choices": [{"message": message, "finish_reason": "stop"}]}, answer)
    assert (answer.declined, answer.text) == (True, "I will not.")


def test_an_error_document_without_an_error_key_is_an_error() -> None:
    answer = Answer()
    OpenAIChat().read({"object": "error", "message": "m", "code": 400}, answer)
    assert answer.error


@pytest.mark.parametrize("count", [-1, 1.5, "7", None, True, 2**53, [], {}])
def test_a_token_count_that_is_no_count_is_unknown(count: object) -> None:
    usage = {"prompt_tokens": count, "completion_tokens": 2}
    answer = Answer()
    document = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": usage}
    OpenAIChat().read(document, answer)
    assert (answer.input_tokens, answer.output_tokens) == (None, 2)


# Anthropic


def test_system_messages_are_lifted_in_order() -> None:
    body = AnthropicMessages().body(request(("system", "a"), ("user", "hi"), ("developer", "b")))
    assert body["system"] == "a\n\nb"
    assert body["messages"] == [{"role": "user", "content": "hi"}]


def test_a_system_parameter_comes_before_what_is_lifted() -> None:
    dialect = AnthropicMessages()
    assert dialect.body(request(("system", "b"), ("user", "hi"), system="a"))["system"] == "a\n\nb"
    blocks = [{"type": "text", "text": "a"}]
    lifted = dialect.body(request(("system", "b"), ("user", "hi"), system=blocks))["system"]
    assert lifted == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert dialect.body(request(system="a"))["system"] == "a"
    assert "system" not in dialect.body(request())


def test_max_tokens_has_a_default_that_a_parameter_replaces() -> None:
    assert AnthropicMessages().body(request())["max_tokens"] == 1024
    assert AnthropicMessages().body(request(max_tokens=5))["max_tokens"] == 5


def test_anthropic_names_its_version() -> None:
    assert AnthropicMessages().headers() == {"anthropic-version": "2023-06-01"}


def test_input_is_the_whole_prompt_with_what_was_written_to_the_cache_and_read_from_it() -> None:
    usage = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 900,
        "output_tokens": 1,
    }
    answer = folded(
        AnthropicMessages(),
        event({"type": "message_start", "message": {"usage": usage}}),
        event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 8}}),
    )
    assert (answer.usage, answer.finish_reason) == (Usage(915, 8, 900, 5), "end_turn")


@pytest.mark.parametrize(
    ("details", "cached"),
    [({"cached_tokens": 3}, 3), ({"cached_tokens": None}, None), (None, None), ([1], None)],
)
def test_what_openai_read_from_the_cache_is_part_of_the_prompt(details: object, cached: int | None) -> None:
    usage = {"prompt_tokens": 4, "completion_tokens": 2, "prompt_tokens_details": details}
    last = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage}
    assert folded(OpenAIChat(), event(last)).usage == Usage(4, 2, cached)


def test_thinking_and_unknown_events_are_not_text() -> None:
    answer = folded(
        AnthropicMessages(),
        event({"type": "ping"}),
        event({"type": "content_block_start", "content_block": {"type": "thinking", "thinking": ""}}),
        event({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}),
        event({"type": "something_new", "text": "no"}),
    )
    assert answer.text == "a"


def test_text_blocks_are_joined() -> None:
    answer = Answer()
    content = [
        {"type": "text", "text": "a"},
        {"type": "tool_use", "input": {}},
        {"type": "text", "text": "b"},
    ]
    AnthropicMessages().read({"content": content, "stop_reason": "end_turn"}, answer)
    assert answer.text == "ab"
