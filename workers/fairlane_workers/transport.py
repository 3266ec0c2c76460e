"""How bytes get to a provider and back: one pool of connections, nothing sent twice, every fault named.

The pool is aiohttp's behind httpx's transport interface: httpx's own pool assigns connections in O(n²) and
collapses at hundreds in flight. `httpx.AsyncClient` is left out on purpose: above its transport it adds only
redirects, cookies and the environment's proxies, to none of which a paid POST may be subject, and CPU time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

KEEPALIVE_S = 30.0
PIECE_BYTES = 256 * 1024


class TransportError(Exception):
    """The network or the peer broke the exchange; the text names the cause. Never leaves this package."""


@dataclass(slots=True)
class Reply:
    """An HTTP response whose body has not been read. Close it, read or not."""

    status: int
    headers: httpx.Headers
    _response: httpx.Response = field(repr=False)

    async def chunks(self, max_bytes: int) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises `TransportError` where it breaks off or exceeds ``max_bytes``."""
        size = 0
        try:
            async for chunk in self._response.aiter_bytes():
                size += len(chunk)
                if size > max_bytes:
                    break
                yield chunk
        except Exception as error:
            raise _named(error) from error
        if size > max_bytes:
            raise TransportError(f"larger than {max_bytes} bytes")

    async def aclose(self) -> None:
        """Give the connection back if the body was read to its end, close it otherwise."""
        with suppress(Exception):  # the answer is settled: how its connection dies says nothing about it
            await self._response.aclose()


class Transport:
    """The connections to one provider, for one event loop; opened when first used.

    A request goes out at most once: aiohttp repeats only idempotent methods on a connection that was closed
    under it, POST is none, and nothing else here retries. TLS certificates are verified, against certifi or
    what ``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` name. Proxies and ``.netrc`` of the environment are ignored,
    redirects are not followed, cookies are not kept. The number of connections is not bounded here, since the
    worker's slots bound the calls; idle ones are kept for 30 s.
    """

    def __init__(self, connect_timeout_s: float = 10.0) -> None:
        # To aiohttp "pool" bounds everything up to an open connection (DNS too), "connect" socket and TLS.
        self._extensions = {"timeout": {"connect": connect_timeout_s, "pool": connect_timeout_s}}
        self._http: AiohttpTransport | None = None
        self._closed = False

    async def send(self, method: str, url: httpx.URL, headers: httpx.Headers, content: bytes = b"") -> Reply:
        """Send one request and return when the response's headers are there. Raises `TransportError`."""
        if self._closed:
            raise TransportError("the transport is closed")
        try:
            response = await self._open().handle_async_request(self._request(method, url, headers, content))
        except Exception as error:
            raise _named(error) from error
        return Reply(response.status_code, response.headers, response)

    async def aclose(self) -> None:
        """Close all connections, those in use too. Idempotent."""
        self._closed = True
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    def _request(self, method: str, url: httpx.URL, headers: httpx.Headers, content: bytes) -> httpx.Request:
        if len(content) <= PIECE_BYTES:
            return httpx.Request(method, url, headers=headers, content=content, extensions=self._extensions)
        sized = httpx.Headers([*headers.raw, (b"content-length", b"%d" % len(content))])
        return httpx.Request(method, url, headers=sized, stream=_Pieces(content), extensions=self._extensions)

    def _open(self) -> AiohttpTransport:
        if self._http is None:
            tls = httpx.create_ssl_context()
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, ssl=tls),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
            self._http = AiohttpTransport(verify=tls, client=session)
        return self._http


class _Pieces(httpx.AsyncByteStream):
    """A large body handed over in pieces, so that the loop serves other calls between them."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._content), PIECE_BYTES):
            yield self._content[start : start + PIECE_BYTES]


def _named(error: Exception) -> TransportError:
    """The fault as aiohttp saw it: httpx-aiohttp calls a refused or lost connection a ``ConnectTimeout``."""
    seen = error.__cause__ if isinstance(error, httpx.TransportError) and error.__cause__ else error
    text = str(seen).strip()
    return TransportError(f"{type(seen).__name__}: {text}" if text else type(seen).__name__)
