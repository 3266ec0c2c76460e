"""Every provider keeps the contract: whatever a real server does becomes the right outcome."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from fairlane.clock import ManualClock
from fairlane.job import (
    AccessRefused,
    InvalidResponse,
    NetworkFailure,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    Success,
    TimedOut,
    Usage,
)
from fairlane.settings import Connection
from fairlane_workers.providers.contract import Provider, Request
from fairlane_workers.providers.registry import build_provider
from tests.support.provider_wire import WIRES, Wire
from tests.support.scripted_server import (
    Drip,
    Exchange,
    Fault,
    ScriptedServer,
    chunk,
    event,
    http,
    http_head,
    scripted_server,
    stream_head,
)

KEY = "sk-live-0123456789abcdef"

both_protocols = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.protocol)
streamed_or_not = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def ask(stream: bool = False, timeout_s: float = 5.0, max_bytes: int = 1 << 20, **params: Any) -> Request:
    return Request("m-1", [{"role": "user", "content": "hi"}], params, stream, timeout_s, max_bytes)


@asynccontextmanager
async def provider_of(wire: Wire, url: str, **settings: Any) -> AsyncIterator[Provider]:
    connection = Connection.model_validate({"protocol": wire.protocol, "base_url": f"{url}/v1", **settings})
    provider = build_provider("c", connection, SecretStr(KEY), clock=ManualClock())
    try:
        yield provider
    finally:
        await provider.aclose()


def call(
    wire: Wire,
    request: Request,
    *script: Exchange,
    on_chunk: Callable[[str], Awaitable[None]] | None = None,
) -> tuple[Outcome, ScriptedServer]:
    """The outcome of one call to a server that follows the script."""

    async def scenario() -> tuple[Outcome, ScriptedServer]:
        async with scripted_server(script) as server, provider_of(wire, server.url) as provider:
            return await provider.call(request, on_chunk), server

    return asyncio.run(scenario())


def whole_stream(wire: Wire, *texts: str) -> bytes:
    return wire.begin() + b"".join(map(wire.piece, texts)) + wire.finish() + wire.end()


def streamed(data: bytes, *, size: int | None = None) -> Exchange:
    """A complete chunked stream, in HTTP chunks of ``size`` bytes."""
    step = size or len(data)
    return [stream_head(), *(chunk(data[at : at + step]) for at in range(0, len(data), step)), chunk(b"")]


@both_protocols
def test_a_whole_answer_is_a_success_with_its_usage_and_finish_reason(wire: Wire) -> None:
    outcome, _ = call(wire, ask(), [http(200, wire.whole("grüß dich"))])
    assert outcome == Success("grüß dich", Usage(7, 3), wire.stop_reason, 200)


@both_protocols
@pytest.mark.parametrize("size", [None, 1, 7])
def test_a_streamed_answer_is_the_same_wherever_the_network_cuts_it(wire: Wire, size: int | None) -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    data = whole_stream(wire, "gr\u00fc\u00df ", "dich \U0001f600", " sehr")
    outcome, _ = call(wire, ask(stream=True), streamed(data, size=size), on_chunk=listen)
    assert outcome == Success("gr\u00fc\u00df dich \U0001f600 sehr", Usage(7, 3), wire.stop_reason, 200)
    assert "".join(heard) == "gr\u00fc\u00df dich \U0001f600 sehr"


@both_protocols
def test_a_stream_without_a_listener_is_read_all_the_same(wire: Wire) -> None:
    outcome, _ = call(wire, ask(stream=True), streamed(whole_stream(wire, "a", "b")))
    assert isinstance(outcome, Success)
    assert outcome.output == "ab"


@both_protocols
def test_one_document_in_answer_to_a_stream_request_is_read(wire: Wire) -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    outcome, _ = call(wire, ask(stream=True), [http(200, wire.whole("all"))], on_chunk=listen)
    assert isinstance(outcome, Success)
    assert heard == [outcome.output] == ["all"]


@both_protocols
def test_an_empty_text_is_an_answer(wire: Wire) -> None:
    outcome, _ = call(wire, ask(), [http(200, wire.whole(""))])
    assert outcome == Success("", Usage(7, 3), wire.stop_reason, 200)


@both_protocols
def test_halves_of_a_surrogate_pair_are_joined_and_a_lone_one_is_replaced(wire: Wire) -> None:
    data = whole_stream(wire, "a\ud83d", "\ude00b", "c\ud83d")
    outcome, _ = call(wire, ask(stream=True), streamed(data))
    assert isinstance(outcome, Success)
    assert outcome.output == "a\U0001f600bc\ufffd"


@both_protocols
def test_a_compressed_answer_is_unpacked(wire: Wire) -> None:
    body = gzip.compress(json.dumps(wire.whole("small")).encode())
    outcome, _ = call(wire, ask(), [http(200, body, {"content-encoding": "gzip"})])
    assert isinstance(outcome, Success)
    assert outcome.output == "small"


# What is sent


@both_protocols
def test_a_request_carries_model_messages_parameters_and_the_key(wire: Wire) -> None:
    _, server = call(wire, ask(temperature=0, max_tokens=5), [http(200, wire.whole("x"))])
    (received,) = server.received
    assert received.path == wire.path
    assert received.json["model"] == "m-1"
    assert received.json["messages"] == [{"role": "user", "content": "hi"}]
    assert (received.json["temperature"], received.json["max_tokens"]) == (0, 5)
    assert KEY in (received.headers.get("authorization", "") + received.headers.get("x-api-key", ""))


@both_protocols
def test_parameters_cannot_replace_what_the_call_fixes(wire: Wire) -> None:
    _, server = call(wire, ask(model="other", stream_=1, messages=[]), [http(200, wire.whole("x"))])
    assert server.received[0].json["model"] == "m-1"
    assert server.received[0].json["messages"]


@both_protocols
def test_calls_in_a_row_share_one_connection(wire: Wire) -> None:
    async def scenario() -> int:
        stream = streamed(whole_stream(wire, "a"))
        script = [stream, [http(200, wire.whole("b"))], [http(500, {})], stream]
        async with scripted_server(script) as server, provider_of(wire, server.url) as provider:
            for is_stream in (True, False, False, True):
                await provider.call(ask(stream=is_stream))
            return server.connections

    assert asyncio.run(scenario()) == 1


# Refusals


@both_protocols
@streamed_or_not
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (302, PermanentFailure),
        (400, PermanentFailure),
        (401, AccessRefused),
        (402, AccessRefused),
        (403, AccessRefused),
        (404, PermanentFailure),
        (408, TimedOut),
        (413, PermanentFailure),
        (422, PermanentFailure),
        (429, RateLimited),
        (500, Overloaded),
        (502, Overloaded),
        (503, Overloaded),
        (504, TimedOut),
        (529, Overloaded),
    ],
)
def test_a_status_becomes_its_outcome(wire: Wire, stream: bool, status: int, expected: type) -> None:
    response = http(status, wire.error("some_error"), {"location": "http://elsewhere.invalid/"})
    outcome, server = call(wire, ask(stream=stream), [response])
    assert type(outcome) is expected
    assert (outcome.status, outcome.message) == (status, "the provider's words")  # type: ignore[union-attr]
    assert len(server.received) == 1


@both_protocols
def test_retry_after_binds_on_a_429_and_on_a_200(wire: Wire) -> None:
    refused, _ = call(wire, ask(), [http(429, wire.error("x"), {"Retry-After": "1.5"})])
    answered, _ = call(wire, ask(), [http(200, wire.whole("x"), {"retry-after-ms": "250"})])
    assert (refused.retry_after_ms, answered.retry_after_ms) == (1500, 250)


@both_protocols
def test_an_error_page_is_a_short_message(wire: Wire) -> None:
    outcome, _ = call(wire, ask(), [http(502, b"<html>" + b"x" * 200_000, content_type="text/html")])
    assert outcome == Overloaded("HTTP 502 without a message", 502)


@both_protocols
def test_an_error_whose_body_breaks_off_is_told_by_its_status(wire: Wire) -> None:
    broken = http_head(429, {"content-length": "900", "retry-after": "2"}) + b'{"error"'
    outcome, _ = call(wire, ask(), [broken, Fault.CLOSE])
    assert isinstance(outcome, RateLimited)
    assert outcome.retry_after_ms == 2000


@both_protocols
def test_an_overload_within_a_stream_is_an_overload(wire: Wire) -> None:
    data = wire.begin() + wire.piece("half") + event(wire.error("overloaded_error"), "error")
    outcome, _ = call(wire, ask(stream=True), streamed(data))
    assert outcome == Overloaded("the provider's words", 529)


@both_protocols
def test_an_error_as_the_body_of_a_200_is_that_error(wire: Wire) -> None:
    outcome, _ = call(wire, ask(), [http(200, wire.error("overloaded_error"))])
    assert outcome == Overloaded("the provider's words", 529)


@both_protocols
@streamed_or_not
def test_a_content_filter_is_final(wire: Wire, stream: bool) -> None:
    data = wire.begin() + wire.piece("I") + wire.finish(wire.filter_reason) + wire.end()
    whole = [http(200, wire.whole("I", wire.filter_reason))]
    outcome, _ = call(wire, ask(stream=stream), streamed(data) if stream else whole)
    assert isinstance(outcome, PermanentFailure)


# Answers that cannot be used


@both_protocols
@streamed_or_not
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b"\xff\xfe\x00",
        b'{"choices": [], "content": []}',
        b'{"choices": null, "content": null}',
        b'{"choices": [7], "content": [7]}',
        b'{"choices": [{"message": 1}], "content": "x"}',
        b"[" * 100_000,
    ],
)
def test_a_body_that_is_no_answer_is_invalid(wire: Wire, stream: bool, body: bytes) -> None:
    outcome, _ = call(wire, ask(stream=stream), [http(200, body)])
    assert isinstance(outcome, InvalidResponse)
    assert outcome.status == 200


@both_protocols
def test_an_answer_without_text_is_invalid(wire: Wire) -> None:
    assert isinstance(call(wire, ask(), [http(200, wire.whole(None))])[0], InvalidResponse)
    stream = streamed(wire.finish() + wire.end())
    assert isinstance(call(wire, ask(stream=True), stream)[0], InvalidResponse)


@both_protocols
def test_a_stream_that_ends_before_its_answer_is_invalid(wire: Wire) -> None:
    outcome, _ = call(wire, ask(stream=True), streamed(wire.begin() + wire.piece("half")))
    assert isinstance(outcome, InvalidResponse)


@both_protocols
@pytest.mark.parametrize("fault", [Fault.CLOSE, Fault.RESET])
def test_a_stream_that_is_cut_is_invalid(wire: Wire, fault: Fault) -> None:
    steps = [stream_head(), chunk(wire.begin() + wire.piece("half")), fault]
    outcome, _ = call(wire, ask(stream=True), steps)
    assert isinstance(outcome, InvalidResponse)


@both_protocols
def test_a_whole_answer_that_is_cut_is_invalid(wire: Wire) -> None:
    outcome, _ = call(wire, ask(), [http(200, wire.whole("x"))[:-5], Fault.CLOSE])
    assert isinstance(outcome, InvalidResponse)


@both_protocols
@pytest.mark.parametrize("fault", [Fault.CLOSE, Fault.RESET])
def test_a_stream_that_is_cut_after_its_last_text_has_lost_nothing(wire: Wire, fault: Fault) -> None:
    steps = [
        stream_head(),
        chunk(wire.begin() + wire.piece("all") + wire.finish()),
        chunk(b": ping\n"),
        fault,
    ]
    outcome, _ = call(wire, ask(stream=True), steps)
    assert isinstance(outcome, Success)
    assert outcome.output == "all"


@both_protocols
def test_a_stream_may_end_without_its_last_blank_line(wire: Wire) -> None:
    outcome, _ = call(wire, ask(stream=True), streamed(whole_stream(wire, "all")[:-2]))
    assert isinstance(outcome, Success)


@both_protocols
def test_broken_json_within_a_stream_is_invalid(wire: Wire) -> None:
    outcome, _ = call(wire, ask(stream=True), streamed(wire.begin() + b"data: {oops\n\n" + wire.end()))
    assert isinstance(outcome, InvalidResponse)


@both_protocols
@streamed_or_not
def test_an_answer_above_the_size_limit_is_not_read_to_its_end(wire: Wire, stream: bool) -> None:
    endless = Drip(chunk(wire.piece("x" * 1000)), 0.0)
    head = stream_head() if stream else http_head(200, {"transfer-encoding": "chunked"})
    outcome, _ = call(wire, ask(stream=stream, max_bytes=20_000), [head, endless])
    assert isinstance(outcome, InvalidResponse)
    assert "20000 bytes" in outcome.message


# The network and the deadline


@both_protocols
def test_a_refused_connection_is_a_network_failure(wire: Wire) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"

        async def scenario() -> Outcome:
            async with provider_of(wire, url) as provider:
                return await provider.call(ask())

        outcome = asyncio.run(scenario())
    assert isinstance(outcome, NetworkFailure)
    assert "ClientConnectorError" in outcome.message


@both_protocols
@streamed_or_not
@pytest.mark.parametrize("fault", [Fault.CLOSE, Fault.RESET])
def test_a_connection_lost_before_the_answer_is_a_network_failure_and_not_sent_again(
    wire: Wire, stream: bool, fault: Fault
) -> None:
    outcome, server = call(wire, ask(stream=stream), [fault])
    assert isinstance(outcome, NetworkFailure)
    assert len(server.received) == 1


@both_protocols
@pytest.mark.parametrize("fault", [Fault.CLOSE, Fault.RESET])
def test_a_kept_connection_that_dies_under_a_request_is_not_sent_again(wire: Wire, fault: Fault) -> None:
    async def scenario() -> tuple[Outcome, ScriptedServer]:
        script: list[Exchange] = [[http(200, wire.whole("x"))], [fault], [http(200, wire.whole("twice"))]]
        async with scripted_server(script) as server, provider_of(wire, server.url) as provider:
            await provider.call(ask())
            return await provider.call(ask()), server

    outcome, server = asyncio.run(scenario())
    assert isinstance(outcome, NetworkFailure)
    assert [received.connection for received in server.received] == [1, 1]


@both_protocols
@streamed_or_not
@pytest.mark.parametrize("garbage", [b"\x16\x03\x01garbage\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_what_is_not_http_is_a_network_failure(wire: Wire, stream: bool, garbage: bytes) -> None:
    outcome, _ = call(wire, ask(stream=stream), [garbage, Fault.CLOSE])
    assert isinstance(outcome, NetworkFailure)


@both_protocols
@streamed_or_not
@pytest.mark.parametrize(
    "steps",
    [
        [Fault.HANG],
        [b"HTTP/1.1 200 OK\r\nx: ", Drip(b"y", 0.01)],
        [stream_head(), Fault.HANG],
        [stream_head(), Drip(chunk(b": keep-alive\n\n"), 0.01)],
        [stream_head(), Drip(chunk(b" "), 0.01)],
        [http_head(429, {"content-length": "9999"}), Drip(b" ", 0.01)],
    ],
    ids=["silence", "headers drip", "no body", "comments drip", "spaces drip", "error drips"],
)
def test_one_deadline_bounds_the_whole_call(wire: Wire, stream: bool, steps: Exchange) -> None:
    began = time.monotonic()
    outcome, _ = call(wire, ask(stream=stream, timeout_s=0.1), steps)
    assert isinstance(outcome, TimedOut)
    assert "0.1 s" in outcome.message
    assert time.monotonic() - began < 2.0


@both_protocols
def test_text_that_drips_does_not_outlive_the_deadline(wire: Wire) -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    steps = [stream_head(), chunk(wire.begin()), Drip(chunk(wire.piece("x")), 0.01)]
    outcome, _ = call(wire, ask(stream=True, timeout_s=0.15), steps, on_chunk=listen)
    assert isinstance(outcome, TimedOut)
    assert heard


@both_protocols
def test_a_stream_left_open_after_its_end_mark_is_done(wire: Wire) -> None:
    began = time.monotonic()
    outcome, _ = call(
        wire, ask(stream=True, timeout_s=60), [stream_head(), chunk(whole_stream(wire, "a")), Fault.HANG]
    )
    assert isinstance(outcome, Success)
    assert time.monotonic() - began < 5.0


@both_protocols
def test_what_follows_the_end_mark_is_not_read_as_the_answer(wire: Wire) -> None:
    data = whole_stream(wire, "a") + wire.piece("b") + b"data: {oops\n\n"
    outcome, _ = call(wire, ask(stream=True), streamed(data, size=5))
    assert isinstance(outcome, Success)
    assert outcome.output == "a"


@both_protocols
@streamed_or_not
def test_cancellation_passes_through_and_hangs_up(wire: Wire, stream: bool) -> None:
    async def scenario() -> None:
        begun = asyncio.Event()
        steps: Exchange = [stream_head(), chunk(wire.begin() + wire.piece("x")), Fault.HANG]
        async with scripted_server([steps]) as server, provider_of(wire, server.url) as provider:

            async def listen(_: str) -> None:
                begun.set()

            task = asyncio.create_task(provider.call(ask(stream=stream, timeout_s=60), listen))
            if stream:
                await begun.wait()
            else:
                await asyncio.wait({task}, timeout=0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(server.hung_up.wait(), 5)

    asyncio.run(scenario())


@both_protocols
@pytest.mark.parametrize("error", [ValueError, TimeoutError, ConnectionResetError])
def test_what_a_listener_raises_is_not_blamed_on_the_provider(wire: Wire, error: type[Exception]) -> None:
    async def listen(_: str) -> None:
        raise error("the listener's own")

    with pytest.raises(error, match="the listener's own"):
        call(wire, ask(stream=True), streamed(whole_stream(wire, "a")), on_chunk=listen)


@both_protocols
def test_a_call_after_closing_is_a_network_failure(wire: Wire) -> None:
    async def scenario() -> Outcome:
        async with provider_of(wire, "http://127.0.0.1:9") as provider:
            await provider.aclose()
            return await provider.call(ask())

    assert isinstance(asyncio.run(scenario()), NetworkFailure)


# Credentials


@both_protocols
@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"type": "authentication_error", "message": "bad key %s, sorry"}}' % KEY.encode(),
        b"bad key %s, sorry" % KEY.encode(),
        b'{"error": {"message": "%s %s"}}' % (b"x" * 490, KEY.encode()),
        b'{"error": {"message": "Incorrect API key provided: sk-live-****cdef."}}',
    ],
)
def test_a_key_that_the_provider_repeats_is_not_passed_on(wire: Wire, body: bytes) -> None:
    outcome, _ = call(wire, ask(), [http(401, body)])
    assert isinstance(outcome, AccessRefused)
    assert "sk-live" not in repr(outcome)
    assert "cdef" not in repr(outcome)


@both_protocols
def test_a_key_is_in_no_text_form_of_the_provider(wire: Wire) -> None:
    async def scenario() -> str:
        async with provider_of(wire, "http://127.0.0.1:9") as provider:
            return f"{provider} {provider!r} {await provider.call(ask())}"

    assert KEY not in asyncio.run(scenario())
