"""An HTTP proxy on loopback: tunnels CONNECT, forwards other requests, and records what it received."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class ProxyServer:
    """``asked`` has the first line and the headers of each request to the proxy.

    ``answer``: it sends this in place of connecting. ``wants``: the ``Proxy-Authorization`` that it demands.
    """

    answer: bytes | None = None
    wants: str | None = None
    silent: bool = False
    url: str = ""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    forwarded: list[bytes] = field(default_factory=list)
    tasks: dict[asyncio.Future[None], asyncio.StreamWriter] = field(default_factory=dict)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks[asyncio.ensure_future(self._serve(reader, writer))] = writer

    async def stop(self) -> None:
        for task, writer in self.tasks.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            self.asked.append((first, headers))
            if self.silent:
                await reader.read()
            elif self.answer is not None:
                writer.write(self.answer)
            elif self.wants is not None and headers.get("proxy-authorization") != self.wants:
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            else:
                await self._pass_on(first, headers, reader, writer)
        writer.close()

    async def _pass_on(
        self, first: str, headers: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        method, target, _ = first.split(" ")
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", parts.port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            kept = {name: value for name, value in headers.items() if not name.startswith("proxy-")}
            lines = "".join(f"{name}: {value}\r\n" for name, value in kept.items())
            inner_writer.write(f"{method} {parts.path or '/'} HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))
        there = asyncio.ensure_future(self._pump(reader, inner_writer, self.forwarded))
        try:
            await self._pump(inner_reader, writer, [])
        finally:
            there.cancel()
            inner_writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: list[bytes]
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                seen.append(data)
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def proxy_server(
    *,
    answer: bytes | None = None,
    wants: str | None = None,
    silent: bool = False,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[ProxyServer]:
    """Run a proxy on a free port, in the running event loop; with TLS, as ``localhost``."""
    proxy = ProxyServer(answer, wants, silent)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    proxy.url = f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.stop()
