"""Amazon's frames and lines of JSON are the same wherever the network cuts; broken ones are found out."""

from __future__ import annotations

import json
import struct
import zlib
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane_workers.providers.answers.answer import UnreadableError
from fairlane_workers.providers.framing.aws_events import AwsEventParser
from fairlane_workers.providers.framing.event import EventParser, StreamEvent
from fairlane_workers.providers.framing.form import BodyParser
from fairlane_workers.providers.framing.ndjson import NdjsonParser
from fairlane_workers.providers.framing.sse import SseParser
from tests.support.wires.bedrock import event_frame, frame

STREAM = event_frame("messageStart", {"role": "assistant"}) + event_frame("metadata", {"note": "grüß {} \n"})
EVENTS = [
    StreamEvent("messageStart", json.dumps({"role": "assistant"})),
    StreamEvent("metadata", json.dumps({"note": "grüß {} \n"})),
]


def read(parser: EventParser, *chunks: bytes) -> list[StreamEvent]:
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.finish()


@given(cuts=st.lists(st.integers(0, len(STREAM))))
def test_frames_are_the_same_wherever_they_are_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[begin:end] for begin, end in pairwise(edges)]
    assert read(AwsEventParser(), *chunks) == EVENTS


@given(at=st.integers(0, len(STREAM) - 1), bit=st.integers(0, 7))
def test_a_bit_that_is_wrong_changes_no_event(at: int, bit: int) -> None:
    broken = bytearray(STREAM)
    broken[at] ^= 1 << bit
    parser = AwsEventParser()
    try:
        events = read(parser, bytes(broken))
    except UnreadableError:
        return
    assert events == EVENTS[: len(events)]
    assert len(events) < len(EVENTS)


@given(data=st.binary(max_size=200))
def test_bytes_that_are_no_frames_do_no_more_than_break_the_format(data: bytes) -> None:
    with suppress(UnreadableError):
        assert read(AwsEventParser(), data, data) == []


@given(headers=st.binary(max_size=40), declared=st.none() | st.integers(0, 60))
def test_headers_with_right_checksums_and_no_sense_break_the_format(
    headers: bytes, declared: int | None
) -> None:
    lengths = struct.pack("!II", 16 + len(headers), len(headers) if declared is None else declared)
    message = lengths + struct.pack("!I", zlib.crc32(lengths)) + headers
    data = message + struct.pack("!I", zlib.crc32(message))
    with suppress(UnreadableError):
        assert read(AwsEventParser(), data) == []


@pytest.mark.parametrize("total", [0, 11, 15, 1 << 25, (1 << 32) - 1])
def test_a_frame_of_an_impossible_length_is_not_waited_for(total: int) -> None:
    lengths = struct.pack("!II", total, 0)
    prelude = lengths + struct.pack("!I", zlib.crc32(lengths))
    with pytest.raises(UnreadableError):
        AwsEventParser().feed(prelude + b"\0" * 8)


def test_text_in_place_of_frames_is_found_out_at_once() -> None:
    with pytest.raises(UnreadableError, match="Checksum mismatch"):
        AwsEventParser().feed(b"data: {}\n\ndata")


def test_exceptions_and_errors_are_reported_from_events() -> None:
    exception = frame(
        {":message-type": "exception", ":exception-type": "throttlingException"}, b'{"message":"m"}'
    )
    error = frame({":message-type": "error", ":error-code": "500", ":error-message": "broke"}, b"")
    assert read(AwsEventParser(), exception + error) == [
        StreamEvent("error:throttlingException", '{"message":"m"}'),
        StreamEvent("error:500", '{"message": "broke"}'),
    ]
    with pytest.raises(UnreadableError, match="None"):
        read(AwsEventParser(), frame({}, b"{}"))


def test_a_large_frame_in_small_pieces_is_joined_once() -> None:
    large = frame({":message-type": "event", ":event-type": "x"}, b"a" * (1 << 20))
    parser = AwsEventParser()
    events = [event for at in range(0, len(large), 16) for event in parser.feed(large[at : at + 16])]
    assert [(event.name, len(event.data)) for event in events] == [("x", 1 << 20)]


LINES = '{"a": 1}\n\n \r\n{"b": "grüß"}\r\n{"c": 3}'.encode()


@given(cuts=st.lists(st.integers(0, len(LINES))))
def test_lines_are_the_same_wherever_they_are_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(LINES)]
    chunks = [LINES[begin:end] for begin, end in pairwise(edges)]
    assert [event.data for event in read(NdjsonParser(), *chunks)] == [
        '{"a": 1}',
        '{"b": "grüß"}',
        '{"c": 3}',
    ]


def test_lines_are_handed_out_as_soon_as_they_end() -> None:
    parser = NdjsonParser()
    assert parser.feed(b'{"a"') == []
    assert parser.feed(b': 1}\n{"b"') == [StreamEvent("message", '{"a": 1}')]
    assert parser.finish() == [StreamEvent("message", '{"b"')]
    assert parser.finish() == []


# What a body is

PIECES = st.sampled_from(
    [
        *(
            b"data:",
            b"data",
            b": x",
            b"event: error",
            b"error: no",
            b"retry: 1",
            b"id: 1",
            b" ",
            b"\t",
            b"\r",
        ),
        *(
            b"\n",
            b"\n\n",
            b"{",
            b"}",
            b"[",
            b"]",
            b'{"a": 1}',
            b"<html>",
            b"\xef\xbb\xbf",
            b"\xef",
            b"\0",
            b"x",
        ),
    ]
)
OWN = st.sampled_from([SseParser, NdjsonParser, None])
KINDS = st.sampled_from(["text/event-stream", "application/json", "text/html", "application/x-ndjson", ""])


def parsed(
    own: type[SseParser | NdjsonParser] | None, kind: str, asked: bool, chunks: list[bytes]
) -> tuple[list[StreamEvent], bytes | None, bytes]:
    body = BodyParser(own() if own else None, kind, asked=asked)
    events = read(body, *chunks)
    return events, body.document, body.stray


@given(
    body=st.lists(PIECES, max_size=12).map(b"".join),
    cuts=st.lists(st.integers(0, 200), max_size=12),
    own=OWN,
    kind=KINDS,
    asked=st.booleans(),
)
def test_what_a_body_is_does_not_depend_on_where_it_is_cut(
    body: bytes, cuts: list[int], own: type[SseParser | NdjsonParser] | None, kind: str, asked: bool
) -> None:
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    chunks = [body[begin:end] for begin, end in pairwise(edges)]
    whole = parsed(own, kind, asked, [body])
    assert parsed(own, kind, asked, chunks) == whole
    assert parsed(own, kind, asked, [bytes([each]) for each in body]) == whole
    assert (whole[1] is None) or not whole[0]


@given(body=st.binary(max_size=100), kind=KINDS, asked=st.booleans())
def test_a_format_of_another_package_is_read_by_its_type_alone(body: bytes, kind: str, asked: bool) -> None:
    class Own:
        def feed(self, chunk: bytes) -> list[StreamEvent]:
            return [StreamEvent("own", chunk.hex())]

        def finish(self) -> list[StreamEvent]:
            return []

    parser = BodyParser(Own(), kind, asked=asked)
    events = read(parser, body)
    is_own = asked and kind != "application/json"
    assert (parser.document is None) == is_own
    assert "".join(event.data for event in events) == (body.hex() if is_own else "")
