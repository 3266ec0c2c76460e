"""Opens HTTP/2 connections, straight or through a proxy."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from fairlane_workers.transport.faults import TransportError, through_proxy, unreachable
from fairlane_workers.transport.http2.connection import Http2Connection
from fairlane_workers.transport.http2.tunnel import tunnel
from fairlane_workers.transport.proxy import Proxy
from fairlane_workers.transport.sockets import connected


@dataclass(frozen=True, slots=True)
class Dialler:
    """How to reach one server. ``tls`` offers HTTP/2; ``proxy_tls`` is for the way to an ``https`` proxy."""

    host: str
    port: int
    tls: ssl.SSLContext
    timeout_s: float
    proxy: Proxy | None
    proxy_tls: Callable[[], ssl.SSLContext]

    async def __call__(self) -> Http2Connection | None:
        """A connection whose server has told its settings; ``None`` where it chose HTTP/1.1.

        Raises `TransportError`.
        """
        connection = Http2Connection()
        try:
            async with asyncio.timeout(self.timeout_s):
                await (
                    self._direct(connection) if self.proxy is None else self._through(self.proxy, connection)
                )
                spoken = await connection.spoken
        except TimeoutError:
            connection.abort()
            where = f"{self.host}:{self.port} within {self.timeout_s:g} s"
            raise TransportError(f"ConnectionTimeoutError: no connection to {where}") from None
        except OSError as error:  # TLS's errors are some
            connection.abort()
            raise unreachable(self.host, self.port, error) from error
        except BaseException:
            connection.abort()
            raise
        return connection if spoken else None

    async def _direct(self, connection: Http2Connection) -> None:
        loop = asyncio.get_running_loop()
        sock = await connected(self.host, self.port)
        await loop.create_connection(lambda: connection, sock=sock, ssl=self.tls, server_hostname=self.host)

    async def _through(self, proxy: Proxy, connection: Http2Connection) -> None:
        loop = asyncio.get_running_loop()
        try:
            inner = await tunnel(
                proxy, self.host, self.port, self.proxy_tls() if proxy.scheme == "https" else None
            )
        except OSError as error:
            raise through_proxy(unreachable(proxy.host, proxy.port, error)) from error
        try:
            outer = await loop.start_tls(inner, connection, self.tls, server_hostname=self.host)
        except BaseException:
            inner.abort()
            raise
        if outer is None:
            raise TransportError(f"ConnectionResetError: cannot connect to {self.host}:{self.port}")
        connection.connection_made(outer)
