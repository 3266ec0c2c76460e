"""A text that a server sends in pieces, as a whole, or both is the answer's text once."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane_workers.providers.answers.answer import Answer, ToolCall
from fairlane_workers.providers.framing.event import StreamEvent
from tests.support.classified import connection_of, dialect_of

LETTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from("ab 😀")
TEXTS = st.text(LETTERS, min_size=1, max_size=40)


@st.composite
def mixes(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]]]:
    """A text, and how a server may send it: pieces in order, and any number of snapshots between them."""
    text = draw(TEXTS)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    marks = [0, *cuts, len(text)]
    sent: list[tuple[str, str]] = []
    for begin, end in pairwise(marks):
        ahead = draw(st.lists(st.integers(0, len(text)), max_size=2))
        sent.extend(("snapshot", text[:size]) for size in ahead)
        sent.append(("piece", text[begin:end]))
    return text, sent


def events(*documents: dict[str, Any]) -> list[StreamEvent]:
    return [StreamEvent("message", json.dumps(document)) for document in documents]


def folded(protocol: str, sent: list[StreamEvent]) -> tuple[Answer, str]:
    """The answer, and what a listener heard."""
    answer, dialect = Answer(), dialect_of(connection_of(protocol))
    return answer, "".join([dialect.fold(event, answer) for event in sent])


@given(mixes())
def test_any_mix_of_pieces_and_snapshots_is_the_text_once(mix: tuple[str, list[tuple[str, str]]]) -> None:
    text, sent = mix
    answer = Answer()
    heard = "".join([answer.add(part) if kind == "piece" else answer.snapshot(part) for kind, part in sent])
    assert answer.text == heard == text


@given(mixes())
def test_a_stream_of_chat_completions_with_messages_among_its_deltas_has_the_text_once(
    mix: tuple[str, list[tuple[str, str]]],
) -> None:
    text, sent = mix
    names = {"piece": "delta", "snapshot": "message"}
    choices = [{"index": 0, names[kind]: {"content": part}} for kind, part in sent]
    answer, heard = folded("openai", events(*({"choices": [choice]} for choice in choices)))
    assert answer.text == heard == text


@given(text=TEXTS, first=st.integers(0, 40), cuts=st.lists(st.integers(0, 40), max_size=5))
def test_a_block_that_begins_with_its_text_has_it_once(text: str, first: int, cuts: list[int]) -> None:
    marks = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(marks)]
    block = {"type": "text", "text": text[:first]}
    answer, heard = folded(
        "anthropic",
        events(
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "before "}},
            {"type": "content_block_start", "index": 1, "content_block": block},
            *(
                {"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}}
                for piece in pieces
            ),
        ),
    )
    assert answer.text == heard == f"before {text}"


@given(begun=st.text("ab", min_size=1, max_size=6), rest=st.lists(st.text("cd", min_size=1), min_size=1))
def test_pieces_that_do_not_repeat_a_snapshot_go_on_after_it(begun: str, rest: list[str]) -> None:
    answer = Answer()
    answer.snapshot(begun)
    for piece in rest:
        answer.add(piece)
    assert answer.text == begun + "".join(rest)


def test_pieces_that_seemed_to_repeat_a_snapshot_are_not_lost() -> None:
    answer = Answer()
    assert [answer.snapshot("ha"), answer.add("h"), answer.add("i")] == ["ha", "", "hi"]
    assert answer.text == "hahi"


@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_messages_that_are_pieces_are_put_together(pieces: list[str]) -> None:
    answer = Answer()
    marked = [f"{number}{piece}" for number, piece in enumerate(pieces)]
    for piece in marked:
        answer.snapshot(piece)
    assert answer.text == "".join(marked)


def test_a_whole_message_that_says_otherwise_is_the_servers_last_word() -> None:
    answer = Answer()
    answer.add("The answer is <masked>.")
    assert answer.snapshot("The answer is 42.") == ""
    assert answer.text == "The answer is 42."


def test_a_whole_message_without_the_blanks_around_changes_nothing() -> None:
    answer = Answer()
    answer.add("\n\nThe answer.\n")
    answer.snapshot("The answer.")
    assert answer.text == "\n\nThe answer.\n"


def test_a_surrogate_pair_in_two_pieces_meets_its_snapshot() -> None:
    answer = Answer()
    answer.add("a\ud83d")
    answer.snapshot("a😀b")
    answer.add("\ude00")
    answer.add("b")
    assert answer.text == "a😀b"


def test_a_last_message_repeats_calls_and_refusals_too() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}
    whole = {"tool_calls": [call], "refusal": "I will not"}
    answer, _ = folded(
        "openai",
        [
            *events(
                {"choices": [{"delta": {"tool_calls": [call], "refusal": "I will not"}}]},
                {"choices": [{"message": whole, "finish_reason": "tool_calls"}]},
            ),
            StreamEvent("message", "[DONE]"),
        ],
    )
    assert answer.tools == [ToolCall("f", '{"a": 1}')]
    assert (answer.declined, answer.text) == (True, "I will not")


def test_arguments_that_a_block_begins_with_count_once() -> None:
    block = {"type": "tool_use", "name": "f", "input": {"a": 1}}
    pieces = ['{"a"', ": 1}"]
    answer, _ = folded(
        "anthropic",
        events(
            {"type": "content_block_start", "index": 0, "content_block": block},
            *(
                {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "input_json_delta", "partial_json": piece},
                }
                for piece in pieces
            ),
            {"type": "message_stop"},
        ),
    )
    assert answer.tools == [ToolCall("f", '{"a": 1}')]


@pytest.mark.parametrize("pieces", [[], [""], ["hel"], ["hel", "lo"]])
def test_the_end_of_a_response_has_what_its_pieces_lacked(pieces: list[str]) -> None:
    output = [{"type": "message", "content": [{"type": "output_text", "text": "hello"}]}]
    answer, heard = folded(
        "openai_responses",
        events(
            *({"type": "response.output_text.delta", "delta": piece} for piece in pieces),
            {"type": "response.completed", "response": {"status": "completed", "output": output}},
        ),
    )
    assert answer.text == heard == "hello"
