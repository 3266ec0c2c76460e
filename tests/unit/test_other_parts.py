"""Answers that hold something other than text: its words count, and an answer without words is final."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.decision import Defer, RetryPolicy, decide
from fairlane.model.job import Claim, JobState
from fairlane.model.outcome import FlawedAnswer, Outcome, PermanentFailure, Success
from fairlane.model.record import note_of
from fairlane.model.results import TaskResult, assemble
from fairlane.store.write.answer_cache import read_answer, written_answer
from fairlane_workers.providers.answers.answer import Answer
from fairlane_workers.providers.answers.classify import Reading, conclude
from fairlane_workers.providers.framing.event import StreamEvent
from tests.support.classified import connection_of, dialect_of
from tests.support.records import spec_of

PNG = {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}
RUN_CODE = {"executableCode": {"code": "1+1"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}
SPEECH = {"id": "a", "data": "UklG", "transcript": "hello there", "expires_at": 9}


def concluded(answer: Answer) -> Outcome:
    return conclude(answer, 200, {}, Reading(), now_ms=0)


def read(protocol: str, document: dict[str, Any]) -> Outcome:
    answer = Answer()
    dialect_of(connection_of(protocol)).read(document, answer)
    return concluded(answer)


def folded(protocol: str, *events: dict[str, Any], name: str = "message") -> Outcome:
    answer, dialect = Answer(), dialect_of(connection_of(protocol))
    for each in events:
        dialect.fold(StreamEvent(each.pop("_name", name), json.dumps(each)), answer)
    answer.ended = True
    return concluded(answer)


def chat(message: dict[str, Any], reason: str = "stop") -> list[Outcome]:
    usage = {"prompt_tokens": 3, "completion_tokens": 9}
    choice = {"message": message, "finish_reason": reason}
    return [
        read("openai", {"choices": [choice], "usage": usage}),
        folded(
            "openai",
            {"choices": [{"delta": message}]},
            {"choices": [{"delta": {}, "finish_reason": reason}], "usage": usage},
        ),
    ]


def google(*parts: dict[str, Any], reason: str = "STOP") -> list[Outcome]:
    candidate = {"content": {"parts": list(parts)}, "finishReason": reason}
    return [read("gemini", {"candidates": [candidate]}), folded("gemini", {"candidates": [candidate]})]


def test_what_a_recording_says_is_the_output() -> None:
    for content in ({"content": None}, {"content": ""}, {}):
        for outcome in chat({**content, "audio": SPEECH}):
            assert isinstance(outcome, Success), outcome
            assert outcome.output == "hello there"
            assert outcome.notes == ("the answer also held audio, which no record keeps",)


def test_a_recordings_words_come_in_pieces() -> None:
    deltas: list[dict[str, Any]] = [
        {"audio": {"id": "a", "transcript": piece}} for piece in ("hel", "lo ", "there")
    ]
    deltas += [{"audio": {"data": "UklG"}}, {"audio": {"expires_at": 9}}]
    choices = [{"delta": {"content": "", **delta}} for delta in deltas]
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    outcome = folded("openai", *({"choices": [choice]} for choice in choices), end)
    assert isinstance(outcome, Success), outcome
    assert (outcome.output, len(outcome.notes)) == ("hello there", 1)


@given(st.text(min_size=1), st.text())
def test_a_text_counts_before_the_words_of_its_recording(text: str, transcript: str) -> None:
    for outcome in chat({"content": text, "audio": {"data": "UklG", "transcript": transcript}}):
        if text.strip():
            assert isinstance(outcome, Success)
            assert outcome.output == text


WITHOUT_TEXT = [
    *(("audio", each) for each in chat({"content": None, "audio": {"data": "UklG"}})),
    *(("images", each) for each in chat({"content": "", "images": [IMAGE]})),
    *(("image_url", each) for each in chat({"content": [IMAGE]})),
    *(("image/png", each) for each in google(PNG)),
    *(("image/png", each) for each in google({"text": " \n"}, PNG, reason="MAX_TOKENS")),
    *(("audio/L16", each) for each in google({"inlineData": {"mimeType": "audio/L16", "data": "A"}})),
    *(("executableCode", each) for each in google(RUN_CODE, {"codeExecutionResult": {"output": "2"}})),
    (
        "image_generation_call",
        read(
            "openai_responses",
            {"status": "completed", "output": [{"type": "image_generation_call", "result": "iVBO"}]},
        ),
    ),
    (
        "image_generation_call",
        folded(
            "openai_responses",
            {
                "type": "response.completed",
                "response": {"status": "completed", "output": [{"type": "image_generation_call"}]},
            },
        ),
    ),
    (
        "server_tool_use",
        read("anthropic", {"content": [{"type": "server_tool_use"}], "stop_reason": "pause_turn"}),
    ),
    (
        "server_tool_use",
        folded(
            "anthropic",
            {"type": "content_block_start", "content_block": {"type": "server_tool_use"}},
            {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}},
        ),
    ),
    (
        "image",
        read("bedrock", {"output": {"message": {"content": [{"image": {}}]}}, "stopReason": "end_turn"}),
    ),
    (
        "image",
        folded(
            "bedrock",
            {"_name": "contentBlockDelta", "delta": {"image": {}}},
            {"_name": "messageStop", "stopReason": "end_turn"},
        ),
    ),
    (
        "images",
        read("ollama", {"message": {"content": "", "images": ["iVBO"]}, "done": True, "done_reason": "stop"}),
    ),
]


@pytest.mark.parametrize(("kind", "outcome"), WITHOUT_TEXT, ids=lambda each: str(each)[:20])
def test_an_answer_without_a_text_is_final_and_names_what_it_holds(kind: str, outcome: Outcome) -> None:
    assert isinstance(outcome, PermanentFailure), outcome
    assert outcome.message.startswith("the answer holds no text, which is all that a record keeps, but ")
    assert kind in outcome.message
    made = decide(outcome, Claim(0, 0, 0), RetryPolicy(), random.Random(0))
    assert isinstance(made, Defer)
    assert made.cost == "rejected", "final where that is the row's own"
    assert made.feedback.refusal == f"200 {outcome.message}", "five alike hold the run"
    assert made.feedback.usage == outcome.usage


def test_what_it_cost_is_counted() -> None:
    for outcome in chat({"content": None, "audio": {"data": "UklG"}}):
        assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (3, 9)


@pytest.mark.parametrize(
    ("outcomes", "notes"),
    [
        (google({"text": "Here:"}, PNG), 1),
        (google({"text": "2"}, RUN_CODE), 0),
        (google({"thought": True, **PNG}, {"text": "yes"}), 0),
        (chat({"content": [{"type": "text", "text": "Here:"}, IMAGE]}), 1),
        (chat({"content": "yes", "images": [], "audio": None}), 0),
    ],
)
def test_a_text_is_kept_and_a_note_names_what_is_not(outcomes: list[Outcome], notes: int) -> None:
    for outcome in outcomes:
        assert isinstance(outcome, Success), outcome
        assert len(outcome.notes) == notes


def test_an_answer_that_is_cut_after_a_search_is_as_empty_as_ever() -> None:
    (outcome,) = {str(each) for each in google(RUN_CODE, reason="MAX_TOKENS")}
    assert outcome.startswith("Success(output=''")


def test_an_answer_of_nothing_at_all_is_asked_for_again() -> None:
    assert all(isinstance(each, FlawedAnswer) for each in chat({"content": None}))


@given(st.lists(st.text(max_size=9), max_size=3), st.lists(st.text(max_size=9), max_size=3), st.booleans())
def test_notes_of_an_answer_reach_its_record_and_the_cache(
    left_out: list[str], notes: list[str], short: bool
) -> None:
    stored = TaskResult(
        JobState.SUCCEEDED, "yes", left_out=tuple(left_out), notes=tuple(notes), attempts=1
    ).to_json(short=short)
    assert TaskResult.from_json(stored).notes == tuple(notes)
    record = assemble(spec_of(), 0, {}, [stored])
    assert record.notes.get("task", "") == note_of(left_out, notes)
    answer = Success("yes", left_out=tuple(left_out), notes=tuple(notes))
    kept = written_answer(answer)
    assert read_answer(kept.encode() if isinstance(kept, str) else kept) == answer
