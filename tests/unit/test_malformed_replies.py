"""A reply that is no valid HTTP is a fault of one line, at once, and without a status that nobody sent."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlane_workers.transport import TransportError
from fairlane_workers.transport.faults import NO_HTTP, no_valid_http
from tests.support.scripted_server import Fault, Pause, Step, http, http_head, scripted_server
from tests.support.transport_calls import body_of, post, transport_of

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
LENGTH = b"Content-Length: 2\r\n"


def answer_to(*steps: Step) -> bytes:
    """The body that one call to a server gets, soon."""

    async def scenario() -> bytes:
        async with scripted_server([steps]) as server, transport_of() as transport, asyncio.timeout(5):
            return await body_of(await post(transport, server.url))

    return asyncio.run(scenario())


def fault_of(*steps: Step) -> str:
    """The words of the fault that the call ends with; empty if it has none."""
    try:
        answer_to(*steps)
    except TransportError as fault:
        return str(fault)
    return ""


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (OK + LENGTH + CHUNKED, "Transfer-Encoding can't be present with Content-Length"),
        (OK + CHUNKED + LENGTH, "Content-Length can't be present with Transfer-Encoding"),
        (OK + LENGTH + LENGTH, "Duplicate Content-Length"),
        (OK + b"Server : x\r\n" + LENGTH, "Invalid header token, in 'Server '"),
        (OK + b": x\r\n" + LENGTH, "Invalid header token"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "Expected HTTP/, RTSP/ or ICE/, in 'SSH-2.0-OpenSSH_9.6'"),
        (b"HTTP/1.1 abc OK\r\n", "Invalid status code, in 'HTTP/1.1 abc OK'"),
        (OK + b"x: " + b"y" * 40_000 + b"\r\n", "a line of its headers has more than 32768 bytes"),
        (OK + b"x: y\r\n" * 300, "Too many headers received"),
    ],
)
def test_a_head_that_is_no_http_is_named_in_one_line(head: bytes, words: str) -> None:
    assert fault_of(head + b"\r\n{}") == NO_HTTP + words


@pytest.mark.parametrize(
    ("chunks", "words"),
    [(b"2\n{}\r\n0\r\n\r\n", "Expected LF after chunk size"), (b"zz\r\n", "Invalid character in chunk size")],
)
@pytest.mark.parametrize("apart", [True, False])
def test_a_malformed_chunk_ends_the_call_at_once(chunks: bytes, words: str, apart: bool) -> None:
    """It kept the reader of a body waiting until the deadline."""
    begin = OK + CHUNKED + b"\r\n2\r\n{}\r\n"
    assert fault_of(*([begin, Pause(0.05), chunks] if apart else [begin + chunks])) == NO_HTTP + words


def test_equal_faults_have_equal_texts_and_show_no_data() -> None:
    assert fault_of(OK + b"set-cookie : secret-1\r\n\r\n") == fault_of(OK + b"set-cookie : secret-2\r\n\r\n")
    assert "secret" not in fault_of(OK + b"x: \0secret\r\n\r\n")


@pytest.mark.parametrize("headers", [{f"x-{n}": "y" for n in range(250)}, {"x": "y" * 30_000}])
def test_headers_of_many_gateways_in_a_row_are_read(headers: dict[str, str]) -> None:
    assert answer_to(http(200, b"{}", headers)) == b"{}"


@given(st.text(max_size=400))
def test_any_message_becomes_one_bounded_line(message: str) -> None:
    for text in (message, f"Bad status line:\n  {message}:\n\n  b'{message}'\n    ^"):
        words = str(no_valid_http(text))
        assert len(words) < 600
        assert len(words.splitlines()) == 1


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(min_size=1, max_size=60), at=st.integers(0, 60), body=st.booleans())
def test_bytes_in_any_place_of_a_reply_neither_hang_nor_show_a_foreign_status(
    data: bytes, at: int, body: bool
) -> None:
    whole = http_head(200, {"transfer-encoding": "chunked"}) + b"2\r\n{}\r\n0\r\n\r\n"
    at += len(whole) - 20 if body else 0
    words = fault_of(whole[:at] + data + whole[at:], Fault.CLOSE)
    assert "400" not in words.partition(", in ")[0]
    assert "\n" not in words
