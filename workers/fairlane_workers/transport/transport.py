"""The connections to one provider: which version of HTTP, through which proxy, trusting whom."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from fairlane_workers.transport.faults import Http1OnlyError, TransportError, named
from fairlane_workers.transport.http1 import Http1Pool
from fairlane_workers.transport.http2.extra import require_h2
from fairlane_workers.transport.proxy import parse_proxy
from fairlane_workers.transport.reply import Reply
from fairlane_workers.transport.tls import tls_context

if TYPE_CHECKING:
    from fairlane_workers.transport.http2.pool import Http2Pool


class Transport:
    """The connections to one provider, for one event loop; opened when first used.

    A POST goes out at most once, whatever becomes of its connection. Certificates are verified, see
    `tls_context`. Proxies and ``.netrc`` of the environment are ignored, redirects are not followed, cookies
    are not kept. Time is the caller's: only connecting is bounded here; a cancelled call hangs up.
    """

    def __init__(
        self,
        connect_timeout_s: float = 10.0,
        *,
        proxy: str | None = None,
        ca_file: Path | None = None,
        client_certificate: Path | None = None,
        http2: bool = False,
    ) -> None:
        """``proxy`` is a URL, see `parse_proxy`; the files are `tls_context`'s.

        ``http2`` offers HTTP/2 to ``https`` servers; one that does not take it is spoken to in HTTP/1.1.
        Raises `UnusableSettingError`, also where ``http2`` is wished for and the package h2 is missing.
        """
        if http2:
            require_h2()
        self._connect_timeout_s = connect_timeout_s
        self._proxy = None if proxy is None else parse_proxy(proxy)
        self._files, self._http2 = (ca_file, client_certificate), http2
        # Files are tried now, not at the first call; without any there is nothing to try, and it takes 20 ms.
        self._tls = tls_context(*self._files) if any(self._files) else None
        self._pool: Http1Pool | None = None
        self._http2_pools: dict[tuple[str, int], Http2Pool] = {}
        self._http2_tls: ssl.SSLContext | None = None
        self._closed = False

    async def send(self, method: str, url: httpx.URL, headers: httpx.Headers, content: bytes = b"") -> Reply:
        """Send one request and return when the response's headers are there. Raises `TransportError`."""
        await _heard()
        try:
            if self._http2 and url.scheme == "https":
                with suppress(Http1OnlyError):
                    return await self._http2_pool(url).send(method, url, headers, content)
            return await self._http1_pool().send(method, url, headers, content)
        except Exception as error:
            raise named(error) from error

    async def aclose(self) -> None:
        """Close all connections, those in use too. Idempotent."""
        self._closed = True
        pool, self._pool = self._pool, None
        for streams in self._http2_pools.values():
            await streams.aclose()
        if pool is not None:
            await pool.aclose()

    def _http1_pool(self) -> Http1Pool:
        self._require_open()
        if self._pool is None:
            self._pool = Http1Pool(self._connect_timeout_s, self._trust(), self._proxy)
        return self._pool

    def _http2_pool(self, url: httpx.URL) -> Http2Pool:
        """The connections to that server: a pool each, since a provider's files may lie on another."""
        self._require_open()
        server = url.raw_host.decode("ascii"), url.port or 443
        if server not in self._http2_pools:
            from fairlane_workers.transport.http2.dial import Dialler
            from fairlane_workers.transport.http2.pool import Http2Pool

            if self._http2_tls is None:
                self._http2_tls = tls_context(*self._files, http2=True)
            dial = Dialler(*server, self._http2_tls, self._connect_timeout_s, self._proxy, self._trust)
            self._http2_pools[server] = Http2Pool(dial)
        return self._http2_pools[server]

    def _require_open(self) -> None:
        if self._closed:
            raise TransportError("the transport is closed")

    def _trust(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = tls_context(*self._files)
        return self._tls


async def _heard() -> None:
    """Let the loop take in what has arrived, so that no connection is reused that its server has closed.

    A task that was ready runs before what the loop then finds on its sockets, so two turns are needed.
    """
    loop = asyncio.get_running_loop()
    for _ in range(2):
        turn = loop.create_future()
        loop.call_soon(_turned, turn)
        await turn


def _turned(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
