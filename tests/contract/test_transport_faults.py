"""What the network and hostile servers do to a call over HTTP/1.1: named, bounded, and never sent again."""

from __future__ import annotations

import asyncio
import ctypes
import gzip
import socket
import struct
import sys
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from fairlane_workers.transport import Transport, TransportError, pool
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
from tests.support.tls import Certificates
from tests.support.transport_calls import body_of, post, serving, transport_of

MILLION = 1_000_000

over_either = pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def outcome(*script: Exchange, max_bytes: int = MILLION, within_s: float = 5.0) -> bytes:
    """The body that one call to a server with this script gets, before the deadline."""

    async def scenario() -> bytes:
        async with scripted_server(script) as server, transport_of() as transport, asyncio.timeout(within_s):
            return await body_of(await post(transport, server.url), max_bytes)

    return asyncio.run(scenario())


# No connection


def test_a_name_that_does_not_resolve_is_named() -> None:
    async def scenario() -> None:
        async with transport_of() as transport:
            with pytest.raises(TransportError, match=r"cannot connect to host\.invalid:80: "):
                await post(transport, "http://host.invalid/")

    asyncio.run(scenario())


def test_a_refused_connection_is_named_with_its_address() -> None:
    async def scenario(port: int) -> None:
        async with transport_of() as transport:
            with pytest.raises(TransportError, match=f"127.0.0.1:{port}: .*(refused|Connect call failed)"):
                await post(transport, f"http://127.0.0.1:{port}/")

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        asyncio.run(scenario(unused.getsockname()[1]))


# A kept connection


@asynccontextmanager
async def kept_connection(
    secure: bool, made: Certificates, *first: bytes, then: Exchange = (b"",)
) -> AsyncIterator[tuple[ScriptedServer, Transport]]:
    """A transport that has had one answer and keeps its connection."""
    script: list[Exchange] = [first, then, [http(200, b"{}")]]
    tls = serving(made.issue("server")) if secure else None
    async with scripted_server(script, tls) as server, transport_of(ca_file=made.ca) as transport:
        await body_of(await post(transport, server.url))
        yield server, transport


@over_either
def test_a_connection_that_the_server_closed_meanwhile_is_not_used(secure: bool, made: Certificates) -> None:
    """Its FIN has reached this machine, and nobody here has looked at it when the next call begins."""

    async def scenario() -> list[int]:
        async with kept_connection(secure, made, http(200, b"{}"), then=[http(200, b"{}")]) as (
            server,
            transport,
        ):
            (closing,) = server.open.values()
            closing.get_extra_info("socket").shutdown(socket.SHUT_WR)
            assert await body_of(await post(transport, server.url)) == b"{}"
            return [received.connection for received in server.received]

    assert asyncio.run(scenario()) == [1, 2]


def test_a_server_that_says_how_long_it_keeps_connections_is_believed(made: Certificates) -> None:
    """A second is left for the way: one kept for a second is not used again."""

    async def scenario(keep_alive: str) -> int:
        first = http(200, b"{}", {"keep-alive": keep_alive})
        async with kept_connection(False, made, first, then=[http(200, b"{}")]) as (server, transport):
            await body_of(await post(transport, server.url))
            return server.connections

    assert asyncio.run(scenario("timeout=1, max=100")) == 2
    assert asyncio.run(scenario("timeout=60")) == 1
    assert asyncio.run(scenario("timeout=soon, max")) == 1


def test_a_post_on_a_connection_that_dies_under_it_is_not_sent_again(made: Certificates) -> None:
    async def scenario(fault: Fault) -> int:
        async with kept_connection(False, made, http(200, b"{}"), then=[fault]) as (server, transport):
            with pytest.raises(TransportError):
                await post(transport, server.url)
            return len(server.received)

    assert [asyncio.run(scenario(fault)) for fault in (Fault.CLOSE, Fault.RESET)] == [2, 2]


# A peer that is gone without a word


async def _connected(transport: Transport, server: ScriptedServer) -> socket.socket:
    """The server's socket of the one connection."""
    await body_of(await post(transport, server.url))
    (writer,) = server.open.values()
    raw: socket.socket = writer.get_extra_info("socket")
    return raw


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such options")
def test_connections_watch_for_peers_that_vanish(made: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []

    def remembered(address: tuple[object, ...]) -> socket.socket:
        opened.append(open_socket(address))
        return opened[-1]

    open_socket = pool.open_socket
    monkeypatch.setattr("fairlane_workers.transport.pool.open_socket", remembered)

    async def scenario() -> list[int]:
        server = scripted_server([[http(200, b"{}")]], serving(made.issue("server")))
        async with server as running, transport_of(ca_file=made.ca) as transport:
            await body_of(await post(transport, running.url))
            return [opened[0].getsockopt(level, name) for level, name, _ in pool.socket_options()]

    assert asyncio.run(scenario()) == [value for _, _, value in pool.socket_options()]


def _vanish(sock: socket.socket) -> None:
    """From here on the kernel drops what arrives for this socket: no acknowledgement, no FIN, no RST."""
    nothing = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # BPF: return 0 bytes
    program = struct.pack("HL", 1, ctypes.addressof(nothing))
    sock.setsockopt(socket.SOL_SOCKET, 26, program)  # SO_ATTACH_FILTER


@pytest.mark.skipif(sys.platform != "linux", reason="it takes a filter of Linux's to vanish")
@pytest.mark.parametrize("when", ["idle", "waiting"])
def test_a_peer_that_vanished_is_noticed_before_the_deadline(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With patience cut to a second or two: a call sent into the void, and one that waits for its answer."""
    for name, value in (("TCP_IDLE_S", 1), ("PROBE_EVERY_S", 1), ("SILENT_S", 2)):
        monkeypatch.setattr(pool, name, value)

    async def scenario() -> None:
        script: list[Exchange] = [[http(200, b"{}")], [Fault.HANG]]
        async with scripted_server(script) as server, transport_of() as transport:
            peer = await _connected(transport, server)
            if when == "idle":
                _vanish(peer)
                call = asyncio.ensure_future(post(transport, server.url))
            else:
                server.arrived.clear()
                call = asyncio.ensure_future(post(transport, server.url))
                await server.arrived.wait()
                _vanish(peer)
            with pytest.raises(TransportError, match=r"timed out|Server disconnected"):
                await asyncio.wait_for(call, 30)

    asyncio.run(scenario())


# Drips and floods


@pytest.mark.parametrize(
    "steps",
    [
        [Fault.HANG],
        [Drip(b"H", 0.01)],
        [b"HTTP/1.1 200 OK\r\n", Drip(b"x: y\r\n", 0.01)],
        [Drip(b"HTTP/1.1 100 Continue\r\n\r\n", 0.01)],
        [http_head(200, {"content-length": "99999"}), Drip(b"x", 0.01)],
        [stream_head(), Drip(b"1\r\nx\r\n", 0.01)],
        [stream_head(), b"5", Drip(b";a=b", 0.01)],
    ],
    ids=["silence", "status", "headers", "interim", "body", "chunks", "chunk extension"],
)
def test_no_drip_outlives_the_callers_deadline(steps: Exchange) -> None:
    began = time.monotonic()
    with pytest.raises((TimeoutError, TransportError)):
        outcome(steps, within_s=0.2)
    assert time.monotonic() - began < 3.0


@pytest.mark.parametrize(
    "steps",
    [
        [b"HTTP/1.1 200 OK\r\n", Drip(b"x: y\r\n", 0.0)],
        [b"HTTP/1.1 200 OK\r\nx: ", Drip(b"y" * 10_000, 0.0)],
        [b"HTTP/1.1 200 ", Drip(b"y" * 10_000, 0.0)],
        [b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000 + b"content-length: 0\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nx: " + b"y" * MILLION + b"\r\ncontent-length: 0\r\n\r\n"],
    ],
    ids=["endless headers", "endless header", "endless status", "many headers", "huge header"],
)
def test_headers_are_bounded(steps: Exchange) -> None:
    with pytest.raises(TransportError):
        outcome(steps)


@pytest.mark.parametrize(
    "steps",
    [
        [http_head(200, {"content-length": str(10**12)}), Drip(b"x" * 10_000, 0.0)],
        [stream_head(), Drip(chunk(b"x" * 10_000), 0.0)],
        [b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", Drip(b"x" * 10_000, 0.0)],
    ],
    ids=["length", "chunks", "to the end"],
)
def test_a_body_is_not_read_beyond_its_bound(steps: Exchange) -> None:
    with pytest.raises(TransportError, match="larger than 50000 bytes"):
        outcome(steps, max_bytes=50_000)


# Packed bodies


def packed(data: bytes, encoding: str) -> Exchange:
    return [http(200, data, {"content-encoding": encoding})]


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("X-GZip", gzip.compress),
        ("deflate", zlib.compress),
        ("identity", bytes),
        ("", bytes),
    ],
)
def test_a_body_that_a_gateway_packed_is_unpacked(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    data = bytes(range(256)) * 2000
    assert outcome(packed(pack(data), encoding)) == data


def test_a_decompression_bomb_is_stopped_at_the_bound_and_never_held_in_memory() -> None:
    bomb = gzip.compress(b"\0" * 200 * MILLION, compresslevel=1)
    tracemalloc.start()
    try:
        with pytest.raises(TransportError, match="larger than 1000000 bytes"):
            outcome(packed(bomb, "gzip"))
        assert tracemalloc.get_traced_memory()[1] < 20 * MILLION
    finally:
        tracemalloc.stop()


def test_packing_that_unpacks_to_nothing_is_bounded_too() -> None:
    """Empty blocks of deflate, without end."""
    empty = b"\x78\x9c" + b"\x00\x00\x00\xff\xff" * 100_000
    with pytest.raises(TransportError, match="larger than 100000 bytes"):
        outcome(packed(empty, "deflate"), max_bytes=100_000)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "x" * 1000])
def test_an_encoding_that_is_not_spoken_is_named(encoding: str) -> None:
    with pytest.raises(TransportError, match="was not asked for") as caught:
        outcome(packed(b"\x0b\x01\x80abc\x03", encoding))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "data", [b"\x0b\x01\x80no gzip\x03", gzip.compress(b"x" * 1000)[:-9], b""], ids=["other", "cut", "empty"]
)
def test_a_packed_body_that_is_broken_is_a_fault(data: bytes) -> None:
    with pytest.raises(TransportError, match=r"not gzip|breaks off"):
        outcome(packed(data, "gzip"))


# Signs of life


def test_blank_lines_and_comments_before_the_answer_arrive_as_part_of_it() -> None:
    """What keeps connections alive is left to whoever reads the format: JSON and events alike allow it."""
    lines = [chunk(b"\n")] * 5 + [chunk(b": keep-alive\n\n")] * 5
    assert (
        outcome([stream_head(), *lines, chunk(b"{}"), chunk(b"")])
        == b"\n" * 5 + b": keep-alive\n\n" * 5 + b"{}"
    )


def test_interim_responses_before_the_answer_are_passed_over() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    assert outcome([b"HTTP/1.1 100 Continue\r\n\r\n", hints, http(200, b"{}")]) == b"{}"


# Many at once


def test_hundreds_of_calls_in_flight_are_all_answered_and_their_connections_kept() -> None:
    in_flight, rounds = 300, 3

    async def scenario() -> tuple[int, int]:
        script = [[http(200, b"{}")]] * (in_flight * rounds)
        async with scripted_server(script) as server, transport_of() as transport:

            async def caller() -> int:
                return sum([len(await body_of(await post(transport, server.url))) for _ in range(rounds)])

            answered = await asyncio.gather(*(caller() for _ in range(in_flight)))
            return sum(answered), server.connections

    read, connections = asyncio.run(scenario())
    assert read == 2 * in_flight * rounds
    assert connections <= in_flight
