"""Calls over HTTP/2: side by side, each with its own end, none sent twice, none lost."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from h2.errors import ErrorCodes

from fairlane_workers.transport import Transport, TransportError, UnusableSettingError
from tests.support.http2_server import Call, Handler, Http2Server, http2_server
from tests.support.scripted_server import Exchange, Fault, http, scripted_server
from tests.support.tls import Certificates
from tests.support.transport_calls import body_of, plain_server, post, serving, transport_of

MILLION = 1_000_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def certificate(made: Certificates) -> tuple[Path, Path]:
    return made.issue("server")


class Talk:
    """Starts a server with a handler and a transport to it."""

    def __init__(self, ca: Path, certificate: tuple[Path, Path]) -> None:
        self._ca, self._certificate = ca, certificate

    @asynccontextmanager
    async def __call__(
        self, handler: Handler, **options: Any
    ) -> AsyncIterator[tuple[Http2Server, Transport]]:
        tls = serving(self._certificate, alpn=["h2", "http/1.1"])
        async with (
            http2_server(handler, tls, **options) as server,
            transport_of(http2=True, ca_file=self._ca) as transport,
        ):
            yield server, transport


@pytest.fixture
def talk(made: Certificates, certificate: tuple[Path, Path]) -> Talk:
    return Talk(made.ca, certificate)


async def ok(call: Call) -> None:
    await call.answer(b'{"a": 1}', content_type="application/json")


async def never(call: Call) -> None:
    await asyncio.get_running_loop().create_future()


# One call


def test_a_request_arrives_whole(talk: Talk) -> None:
    async def scenario() -> Call:
        async with talk(ok) as (server, transport):
            url = httpx.URL(f"{server.url}/v1/chat?a=b%2F")
            headers = httpx.Headers(
                {"Host": "provider.example", "Authorization": "Bearer k", "Connection": "close"}
            )
            reply = await transport.send("POST", url, headers, b'{"b": 2}')
            assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
            assert await body_of(reply) == b'{"a": 1}'
            return server.calls[0]

    call = asyncio.run(scenario())
    assert bytes(call.body) == b'{"b": 2}'
    assert call.headers == {
        ":method": "POST",
        ":scheme": "https",
        ":authority": "provider.example",
        ":path": "/v1/chat?a=b%2F",
        "authorization": "Bearer k",
        "content-length": "8",
    }


def test_a_request_without_a_body_ends_with_its_headers(talk: Talk) -> None:
    async def scenario() -> Call:
        async with talk(ok) as (server, transport):
            await body_of(await transport.send("GET", httpx.URL(server.url), httpx.Headers()))
            return server.calls[0]

    call = asyncio.run(scenario())
    assert (call.headers[":method"], call.headers[":path"], bytes(call.body)) == ("GET", "/", b"")


def test_large_bodies_pass_both_ways_within_the_windows(talk: Talk) -> None:
    async def echo(call: Call) -> None:
        await call.answer(bytes(call.body))

    async def scenario() -> None:
        data = bytes(range(256)) * 20_000
        async with talk(echo) as (server, transport):
            replies = await asyncio.gather(*(post(transport, server.url, data) for _ in range(3)))
            for reply in replies:
                assert await body_of(reply, 10 * MILLION) == data

    asyncio.run(scenario())


def test_a_body_nobody_reads_is_held_back_and_holds_up_no_other_call(talk: Talk) -> None:
    written = 0

    async def answer(call: Call) -> None:
        nonlocal written
        if call.headers[":path"] == "/endless":
            call.begin()
            while True:
                await call.write(b"x" * 10_000)
                written += 10_000
        await ok(call)

    async def scenario() -> None:
        async with talk(answer) as (server, transport):
            unread = await post(transport, f"{server.url}/endless")
            for _ in range(50):
                await body_of(await post(transport, server.url))
            assert written < 2 * MILLION
            with pytest.raises(TransportError, match="larger than 1048576 bytes"):
                await body_of(unread)

    asyncio.run(scenario())


def test_an_answer_before_the_request_was_read_does_not_keep_the_caller(talk: Talk) -> None:
    async def refuse(call: Call) -> None:
        await call.answer(b"too large", status=413)

    async def scenario() -> None:
        async with talk(refuse, early=True) as (server, transport), asyncio.timeout(5):
            reply = await post(transport, server.url, b"x" * MILLION)
            assert (reply.status, await body_of(reply)) == (413, b"too large")
            await asyncio.wait_for(server.hung_up.wait(), 5)

    asyncio.run(scenario())


def test_endless_and_huge_headers_are_bounded(talk: Talk) -> None:
    async def swell(call: Call) -> None:
        call.begin(**{f"x_{n}": "y" * 1000 for n in range(100)})

    async def scenario() -> None:
        async with talk(swell) as (server, transport), asyncio.timeout(5):
            with pytest.raises(TransportError, match="broke HTTP/2: DenialOfServiceError"):
                await post(transport, server.url)

    asyncio.run(scenario())


def test_a_reply_dripping_headers_or_body_does_not_outlive_the_deadline(talk: Talk) -> None:
    async def drip(call: Call) -> None:
        if call.headers[":path"] == "/":
            await ok(call)
            return
        if call.headers[":path"] == "/body":
            call.begin()
        while True:
            if call.headers[":path"] == "/body":
                await call.write(b" ")
            else:
                call.connection.h2.ping(b"12345678")
                call.connection.flush()
            turn = asyncio.Event()
            asyncio.get_running_loop().call_later(0.01, turn.set)
            await turn.wait()

    async def scenario(path: str) -> None:
        async with talk(drip) as (server, transport):
            await body_of(await post(transport, server.url))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await body_of(await post(transport, f"{server.url}{path}"))
            await asyncio.wait_for(server.hung_up.wait(), 5)

    asyncio.run(scenario("/head"))
    asyncio.run(scenario("/body"))


# Many calls


def test_a_connection_carries_as_many_calls_as_the_server_allows_and_no_more(talk: Talk) -> None:
    async def scenario() -> list[int]:
        gate = asyncio.Event()

        async def wait(call: Call) -> None:
            await gate.wait()
            await ok(call)

        async with talk(wait, streams=10) as (server, transport):
            calls = [asyncio.ensure_future(post(transport, server.url)) for _ in range(95)]
            while len(server.calls) < 95:
                server.arrived.clear()
                await asyncio.wait_for(server.arrived.wait(), 5)
            gate.set()
            for call in calls:
                await body_of(await call)
            return [sum(call.connection is one for call in server.calls) for one in server.connections]

    carried = asyncio.run(scenario())
    assert sum(carried) == 95
    assert max(carried) == 10
    assert len(carried) <= 20


def test_hundreds_of_calls_in_flight_share_a_few_connections_and_none_is_lost(talk: Talk) -> None:
    in_flight, rounds = 512, 3

    async def scenario() -> tuple[int, int]:
        async with talk(ok) as (server, transport):

            async def caller() -> int:
                return sum([len(await body_of(await post(transport, server.url))) for _ in range(rounds)])

            read = sum(await asyncio.gather(*(caller() for _ in range(in_flight))))
            assert len(server.calls) == in_flight * rounds
            return read, len(server.connections)

    read, connections = asyncio.run(scenario())
    assert read == 8 * in_flight * rounds
    assert connections <= 6


def test_an_answer_does_not_wait_for_other_calls(talk: Talk) -> None:
    async def slow_but_one(call: Call) -> None:
        await (ok(call) if call.headers[":path"] == "/fast" else never(call))

    async def scenario() -> None:
        async with talk(slow_but_one) as (server, transport):
            slow = [asyncio.ensure_future(post(transport, f"{server.url}/slow")) for _ in range(20)]
            while len(server.calls) < 20:
                server.arrived.clear()
                await asyncio.wait_for(server.arrived.wait(), 5)
            await asyncio.wait_for(body_of(await post(transport, f"{server.url}/fast")), 5)
            for call in slow:
                call.cancel()
            await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(scenario())


def test_a_cancelled_call_is_cancelled_at_the_server_and_the_connection_stays(talk: Talk) -> None:
    async def answer(call: Call) -> None:
        await (never(call) if call.headers[":path"] == "/slow" else ok(call))

    async def scenario() -> tuple[list[int], int]:
        async with talk(answer) as (server, transport):
            call = asyncio.ensure_future(post(transport, f"{server.url}/slow"))
            await asyncio.wait_for(server.arrived.wait(), 5)
            call.cancel()
            await asyncio.wait_for(server.hung_up.wait(), 5)
            await asyncio.gather(call, return_exceptions=True)
            await body_of(await post(transport, server.url))
            return server.cancelled, len(server.connections)

    assert asyncio.run(scenario()) == ([1], 1)


# Refusals and goodbyes


def test_a_call_that_the_server_cancels_is_named_and_others_go_on(talk: Talk) -> None:
    async def answer(call: Call) -> None:
        match call.headers[":path"]:
            case "/refused":
                call.cancel(ErrorCodes.REFUSED_STREAM)
            case "/broken":
                call.begin()
                await call.write(b"half")
                call.cancel()
            case _:
                await ok(call)

    async def scenario() -> int:
        async with talk(answer) as (server, transport):
            with pytest.raises(TransportError, match="the server cancelled the call: REFUSED_STREAM"):
                await post(transport, f"{server.url}/refused")
            broken = await post(transport, f"{server.url}/broken")
            with pytest.raises(TransportError, match="INTERNAL_ERROR"):
                await body_of(broken)
            await body_of(await post(transport, server.url))
            assert len(server.calls) == 3
            return len(server.connections)

    assert asyncio.run(scenario()) == 1


def test_a_goodbye_ends_no_call_that_the_server_took_and_new_ones_use_another_connection(talk: Talk) -> None:
    async def leave(call: Call) -> None:
        if call.headers[":path"] == "/":
            call.connection.goodbye(call.stream)
        await call.answer(b"x" * 400_000)  # its parts may well arrive together with the goodbye

    async def scenario() -> tuple[int, int]:
        async with talk(leave) as (server, transport):
            assert len(await body_of(await post(transport, server.url))) == 400_000
            assert len(await body_of(await post(transport, f"{server.url}/2"))) == 400_000
            await asyncio.wait_for(server.closed.wait(), 5)
            return len(server.calls), len(server.connections)

    assert asyncio.run(scenario()) == (2, 2)


def test_a_call_beyond_the_servers_goodbye_is_named_and_not_sent_again(talk: Talk) -> None:
    async def leave(call: Call) -> None:
        call.connection.goodbye(0)

    async def scenario() -> int:
        async with talk(leave) as (server, transport):
            with pytest.raises(TransportError, match="before it took the call"):
                await asyncio.wait_for(post(transport, server.url), 5)
            return len(server.calls)

    assert asyncio.run(scenario()) == 1


@pytest.mark.parametrize("options", [{"streams": 0}, {"unwilling": True}], ids=["no streams", "goodbye"])
def test_a_server_that_takes_no_calls_is_not_asked_without_end(talk: Talk, options: dict[str, Any]) -> None:
    async def scenario() -> int:
        async with talk(ok, **options) as (server, transport):
            with pytest.raises(TransportError, match=r"the server (takes no calls|closed the connection)"):
                await asyncio.wait_for(post(transport, server.url), 5)
            return len(server.connections)

    assert asyncio.run(scenario()) == 1


def test_a_goodbye_with_an_error_ends_every_call_and_tells_the_error(talk: Talk) -> None:
    async def leave(call: Call) -> None:
        call.connection.goodbye(call.stream, ErrorCodes.ENHANCE_YOUR_CALM)

    async def scenario() -> None:
        async with talk(leave) as (server, transport):
            with pytest.raises(TransportError, match="broke off the connection: ENHANCE_YOUR_CALM"):
                await asyncio.wait_for(post(transport, server.url), 5)

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["close", "abort"])
def test_a_connection_that_is_lost_fails_its_calls_once_each(talk: Talk, how: str) -> None:
    async def vanish(call: Call) -> None:
        if len(call.connection.server.calls) == 5:
            getattr(call.connection.transport, how)()

    async def scenario() -> int:
        async with talk(vanish) as (server, transport):
            calls = [post(transport, server.url) for _ in range(5)]
            results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
            assert [type(result) for result in results] == [TransportError] * 5
            return len(server.calls)

    assert asyncio.run(scenario()) == 5


def test_a_body_that_is_cut_is_a_fault(talk: Talk) -> None:
    async def cut(call: Call) -> None:
        call.begin()
        await call.write(b"half")
        call.connection.transport.close()

    async def scenario() -> None:
        async with talk(cut) as (server, transport):
            reply = await post(transport, server.url)
            with pytest.raises(TransportError, match="Server disconnected"):
                await body_of(reply)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "garbage",
    [b"\0" * 100, b"\0\0\x01\x01\x04\0\0\0\x01\xbf", b"\0\0\x08\x06\0\0\0\0\x01" + b"\0" * 8],
    ids=["data of no call", "headers of no table", "ping of a call"],
)
def test_what_is_not_http2_is_a_fault(talk: Talk, garbage: bytes) -> None:
    async def babble(call: Call) -> None:
        call.connection.transport.write(garbage)

    async def scenario() -> None:
        async with talk(babble) as (server, transport):
            with pytest.raises(TransportError, match="broke HTTP/2"):
                await asyncio.wait_for(post(transport, server.url), 5)

    asyncio.run(scenario())


def test_an_idle_connection_that_the_server_closed_is_not_used(talk: Talk) -> None:
    async def scenario() -> int:
        async with talk(ok) as (server, transport):
            await body_of(await post(transport, server.url))
            raw = server.connections[0].transport.get_extra_info("socket")
            raw.shutdown(1)
            await body_of(await post(transport, server.url))
            return len(server.connections)

    assert asyncio.run(scenario()) == 2


def test_an_idle_connection_is_closed_after_a_while(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane_workers.transport.http2.connection.KEEPALIVE_S", 0.05)

    async def scenario() -> None:
        async with talk(ok) as (server, transport):
            await body_of(await post(transport, server.url))
            await asyncio.wait_for(server.closed.wait(), 5)
            await body_of(await post(transport, server.url))

    asyncio.run(scenario())


def test_closing_ends_what_is_in_flight_and_is_idempotent(talk: Talk) -> None:
    async def scenario() -> None:
        async with talk(never) as (server, transport):
            call = asyncio.ensure_future(post(transport, server.url))
            await asyncio.wait_for(server.arrived.wait(), 5)
            await transport.aclose()
            await transport.aclose()
            with pytest.raises(TransportError, match="closed"):
                await asyncio.wait_for(call, 5)
            with pytest.raises(TransportError, match="closed"):
                await post(transport, server.url)
            await asyncio.wait_for(server.closed.wait(), 5)

    asyncio.run(scenario())


def test_closing_ends_calls_that_still_connect() -> None:
    async def scenario() -> None:
        accepted = asyncio.Event()
        async with plain_server(lambda _: accepted.set()) as port:
            transport = Transport(http2=True)
            call = asyncio.ensure_future(post(transport, f"https://127.0.0.1:{port}"))
            await asyncio.wait_for(accepted.wait(), 5)
            await transport.aclose()
            with pytest.raises(TransportError, match="closed"):
                await asyncio.wait_for(call, 5)

    asyncio.run(scenario())


# Where HTTP/2 is not to be had


def test_a_server_without_http2_is_spoken_to_in_http1(
    made: Certificates, certificate: tuple[Path, Path]
) -> None:
    async def scenario(alpn: list[str]) -> tuple[int, int]:
        script: list[Exchange] = [[http(200, b"{}")]] * 21
        async with (
            scripted_server(script, serving(certificate, alpn=alpn)) as server,
            transport_of(http2=True, ca_file=made.ca) as transport,
        ):
            await asyncio.gather(*[_whole(transport, server.url) for _ in range(20)])
            asked = server.connections
            await _whole(transport, server.url)
            return len(server.received), server.connections - asked

    assert asyncio.run(scenario(["http/1.1"])) == (21, 0)
    assert asyncio.run(scenario([])) == (21, 0)


def test_a_plain_http_url_is_spoken_to_in_http1() -> None:
    async def scenario() -> None:
        async with scripted_server([[http(200, b"{}")]]) as server, transport_of(http2=True) as transport:
            assert await _whole(transport, server.url) == b"{}"

    asyncio.run(scenario())


async def _whole(transport: Transport, url: str) -> bytes:
    return await body_of(await post(transport, url))


def test_a_server_that_never_shakes_hands_is_left_after_the_connect_timeout() -> None:
    async def scenario() -> None:
        async with (
            scripted_server([[Fault.HANG]]) as server,
            transport_of(http2=True, connect_timeout_s=0.1) as transport,
        ):
            with pytest.raises(TransportError, match=r"ConnectionTimeoutError: .* within 0\.1 s"):
                await asyncio.wait_for(post(transport, server.url.replace("http:", "https:")), 5)

    asyncio.run(scenario())


def test_a_name_that_does_not_resolve_is_named() -> None:
    async def scenario() -> None:
        async with transport_of(http2=True) as transport:
            with pytest.raises(TransportError, match=r"cannot connect to host\.invalid:443: "):
                await post(transport, "https://host.invalid/")

    asyncio.run(scenario())


def test_a_missing_library_is_told_when_the_transport_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h2", None)
    with pytest.raises(UnusableSettingError, match=r"fairlane\[http2\]") as caught:
        Transport(http2=True)
    assert caught.value.field == "http2"
    Transport()
