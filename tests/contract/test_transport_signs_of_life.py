"""What a provider sends to keep a connection alive before its answer does the answer no harm."""

from __future__ import annotations

import json

import pytest

from fairlane.model.outcome import Success, TimedOut
from tests.support.provider_calls import ask, call, every_protocol, opened, whole_stream
from tests.support.scripted_server import Drip, chunk, http_head
from tests.support.wires import WIRES, Wire

every_event_stream = pytest.mark.parametrize(
    "wire",
    [wire for wire in WIRES if wire.streams and wire.stream_type.startswith("text/event-stream")],
    ids=lambda wire: wire.protocol,
)

JSON_HEAD = http_head(200, {"content-type": "application/json", "transfer-encoding": "chunked"})


@every_protocol
def test_blank_lines_before_a_whole_answer_are_passed_over(wire: Wire) -> None:
    """DeepSeek sends them while a call waits for its turn."""
    blank = [chunk(b"\n"), chunk(b"\r\n"), chunk(b" \n")] * 20
    body = json.dumps(wire.whole("hello")).encode()
    outcome, _ = call(wire, ask(), [JSON_HEAD, *blank, chunk(body), chunk(b"")])
    assert isinstance(outcome, Success)
    assert outcome.output == "hello"


@every_event_stream
def test_comments_before_and_within_a_stream_are_passed_over(wire: Wire) -> None:
    alive = [chunk(b": keep-alive\n\n"), chunk(b":\n"), chunk(b"\n\n")] * 20
    events = whole_stream(wire, "hel", "lo").split(b"\n\n")
    spread = [step for event in events if event for step in (chunk(event + b"\n\n"), alive[0])]
    outcome, _ = call(wire, ask(stream=True), [opened(wire), *alive, *spread, chunk(b"")])
    assert isinstance(outcome, Success)
    assert outcome.output == "hello"


@every_protocol
def test_blank_lines_alone_do_not_outlive_the_deadline(wire: Wire) -> None:
    outcome, _ = call(wire, ask(timeout_s=0.2), [JSON_HEAD, Drip(chunk(b"\n"), 0.01)])
    assert isinstance(outcome, TimedOut)


@every_protocol
def test_blank_lines_are_bounded_like_any_body(wire: Wire) -> None:
    flood = Drip(chunk(b"\n" * 10_000), 0.0)
    outcome, _ = call(wire, ask(max_bytes=100_000), [JSON_HEAD, flood])
    assert not isinstance(outcome, Success | TimedOut)
