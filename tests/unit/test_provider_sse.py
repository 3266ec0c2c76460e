"""Server-sent events are the same however their bytes arrive."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.framing.sse import SseParser

LINE_TEXT = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
LINE_END = st.sampled_from(["\n", "\r\n", "\r"])
LINE = st.one_of(
    st.builds("data: {}".format, LINE_TEXT),
    st.builds("data:{}".format, LINE_TEXT),
    st.builds("event: {}".format, LINE_TEXT),
    st.builds(": {}".format, LINE_TEXT),
    st.builds("error: {}".format, LINE_TEXT),
    st.sampled_from(["", "data", "event", "id: 1", "retry: 5", "unknown", "{", '{"a": 1}', " [", "}"]),
)


def parse(*chunks: bytes) -> list[StreamEvent]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.finish()


def message(data: str) -> StreamEvent:
    return StreamEvent("message", data)


@given(
    lines=st.lists(st.tuples(LINE, LINE_END), max_size=20),
    cuts=st.lists(st.integers(0, 400), max_size=30),
    bom=st.booleans(),
)
def test_chunk_boundaries_do_not_change_the_events(
    lines: list[tuple[str, str]], cuts: list[int], bom: bool
) -> None:
    stream = ("\ufeff" if bom else "").encode() + "".join(text + end for text, end in lines).encode()
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(places)]
    assert parse(*chunks) == parse(stream) == parse(*(bytes([byte]) for byte in stream))


@given(texts=st.lists(LINE_TEXT, min_size=1), end=LINE_END)
def test_every_event_comes_out_whatever_ends_the_lines(texts: list[str], end: str) -> None:
    stream = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    plain = [text.encode().strip().decode() for text in texts]
    assert parse(stream) == [message(text) for text in plain if text and not text.startswith(":")]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"", []),
        (b"\n\n\n", []),
        (b": keep-alive\n\n: keep-alive\n\n", []),
        (b"event: ping\n\n", []),
        (b"data: a\ndata: b\n\n", [message("a\nb")]),
        (b"data\n\n", []),
        (b"data:  two spaces \n\n", [message("two spaces")]),
        (b"data: : PROCESSING\n\n", []),
        (b"data: : PROCESSING\ndata: a\ndata: :b\n\n", [message("a\n:b")]),
        (b"event: error\n\n", [StreamEvent("error", "")]),
        (b"error: x\n\ndata: a\n\n", [StreamEvent("error", "x"), message("a")]),
        (b'{"a":\n 1}\n\ndata: a\n\n', [StreamEvent("error", '{"a":\n 1}'), message("a")]),
        (b'{"a": 1}\ndata: a\n\n', [StreamEvent("error", '{"a": 1}'), message("a")]),
        (b"event: x\n[1]\ndata: a\n\n", [StreamEvent("error", "[1]"), message("a")]),
        (b"data: [\n{\ndata: ]\n\n", [message("[\n]")]),
        (b"data: a:b\n\n", [message("a:b")]),
        (b"event: error\ndata: x\n\ndata: y\n\n", [StreamEvent("error", "x"), message("y")]),
        (b"\xef\xbb\xbfdata: a\n\n", [message("a")]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [message("a"), message("b"), message("c")]),
        (b"data: \xff\n\n", [message("\ufffd")]),
        (b"data: [DONE]", [message("[DONE]")]),
        (b"data: [DONE]\n", [message("[DONE]")]),
        (b"data: [DONE]\r", [message("[DONE]")]),
    ],
)
def test_lines_become_events_as_the_standard_says_and_servers_do(
    stream: bytes, expected: list[StreamEvent]
) -> None:
    assert parse(stream) == expected


def test_an_event_is_handed_out_as_soon_as_it_is_complete() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r\n\r") == [message("a")]
    assert parser.feed(b"\ndata: b") == []
    assert parser.feed(b"\n\n") == [message("b")]
    assert parser.finish() == []
