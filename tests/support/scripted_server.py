"""A TCP server that answers HTTP requests with scripted bytes, including malformed ones and faults."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeAlias


class Fault(Enum):
    """Faults that a script can have in place of bytes."""

    CLOSE = auto()  # FIN
    RESET = auto()  # RST
    HANG = auto()  # silence until the client leaves


@dataclass(frozen=True)
class Drip:
    """Repeats the same bytes every ``every_s`` seconds until the client disconnects."""

    data: bytes
    every_s: float


@dataclass(frozen=True)
class Pause:
    """Sends nothing for so many seconds, or until the client disconnects."""

    seconds: float


Step: TypeAlias = bytes | Fault | Drip | Pause
Exchange: TypeAlias = Sequence[Step]


@dataclass(frozen=True)
class Received:
    """One received request; ``connection`` counts connections from 1."""

    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document


@dataclass
class ScriptedServer:
    """Answers the n-th request with the n-th exchange, and closes the connection at any further request."""

    script: list[Exchange]
    url: str = ""
    connections: int = 0
    received: list[Received] = field(default_factory=list)
    open: dict[asyncio.Future[None], asyncio.StreamWriter] = field(default_factory=dict)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)  # a request was read
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)  # a client left while it was being answered

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: answer its requests until either side closes it."""
        self.connections += 1
        self.open[asyncio.ensure_future(self._serve(self.connections, reader, writer))] = writer

    async def stop(self) -> None:
        """Abort all connections and wait until their tasks have ended."""
        for writer in self.open.values():
            writer.transport.abort()
        await asyncio.gather(*self.open)

    async def _serve(
        self, connection: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while True:
                self.received.append(await _read_request(reader, connection))
                self.arrived.set()
                number = len(self.received)
                exchange = self.script[number - 1] if number <= len(self.script) else (Fault.CLOSE,)
                if not await self._answer(exchange, reader, writer):
                    break
        except asyncio.IncompleteReadError:
            pass  # the client closed an idle connection
        except ConnectionError:
            self.hung_up.set()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(
        self, exchange: Exchange, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        for step in exchange:
            match step:
                case bytes():
                    writer.write(step)
                    await writer.drain()
                case Drip(data, every_s):
                    left = asyncio.ensure_future(reader.read())
                    while not left.done() and not writer.is_closing():
                        writer.write(data)
                        await asyncio.wait({left}, timeout=every_s)
                    left.cancel()
                    self.hung_up.set()
                    return False
                case Pause(seconds):
                    left = asyncio.ensure_future(reader.read())
                    await asyncio.wait({left}, timeout=seconds)
                    if not left.cancel():
                        self.hung_up.set()
                        return False
                    await asyncio.wait({left})
                case Fault.HANG:
                    with suppress(ConnectionError):
                        await reader.read()
                    self.hung_up.set()
                    return False
                case Fault.RESET:
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.transport.abort()
                    return False
                case Fault.CLOSE:
                    return False
        return True


@asynccontextmanager
async def scripted_server(
    script: Iterable[Exchange], tls: ssl.SSLContext | None = None
) -> AsyncIterator[ScriptedServer]:
    """Serve ``script`` on a free loopback port, within the running loop; over TLS as ``localhost``."""
    scripted = ScriptedServer(list(script))
    server = await asyncio.start_server(scripted.accept, "127.0.0.1", 0, ssl=tls)
    host, port = server.sockets[0].getsockname()[:2]
    scripted.url = f"https://localhost:{port}" if tls else f"http://{host}:{port}"
    try:
        yield scripted
    finally:
        server.close()
        await scripted.stop()


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(first.split(" ")[1], headers, body, connection)


def http(
    status: int,
    body: bytes | dict[str, Any],
    headers: dict[str, str] | None = None,
    *,
    content_type: str = "application/json",
) -> bytes:
    """A whole response with its length."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (
        http_head(status, {"content-type": content_type, "content-length": str(len(data)), **(headers or {})})
        + data
    )


def http_head(status: int, headers: dict[str, str]) -> bytes:
    """A status line and headers."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode("latin-1")


def stream_head(headers: dict[str, str] | None = None) -> bytes:
    """The start of a chunked event stream."""
    return http_head(
        200, {"content-type": "text/event-stream", "transfer-encoding": "chunked", **(headers or {})}
    )


def chunk(data: bytes) -> bytes:
    """One HTTP chunk; of no bytes, the last one."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(data: dict[str, Any] | str, name: str | None = None) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()
