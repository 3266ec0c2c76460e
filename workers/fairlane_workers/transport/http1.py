"""HTTP/1.1: a pool of connections, one call on each at a time.

The pool is aiohttp's: httpx's own assigns connections in O(n²) and collapses at hundreds in flight.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import suppress

import aiohttp
import httpx
from yarl import URL

from fairlane_workers.transport.faults import named, refused_by_proxy, through_proxy
from fairlane_workers.transport.proxy import Proxy
from fairlane_workers.transport.reply import Reply
from fairlane_workers.transport.sockets import open_socket

KEEPALIVE_S = 30.0
PIECE_BYTES = 256 * 1024
KEEP_MARGIN_S = 1.0  # a request on its way must arrive before the server closes

_TLS_ERRORS = (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)


class Http1Pool:
    """Connections for one event loop, opened when there is none to reuse and kept idle for 30 s.

    Their number is not bounded here, since the worker's slots bound the calls. A request goes out at most
    once, except that aiohttp repeats an idempotent one (never a POST) whose kept connection was closed
    under it.
    """

    def __init__(self, connect_timeout_s: float, tls: ssl.SSLContext, proxy: Proxy | None) -> None:
        self._proxy = proxy
        # "connect" bounds all up to an open connection, resolving the name too; "sock_connect" a part of it.
        self._timeout = aiohttp.ClientTimeout(
            total=None, connect=connect_timeout_s, sock_connect=connect_timeout_s
        )
        self._connector = _Connector(
            limit=0, keepalive_timeout=KEEPALIVE_S, ssl=tls, socket_factory=open_socket
        )
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            requote_redirect_url=False,
        )

    async def send(self, method: str, url: httpx.URL, headers: httpx.Headers, content: bytes) -> Reply:
        """See `Transport.send`."""
        sent = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers.raw]
        data: bytes | AsyncIterator[bytes] | None = content or None
        if len(content) > PIECE_BYTES:
            sent.append(("content-length", str(len(content))))
            data = _pieces(content)
        proxy, tunnelled = self._proxy, url.scheme == "https"
        if proxy is not None and not tunnelled:
            sent += proxy.headers.items()
        try:
            response = await self._session.request(
                method,
                URL(str(url), encoded=True),  # not requoted: a signature covers it
                headers=sent,
                data=data,
                allow_redirects=False,
                timeout=self._timeout,
                proxy=proxy.url if proxy else None,
                proxy_headers=proxy.headers if proxy and tunnelled else None,
            )
        except _TLS_ERRORS as error:
            if proxy is not None and (error.host, error.port) == (proxy.host, proxy.port):
                raise through_proxy(named(error)) from error
            raise
        if proxy is not None and not tunnelled and response.status == 407:
            response.close()
            raise refused_by_proxy(407)
        if (seconds := _kept_for(response.headers.get("keep-alive", ""))) is not None:
            self._connector.keep_at_most(seconds)
        return Reply(response.status, httpx.Headers(list(response.raw_headers)), _Body(response))

    async def aclose(self) -> None:
        """Close all connections, those in use too."""
        await self._session.close()


class _Connector(aiohttp.TCPConnector):
    """Forgets idle connections before the server does, where the server says when that is."""

    def keep_at_most(self, seconds: float) -> None:
        """Keep connections idle for less than so long; they may be closed as soon as they are free."""
        self._keepalive_timeout = min(self._keepalive_timeout or 0.0, max(seconds - KEEP_MARGIN_S, 0.0))


class _Body:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    def pieces(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_any()

    async def aclose(self) -> None:
        self._response.release()
        await self._response.wait_for_close()


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    """A large body handed over in pieces, so that the loop serves other calls between them."""
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]


def _kept_for(keep_alive: str) -> float | None:
    """Seconds that a server keeps an idle connection, of ``Keep-Alive: timeout=5, max=100``."""
    for part in keep_alive.split(","):
        name, _, value = part.strip().partition("=")
        if name.lower() == "timeout":
            with suppress(ValueError):
                return float(int(value))
    return None
