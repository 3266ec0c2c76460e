"""Whatever an answer, the network or time does to a call becomes the right outcome, within the deadline."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from fairlane.model.outcome import (
    FlawedAnswer,
    InvalidResponse,
    NetworkFailure,
    Outcome,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
    TimedOut,
)
from tests.support.provider_calls import (
    ask,
    call,
    every_protocol,
    every_protocol_that_tells_its_end,
    every_streaming_protocol,
    opened,
    protocol_streamed_or_not,
    provider_of,
    streamed,
    streamed_or_not,
    whole_stream,
)
from tests.support.scripted_server import (
    Drip,
    Exchange,
    Fault,
    ScriptedServer,
    chunk,
    http,
    http_head,
    scripted_server,
    stream_head,
)
from tests.support.unhurried import UnhurriedLoop
from tests.support.wires import Wire

# Answers that cannot be used


@every_protocol
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


@every_protocol
@streamed_or_not
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"base_resp": {"status_code": 1002, "status_msg": "rate limit"}, "choices": null}', RateLimited),
        (b'{"error_code": 18, "error_msg": "Too many requests"}', RateLimited),
        (b'{"Response": {"Error": {"Code": "RequestLimitExceeded", "Message": "too fast"}}}', RateLimited),
        (b'{"status": "449", "msg": "You exceeded your current rate limit", "body": null}', RateLimited),
        (b'{"code": 429, "message": "wait"}', RateLimited),
        (b'{"code": 400, "message": "wrong"}', PermanentFailure),
        (b'{"title": "the model broke"}', ServerError),
    ],
)
def test_an_error_in_place_of_an_answer_is_read_with_a_200_too(
    wire: Wire, stream: bool, body: bytes, expected: type[Outcome]
) -> None:
    outcome, _ = call(wire, ask(stream=stream), [http(200, body)])
    own_paths = wire.protocol == "http"  # an endpoint whose paths the user configures
    assert isinstance(outcome, InvalidResponse if own_paths else expected)


@every_streaming_protocol
def test_an_answer_without_text_is_flawed_and_its_tokens_count(wire: Wire) -> None:
    whole, _ = call(wire, ask(), [http(200, wire.whole(None))])
    in_stream, _ = call(wire, ask(stream=True), streamed(wire, wire.without_text()))
    for outcome in (whole, in_stream):
        assert isinstance(outcome, FlawedAnswer)
    assert whole.usage.output_tokens is not None


@every_streaming_protocol
def test_a_stream_that_ends_before_its_answer_is_invalid(wire: Wire) -> None:
    outcome, _ = call(wire, ask(stream=True), streamed(wire, wire.begin() + wire.piece("half")))
    assert isinstance(outcome, InvalidResponse)


@every_streaming_protocol
@pytest.mark.parametrize("fault", [Fault.CLOSE, Fault.RESET])
def test_a_stream_that_is_cut_is_invalid(wire: Wire, fault: Fault) -> None:
    steps = [opened(wire), chunk(wire.begin() + wire.piece("half")), fault]
    outcome, _ = call(wire, ask(stream=True), steps)
    assert isinstance(outcome, InvalidResponse)


@every_protocol
def test_a_whole_answer_that_is_cut_is_invalid(wire: Wire) -> None:
    outcome, _ = call(wire, ask(), [http(200, wire.whole("x"))[:-5], Fault.CLOSE])
    assert isinstance(outcome, InvalidResponse)


@every_streaming_protocol
@pytest.mark.parametrize("fault", [Fault.CLOSE, Fault.RESET])
def test_a_stream_that_is_cut_after_its_last_text_has_lost_nothing(wire: Wire, fault: Fault) -> None:
    steps = [
        opened(wire),
        chunk(wire.begin() + wire.piece("all") + wire.finish()),
        chunk(b": ping\n"),
        fault,
    ]
    outcome, _ = call(wire, ask(stream=True), steps)
    assert isinstance(outcome, Success)
    assert outcome.output == "all"


@every_streaming_protocol
def test_a_stream_may_end_without_its_last_blank_line(wire: Wire) -> None:
    outcome, _ = call(
        wire, ask(stream=True), streamed(wire, whole_stream(wire, "all").removesuffix(wire.event_end))
    )
    assert isinstance(outcome, Success)


@every_streaming_protocol
def test_text_in_a_last_event_without_a_blank_line_is_read(wire: Wire) -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    late, finish = wire.piece("late!"), wire.finish()
    data = wire.begin() + (finish + late if wire.has_end else late + finish)
    outcome, _ = call(
        wire, ask(stream=True), streamed(wire, data.removesuffix(wire.event_end)), on_chunk=listen
    )
    assert isinstance(outcome, Success)
    assert heard == [outcome.output] == ["late!"]


@every_streaming_protocol
def test_broken_json_within_a_stream_is_invalid(wire: Wire) -> None:
    outcome, _ = call(wire, ask(stream=True), streamed(wire, wire.begin() + wire.broken + wire.end()))
    assert isinstance(outcome, InvalidResponse)


@protocol_streamed_or_not
def test_an_answer_above_the_size_limit_is_not_read_to_its_end(wire: Wire, stream: bool) -> None:
    endless = Drip(chunk(wire.piece("x" * 1000)), 0.0)
    head = opened(wire) if stream else http_head(200, {"transfer-encoding": "chunked"})
    outcome, _ = call(wire, ask(stream=stream, max_bytes=20_000), [head, endless])
    assert isinstance(outcome, PermanentFailure)
    assert "20000 bytes. Raise worker.max_response_bytes" in outcome.message


# The network and the deadline


@every_protocol
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


@every_protocol
@streamed_or_not
@pytest.mark.parametrize("fault", [Fault.CLOSE, Fault.RESET])
def test_a_connection_lost_before_the_answer_is_a_network_failure_and_not_sent_again(
    wire: Wire, stream: bool, fault: Fault
) -> None:
    outcome, server = call(wire, ask(stream=stream), [fault])
    assert isinstance(outcome, NetworkFailure)
    assert len(server.received) == 1


@every_protocol
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


@every_protocol
@streamed_or_not
@pytest.mark.parametrize("garbage", [b"\x16\x03\x01garbage\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_what_is_not_http_is_a_network_failure(wire: Wire, stream: bool, garbage: bytes) -> None:
    outcome, _ = call(wire, ask(stream=stream), [garbage, Fault.CLOSE])
    assert isinstance(outcome, NetworkFailure)


@every_protocol
@streamed_or_not
@pytest.mark.parametrize(
    "steps",
    [
        lambda _: [Fault.HANG],
        lambda _: [b"HTTP/1.1 200 OK\r\nx: ", Drip(b"y", 0.01)],
        lambda _: [stream_head(), Fault.HANG],
        lambda wire: [stream_head(), Drip(chunk(wire.comment), 0.01)],
        lambda wire: [stream_head(), chunk(wire.half_event), Drip(chunk(b" "), 0.01)],
        lambda _: [http_head(429, {"content-length": "9999"}), Drip(b" ", 0.01)],
    ],
    ids=["silence", "headers drip", "no body", "comments drip", "spaces drip", "error drips"],
)
def test_one_deadline_bounds_the_whole_call(
    wire: Wire, stream: bool, steps: Callable[[Wire], Exchange]
) -> None:
    loop = UnhurriedLoop()
    outcome, _ = call(wire, ask(stream=stream, timeout_s=0.1), steps(wire), loop=loop)
    assert isinstance(outcome, TimedOut)
    assert outcome.message.endswith("within 0.1 s: a slow server needs a longer timeout")
    assert loop.time() < 2.0


@every_protocol
@streamed_or_not
def test_the_deadline_counts_from_the_first_byte_however_long_connecting_took(
    wire: Wire, stream: bool
) -> None:
    loop = UnhurriedLoop()
    left: list[float] = []

    def leave() -> None:
        loop.leap(0.1)  # a loop, or a provider's machine, that is slow to connect
        left.append(loop.time())

    asked = replace(ask(stream=stream, timeout_s=0.2), leave=leave)
    outcome, _ = call(wire, asked, [Fault.HANG], loop=loop)
    assert isinstance(outcome, TimedOut)
    assert loop.time() - left[0] >= 0.2


@every_streaming_protocol
def test_text_that_drips_does_not_outlive_the_deadline(wire: Wire) -> None:
    steps = [opened(wire), chunk(wire.begin()), Drip(chunk(wire.piece("x")), 0.01)]
    outcome, _ = call(wire, ask(stream=True, timeout_s=0.2), steps)
    assert isinstance(outcome, TimedOut)


@every_protocol_that_tells_its_end
def test_a_stream_left_open_after_its_end_mark_is_done(wire: Wire) -> None:
    began = time.monotonic()
    outcome, _ = call(
        wire, ask(stream=True, timeout_s=60), [opened(wire), chunk(whole_stream(wire, "a")), Fault.HANG]
    )
    assert isinstance(outcome, Success)
    assert time.monotonic() - began < 5.0


@every_protocol_that_tells_its_end
def test_what_follows_the_end_mark_is_not_read_as_the_answer(wire: Wire) -> None:
    data = whole_stream(wire, "a") + wire.piece("b") + wire.broken
    outcome, _ = call(wire, ask(stream=True), streamed(wire, data, size=5))
    assert isinstance(outcome, Success)
    assert outcome.output == "a"


@protocol_streamed_or_not
def test_cancellation_passes_through_and_hangs_up(wire: Wire, stream: bool) -> None:
    async def scenario() -> None:
        begun = asyncio.Event()
        steps: Exchange = [opened(wire), chunk(wire.begin() + wire.piece("some words")), Fault.HANG]
        async with scripted_server([steps]) as server, provider_of(wire, server.url) as provider:

            async def listen(_: str) -> None:
                begun.set()

            task = asyncio.create_task(provider.call(ask(stream=stream, timeout_s=60), listen))
            if stream:
                await begun.wait()
            else:
                await server.arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(server.hung_up.wait(), 5)

    asyncio.run(scenario())


@every_streaming_protocol
@pytest.mark.parametrize("error", [ValueError, TimeoutError, ConnectionResetError])
def test_what_a_listener_raises_is_not_blamed_on_the_provider(wire: Wire, error: type[Exception]) -> None:
    async def listen(_: str) -> None:
        raise error("the listener's own")

    with pytest.raises(error, match="the listener's own"):
        call(wire, ask(stream=True), streamed(wire, whole_stream(wire, "a")), on_chunk=listen)


@every_protocol
def test_a_call_after_closing_is_a_network_failure(wire: Wire) -> None:
    async def scenario() -> Outcome:
        async with provider_of(wire, "http://127.0.0.1:9") as provider:
            await provider.aclose()
            return await provider.call(ask())

    assert isinstance(asyncio.run(scenario()), NetworkFailure)
