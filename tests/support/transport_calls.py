"""Calls over a transport, and servers and certificates for the transport suites."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from fairlane_workers.transport import Reply, Transport


@asynccontextmanager
async def transport_of(**settings: Any) -> AsyncIterator[Transport]:
    """A transport with a connect timeout of 5 s; it is closed when the block ends."""
    transport = Transport(**{"connect_timeout_s": 5.0, **settings})
    try:
        yield transport
    finally:
        await transport.aclose()


async def post(transport: Transport, url: str, content: bytes = b"{}", **headers: str) -> Reply:
    """Send one POST, without reading the response's body."""
    target = httpx.URL(url)
    sent = {"host": target.netloc.decode("ascii"), **headers}
    return await transport.send("POST", target, httpx.Headers(sent), content)


async def body_of(reply: Reply, max_bytes: int = 1 << 20) -> bytes:
    """Read a response's whole body."""
    try:
        return b"".join([chunk async for chunk in reply.chunks(max_bytes)])
    finally:
        await reply.aclose()


@asynccontextmanager
async def plain_server(greet: Callable[[asyncio.StreamWriter], None]) -> AsyncIterator[int]:
    """A server that sends a greeting to each client and reads only a few bytes. Yields its port."""
    writers: list[asyncio.StreamWriter] = []

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        greet(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1024)
    yield server.sockets[0].getsockname()[1]
    server.close()
    for writer in writers:
        writer.transport.abort()
    await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


def serving(certificate: tuple[Path, Path], *, clients_of: Path | None = None) -> ssl.SSLContext:
    """A server's TLS context. ``clients_of``: clients need a certificate of this authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if clients_of is not None:
        context.load_verify_locations(clients_of)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
