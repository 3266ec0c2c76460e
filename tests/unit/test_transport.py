"""The transport sends once, follows no redirect, keeps no cookie, and closes when it is asked to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlane_workers.transport import PIECE_BYTES, Transport, TransportError
from tests.support.scripted_server import Fault, Received, ScriptedServer, http, http_head, scripted_server
from tests.support.transport_calls import body_of, plain_server, post

LARGE = b"x" * 20_000_000


@asynccontextmanager
async def transport_to(*script: list[bytes | Fault]) -> AsyncIterator[tuple[Transport, ScriptedServer]]:
    async with scripted_server(script) as server:
        transport = Transport(connect_timeout_s=5.0)
        try:
            yield transport, server
        finally:
            await transport.aclose()


def exchange(*responses: bytes) -> list[Received]:
    """What the server saw of as many calls as it has answers."""

    async def scenario() -> list[Received]:
        async with transport_to(*([response] for response in responses)) as (transport, server):
            for _ in responses:
                await body_of(await post(transport, server.url))
            return server.received

    return asyncio.run(scenario())


def test_cookies_are_not_sent_back() -> None:
    first, second = exchange(http(200, b"{}", {"set-cookie": "a=b; Path=/"}), http(200, b"{}"))
    assert "cookie" not in first.headers
    assert "cookie" not in second.headers


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["/elsewhere", "http://[", ""])
def test_redirects_are_not_followed_wherever_they_lead(status: int, location: str) -> None:
    async def scenario() -> tuple[int, int]:
        async with transport_to([http(status, b"", {"location": location})]) as (transport, server):
            reply = await post(transport, server.url)
            await body_of(reply)
            return reply.status, len(server.received)

    assert asyncio.run(scenario()) == (status, 1)


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert len(exchange(http(200, b"{}"))) == 1


def test_a_post_on_a_connection_that_died_is_not_repeated() -> None:
    async def scenario() -> list[int]:
        script: list[list[bytes | Fault]] = [[http(200, b"{}")], [Fault.CLOSE], [http(200, b"{}")]]
        async with transport_to(*script) as (transport, server):
            await body_of(await post(transport, server.url))
            with pytest.raises(TransportError, match="ServerDisconnectedError"):
                await post(transport, server.url)
            return [received.connection for received in server.received]

    assert asyncio.run(scenario()) == [1, 1]


def test_a_connection_whose_answer_was_not_read_is_not_used_again() -> None:
    async def scenario() -> int:
        async with transport_to([http(200, b"x" * 500_000)], [http(200, b"{}")]) as (transport, server):
            await (await post(transport, server.url)).aclose()
            await body_of(await post(transport, server.url))
            return server.connections

    assert asyncio.run(scenario()) == 2


def test_a_body_may_be_as_large_as_the_limit_and_no_larger() -> None:
    async def scenario(limit: int) -> int:
        async with transport_to([http(200, b"x" * 1000)]) as (transport, server):
            reply = await post(transport, server.url)
            try:
                return sum([len(chunk) async for chunk in reply.chunks(limit)])
            finally:
                await reply.aclose()

    assert asyncio.run(scenario(1000)) == 1000
    with pytest.raises(TransportError, match="larger than 999 bytes"):
        asyncio.run(scenario(999))


def test_a_name_that_does_not_resolve_is_a_fault_with_its_cause() -> None:
    async def scenario() -> None:
        transport = Transport(connect_timeout_s=5.0)
        with pytest.raises(TransportError, match=r"host\.invalid"):
            await post(transport, "http://host.invalid/")
        await transport.aclose()

    asyncio.run(scenario())


def test_a_server_that_does_not_speak_tls_is_a_fault() -> None:
    async def scenario() -> None:
        async with plain_server(lambda writer: writer.write(http(400, b"speak HTTP"))) as port:
            transport = Transport(connect_timeout_s=5.0)
            with pytest.raises(TransportError, match="ClientConnectorSSLError"):
                await post(transport, f"https://127.0.0.1:{port}")
            await transport.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [PIECE_BYTES, PIECE_BYTES + 1, 3_000_000])
def test_a_large_request_arrives_whole_and_with_its_length(size: int) -> None:
    async def scenario() -> Received:
        async with transport_to([http(200, b"{}")]) as (transport, server):
            await body_of(await post(transport, server.url, b"y" * size))
            return server.received[0]

    received = asyncio.run(scenario())
    assert received.headers["content-length"] == str(size)
    assert "transfer-encoding" not in received.headers
    assert received.body == b"y" * size


def test_a_server_that_accepts_and_never_shakes_hands_is_left_after_the_connect_timeout() -> None:
    async def scenario() -> float:
        began = time.monotonic()
        async with plain_server(lambda writer: None) as port:
            transport = Transport(connect_timeout_s=0.1)
            with pytest.raises(TransportError, match="ConnectionTimeoutError"):
                await post(transport, f"https://127.0.0.1:{port}")
            await transport.aclose()
        return time.monotonic() - began

    assert asyncio.run(scenario()) < 5.0


@pytest.mark.parametrize("answer", [http(413, b"{}"), http_head(200, {"transfer-encoding": "chunked"})])
def test_an_answer_before_the_request_was_read_does_not_keep_the_caller(answer: bytes) -> None:
    """The request body is still being written when the caller lets go."""

    async def scenario() -> int:
        async with plain_server(lambda writer: writer.write(answer)) as port:
            transport = Transport()
            async with asyncio.timeout(5):
                reply = await post(transport, f"http://127.0.0.1:{port}", LARGE)
                await reply.aclose()
            await transport.aclose()
            return reply.status

    assert asyncio.run(scenario()) in (200, 413)


def test_a_server_that_stops_reading_does_not_keep_a_cancelled_caller() -> None:
    async def scenario() -> None:
        async with plain_server(lambda writer: None) as port:
            transport = Transport()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await post(transport, f"http://127.0.0.1:{port}", LARGE)
            await asyncio.wait_for(transport.aclose(), 5)

    asyncio.run(scenario())


def test_closing_is_idempotent_and_ends_what_is_in_flight() -> None:
    async def scenario() -> None:
        async with transport_to([Fault.HANG]) as (transport, server):
            in_flight = asyncio.create_task(post(transport, server.url))
            await server.arrived.wait()
            await transport.aclose()
            await transport.aclose()
            with pytest.raises(TransportError):
                await asyncio.wait_for(in_flight, 5)
            with pytest.raises(TransportError, match="closed"):
                await post(transport, server.url)

    asyncio.run(scenario())
