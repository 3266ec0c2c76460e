"""A finish reason means the same in every protocol, whatever its case, and no part passes as an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.export.finish_reasons import OPENAIS, REASONS, Ending, ending_of, openai_reason
from fairlane.model.outcome import InvalidResponse, Outcome, PermanentFailure, ServerError, Success
from fairlane_workers.providers.answers.answer import Answer, UnreadableError
from fairlane_workers.providers.answers.classify import Reading, conclude
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.framing.event import StreamEvent
from tests.support.classified import HTTP_PROTOCOLS, connection_of, dialect_of

ABORTED = ["abort", "ABORT", "aborted", "network_error", "error", "insufficient_system_resource", "timeout"]
FILTERED = [
    *("content_filter", "content-filter", "sensitive", "SAFETY", "RECITATION", "PROHIBITED_CONTENT"),
    *("BLOCKLIST", "SPII", "IMAGE_SAFETY", "safety", "refusal", "content_filter: PROHIBITED_CONTENT"),
    *("FinishReason.SAFETY", "guardrail_intervened"),
]
MALFORMED = ["MALFORMED_FUNCTION_CALL", "function_call_filter: MALFORMED_FUNCTION_CALL", "malformed_tool_use"]
CASES = st.sampled_from(["openai", "azure_openai", "anthropic", "gemini", "vertex", "bedrock", "ollama"])


def whole(protocol: str, reason: Any) -> dict[str, Any]:
    """A whole answer with the text "part" and this finish reason."""
    match protocol:
        case "anthropic":
            return {"content": [{"type": "text", "text": "part"}], "stop_reason": reason}
        case "gemini" | "vertex":
            content = {"parts": [{"text": "part"}]}
            return {"candidates": [{"content": content, "finishReason": reason}]}
        case "bedrock":
            message = {"role": "assistant", "content": [{"text": "part"}]}
            return {"output": {"message": message}, "stopReason": reason}
        case "ollama":
            return {"message": {"content": "part"}, "done": True, "done_reason": reason}
    return {"choices": [{"message": {"content": "part"}, "finish_reason": reason}]}


def streamed(protocol: str, reason: Any) -> list[StreamEvent]:
    """The same in pieces, with the end mark that follows."""

    def event(document: dict[str, Any], name: str = "message") -> StreamEvent:
        return StreamEvent(name, json.dumps(document))

    match protocol:
        case "anthropic":
            delta = {"type": "text_delta", "text": "part"}
            return [
                event({"type": "content_block_delta", "index": 0, "delta": delta}),
                event({"type": "message_delta", "delta": {"stop_reason": reason}}),
                event({"type": "message_stop"}),
            ]
        case "bedrock":
            return [
                event({"delta": {"text": "part"}}, "contentBlockDelta"),
                event({"stopReason": reason}, "messageStop"),
                event({"usage": {}}, "metadata"),
            ]
        case "gemini" | "vertex" | "ollama":
            return [event(whole(protocol, reason))]
    return [
        event({"choices": [{"delta": {"content": "part"}, "finish_reason": None}]}),
        event({"choices": [{"delta": {}, "finish_reason": reason}]}),
        StreamEvent("message", "[DONE]"),
    ]


def outcome_of(dialect: Dialect, answer: Answer) -> Outcome:
    return conclude(answer, 200, {}, Reading(late_statuses=dialect.late_statuses), now_ms=0)


def both(protocol: str, reason: Any) -> tuple[Outcome, Outcome]:
    """The outcomes of the whole answer and of the streamed one."""
    dialect = dialect_of(connection_of(protocol))
    at_once, in_pieces = Answer(), Answer()
    try:
        dialect.read(whole(protocol, reason), at_once)
    except UnreadableError as problem:
        at_once = Answer(problem=str(problem))
    try:
        for event in streamed(protocol, reason):
            if not (in_pieces.ended or in_pieces.error):
                dialect.fold(event, in_pieces)
    except UnreadableError as problem:
        in_pieces = Answer(problem=str(problem))
    return outcome_of(dialect, at_once), outcome_of(dialect, in_pieces)


SPOKEN = [each for each in HTTP_PROTOCOLS if each not in ("http", "openai_responses", "replicate")]


@pytest.mark.parametrize("protocol", SPOKEN)
@pytest.mark.parametrize("reason", ABORTED)
def test_a_part_that_a_server_broke_off_is_its_fault(protocol: str, reason: str) -> None:
    for outcome in both(protocol, reason):
        assert not isinstance(outcome, Success | PermanentFailure), outcome
        if reason == "abort":
            assert outcome == ServerError("the provider broke off (abort)", 500)


@pytest.mark.parametrize("protocol", SPOKEN)
@pytest.mark.parametrize("reason", FILTERED)
def test_a_filter_is_final_in_every_protocol(protocol: str, reason: str) -> None:
    for outcome in both(protocol, reason):
        assert isinstance(outcome, PermanentFailure), outcome
        assert "stopped the answer" in outcome.message


@pytest.mark.parametrize("protocol", SPOKEN)
@pytest.mark.parametrize("reason", MALFORMED)
def test_what_the_model_could_not_say_is_no_answer(protocol: str, reason: str) -> None:
    for outcome in both(protocol, reason):
        assert isinstance(outcome, InvalidResponse), outcome
        assert reason in outcome.message


@pytest.mark.parametrize("protocol", SPOKEN)
@pytest.mark.parametrize("reason", ["stop", "STOP", "length", "something_new", "repetition"])
def test_other_reasons_end_an_answer(protocol: str, reason: str) -> None:
    for outcome in both(protocol, reason):
        assert isinstance(outcome, Success), outcome
        assert (outcome.output, outcome.finish_reason) == ("part", reason)


@pytest.mark.parametrize("reason", ["CONTINUATION", "max_messages", "steered", "compaction", "MAX_TOKENS"])
def test_an_answer_that_could_go_on_was_cut(reason: str) -> None:
    assert openai_reason(reason, calls=False) == "length"


def test_an_error_beside_the_reason_goes_before_it() -> None:
    dialect, answer = dialect_of(connection_of("openai")), Answer()
    choice = {"delta": {}, "finish_reason": "abort", "error": {"code": 503, "message": "m"}}
    dialect.fold(StreamEvent("message", json.dumps({"choices": [choice]})), answer)
    assert answer.error == {"code": 503, "message": "m"}


@given(
    protocol=CASES,
    ending=st.sampled_from([Ending.BROKEN_OFF, Ending.MALFORMED, Ending.CONTENT_FILTER]),
    number=st.integers(0, 50),
    upper=st.booleans(),
    before=st.sampled_from(["", "FinishReason.", "some_filter: ", " "]),
)
def test_no_word_of_the_table_that_ends_no_answer_passes_as_one(
    protocol: str, ending: Ending, number: int, upper: bool, before: str
) -> None:
    words = REASONS[ending]
    word = words[number % len(words)]
    for outcome in both(protocol, before + (word.upper() if upper else word)):
        assert not isinstance(outcome, Success)


@given(reason=st.none() | st.text(max_size=30), calls=st.booleans())
def test_every_reason_has_one_of_openais_words(reason: str | None, calls: bool) -> None:
    assert openai_reason(reason, calls=calls) in OPENAIS
    assert ending_of(reason) in (None, *Ending)


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("abort", "length"),
        ("sensitive", "content_filter"),
        ("content-filter", "content_filter"),
        (None, "stop"),
    ],
)
def test_a_part_is_never_exported_as_whole(reason: str | None, word: str) -> None:
    assert openai_reason(reason, calls=False) == word
