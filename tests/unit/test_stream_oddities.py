"""Streams as gateways and small servers write them: read where the answer is whole, else by their words."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.outcome import InvalidResponse, Outcome, Overloaded, RateLimited, ServerError, Success
from fairlane_workers.providers.answers.answer import Answer
from fairlane_workers.providers.framing.sse import SseParser
from fairlane_workers.providers.http.provider import NamedEndings
from tests.support.classified import connection_of, dialect_of
from tests.support.provider_calls import ask, call, provider_of, streamed
from tests.support.scripted_server import event, http, scripted_server
from tests.support.wires import OpenAIChatWire

WIRE = OpenAIChatWire()
WORDS = ["The answer ", "is ", "forty-two."]
TEXT = "".join(WORDS)
END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 18}}
DONE = b"data: [DONE]\n\n"
HEARTBEATS = ["ping", "keep-alive", "[PROCESSING]", "null", '"waiting"', "1", ": OPENROUTER", "[]"]


def piece(word: str, index: int = 0) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": {"content": word}, "finish_reason": None}]}


def stream(*parts: dict[str, Any] | bytes) -> Outcome:
    data = b"".join(part if isinstance(part, bytes) else event(part) for part in parts)
    return call(WIRE, ask(stream=True), streamed(WIRE, data))[0]


def answered(outcome: Outcome) -> tuple[str, int | None]:
    assert isinstance(outcome, Success), outcome
    return outcome.output, outcome.usage.output_tokens


@st.composite
def servers(draw: st.DrawFn) -> bytes:
    """A stream of `WORDS`, parted and interleaved as servers do it."""
    lines = [json.dumps(document) for document in (*map(piece, WORDS), END, USAGE)]
    ending = draw(st.sampled_from(["\n", "\n\n", "\r\n", "\r\n\r\n"]))
    body = ""
    for line in lines:
        for beat in draw(st.lists(st.sampled_from(HEARTBEATS), max_size=2)):
            body += f"data: {beat}{ending}"
        body += draw(st.sampled_from(["", "event: message" + ending[: len(ending) // 2 or 1]]))
        body += f"data: {line}{ending}"
    return (body + draw(st.sampled_from(["data: [DONE]", "data:[DONE]", "[DONE]"])) + ending).encode()


@given(data=servers(), cuts=st.lists(st.integers(0, 900), max_size=6))
def test_an_answer_is_read_however_its_events_are_parted(data: bytes, cuts: list[int]) -> None:
    parser, answer, dialect = SseParser(), Answer(), dialect_of(connection_of("openai"))
    marks = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[begin:end] for begin, end in pairwise(marks)]
    events = [found for chunk in chunks for found in parser.feed(chunk)] + parser.finish()
    for found in events:
        if not answer.ended:
            dialect.fold(found, answer)
    assert (answer.text, answer.finish_reason, answer.output_tokens) == (TEXT, "stop", 8)
    assert answer.ended
    assert not answer.error


def test_events_parted_by_one_newline_arrive_as_they_are_sent() -> None:
    parser = SseParser()
    assert parser.feed(b'data: {"a": 1}\n') == []
    assert [found.data for found in parser.feed(b'data: {"a": 2}\n')] == ['{"a": 1}']


def test_data_over_several_lines_is_one_event() -> None:
    shown = json.dumps({"a": {"b": [1, {}]}, "c": {}}, indent=1)
    parser = SseParser()
    data = "".join(f"data: {line}\n" for line in shown.splitlines()) + "\n"
    assert [found.data for found in parser.feed(data.encode())] == [shown]


@pytest.mark.parametrize("beat", HEARTBEATS[:6])
def test_a_stream_of_heartbeats_alone_says_what_came(beat: str) -> None:
    outcome = stream(f"data: {beat}\n\n".encode(), DONE.replace(b"[DONE]", b"bye"))
    assert isinstance(outcome, InvalidResponse)
    assert outcome.message == f"not JSON: {beat!r}"


def test_an_object_that_is_cut_is_no_heartbeat() -> None:
    assert isinstance(stream(piece("a"), b'data: {"choices": [\n\n', END, DONE), InvalidResponse)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"code": "Throttling.RateQuota", "message": "Requests rate limit exceeded"}, RateLimited),
        ({"error_code": 18, "error_msg": "Open api qps request limit reached"}, RateLimited),
        ({"code": 503, "msg": "no capacity"}, Overloaded),
        ({"success": False, "message": "no available channel"}, ServerError),
    ],
)
def test_words_in_place_of_an_answer_count_as_with_a_document(
    document: dict[str, Any], expected: type[Outcome]
) -> None:
    in_stream = stream(document)
    alone = call(WIRE, ask(), [http(200, document)])[0]
    assert type(in_stream) is type(alone) is expected
    assert in_stream == alone


def test_words_beside_an_answer_do_no_harm() -> None:
    queued = {"message": "your request is queued", "code": 102}
    assert answered(stream(queued, *map(piece, WORDS), END, USAGE, DONE)) == (TEXT, 8)


def test_an_error_after_the_end_leaves_the_answer() -> None:
    late = {"error": {"message": "usage service failed", "code": 500}}
    assert answered(stream(*map(piece, WORDS), END, late))[0] == TEXT
    assert answered(stream(*map(piece, WORDS), END, b'event: error\ndata: "oops"\n\n'))[0] == TEXT
    assert isinstance(stream(*map(piece, WORDS), late, DONE), ServerError)


def test_an_error_after_reasons_that_every_piece_repeats_is_one() -> None:
    repeated = [
        {"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": "stop"}]} for word in WORDS
    ]
    late = {"error": {"message": "failed", "code": 500}}
    assert isinstance(stream(*repeated, late), ServerError)


def test_zeros_at_the_end_undo_no_count() -> None:
    zeros = {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}
    outcome = stream(*map(piece, WORDS), END, USAGE, zeros, DONE)
    assert isinstance(outcome, Success)
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (10, 8)


@given(st.lists(st.tuples(st.none() | st.integers(0, 99), st.none() | st.integers(0, 99)), max_size=5))
def test_the_largest_counts_stay(counts: list[tuple[int | None, int | None]]) -> None:
    answer = Answer()
    for answered_tokens, asked in counts:
        answer.count(answered_tokens, asked)
    for seen, kept in zip(
        zip(*counts, strict=True), (answer.output_tokens, answer.input_tokens), strict=False
    ):
        assert kept == max((count for count in seen if count is not None), default=None)


# Forms of old and of wrappers


def test_a_call_of_a_function_of_old_is_read() -> None:
    old = {"name": "f", "arguments": '{"a": 1}'}
    expected = {"text": "", "tool_calls": [{"name": "f", "arguments": {"a": 1}}]}
    choice = {
        "index": 0,
        "message": {"content": None, "function_call": old},
        "finish_reason": "function_call",
    }
    output, _ = answered(call(WIRE, ask(), [http(200, {"choices": [choice]})])[0])
    assert json.loads(output) == expected
    calls = [{"name": "f", "arguments": '{"a"'}, {"arguments": ": 1}"}]
    pieces = [{"choices": [{"index": 0, "delta": {"function_call": called}}]} for called in calls]
    ending = {"choices": [{"index": 0, "delta": {}, "finish_reason": "function_call"}]}
    output, _ = answered(stream(*pieces, ending, DONE))
    assert json.loads(output) == expected


def test_an_answer_in_a_wrapper_is_taken_out() -> None:
    answer = {
        "choices": [{"message": {"content": TEXT}, "finish_reason": "stop"}],
        "usage": USAGE["usage"],
    }
    for body in ({"code": 0, "msg": "success", "data": answer}, {"success": True, "result": answer}):
        assert answered(call(WIRE, ask(), [http(200, body)])[0]) == (TEXT, 8)
    wrapped = [{"code": 0, "msg": "success", "data": part} for part in (*map(piece, WORDS), END, USAGE)]
    assert answered(stream(*wrapped, DONE)) == (TEXT, 8)


def test_success_in_place_of_an_answer_is_no_error() -> None:
    outcome = call(WIRE, ask(), [http(200, {"code": 0, "msg": "success", "data": None})])[0]
    assert isinstance(outcome, InvalidResponse)


def test_completions_of_old_have_their_text() -> None:
    whole = {"choices": [{"index": 0, "text": TEXT, "finish_reason": "stop"}]}
    assert answered(call(WIRE, ask(), [http(200, whole)])[0])[0] == TEXT
    pieces = [{"choices": [{"index": 0, "text": word, "finish_reason": None}]} for word in WORDS]
    assert answered(stream(*pieces, END, DONE))[0] == TEXT


def test_a_choice_that_is_alone_counts_whatever_its_index() -> None:
    choice = {"index": 1, "message": {"content": TEXT}, "finish_reason": "stop"}
    assert answered(call(WIRE, ask(), [http(200, {"choices": [choice]})])[0])[0] == TEXT
    ending = {"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]}
    assert answered(stream(*(piece(word, 1) for word in WORDS), ending, DONE))[0] == TEXT


def test_of_several_choices_the_first_counts() -> None:
    others = [piece(word, 1) for word in ("other ", "text ", "here")]
    mixed = [part for pair in zip(others, map(piece, WORDS), strict=True) for part in pair]
    assert answered(stream(*mixed, END, DONE))[0] == TEXT


CUT = b"".join([*map(event, map(piece, WORDS)), DONE])
"""A stream whose end mark alone says that it is whole."""


def whole(reason: str) -> bytes:
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    return CUT.removesuffix(DONE) + event(end) + DONE


def outcomes_of(*calls: tuple[str, bytes]) -> list[Outcome]:
    """Of calls of one connection, one after another: each to a model that answers with a stream."""

    async def scenario() -> list[Outcome]:
        script = [streamed(WIRE, data) for _, data in calls]
        async with scripted_server(script) as server, provider_of(WIRE, server.url) as provider:
            return [await provider.call(replace(ask(stream=True), model=model)) for model, _ in calls]

    return asyncio.run(scenario())


def test_a_stream_without_the_reason_that_its_model_names_has_broken_off() -> None:
    first, cut, other, again = outcomes_of(("a", whole("stop")), ("a", CUT), ("b", CUT), ("a", whole("stop")))
    assert isinstance(cut, InvalidResponse)
    assert "without a finish reason, which this model names" in cut.message
    assert [answered(each)[0] for each in (first, other, again)] == [TEXT] * 3


@pytest.mark.parametrize("reason", ["length", "content_filter", "of its own"])
def test_a_model_that_names_unusual_reasons_alone_ends_without_one(reason: str) -> None:
    outcomes = outcomes_of(("a", whole(reason)), ("a", CUT))
    assert answered(outcomes[1])[0] == TEXT


@given(ends=st.lists(st.sampled_from(["stop", "length", None]), max_size=12))
def test_only_a_mark_alone_after_a_named_stop_breaks_a_stream_off(ends: list[str | None]) -> None:
    endings, named = NamedEndings(), False
    for reason in ends:
        answer, dialect = Answer(), dialect_of(connection_of("openai"))
        for each in SseParser().feed(CUT if reason is None else whole(reason)):
            dialect.fold(each, answer)
        endings.check("m", answer)
        assert answer.complete == (reason is not None or not named)
        named = named or reason == "stop"
