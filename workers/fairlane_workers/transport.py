"""How bytes get to a provider and back: one pooled connection set, nothing sent twice, every fault named.

The pool is aiohttp's behind httpx's transport interface: httpx's own pool assigns connections in O(n²) and
collapses at hundreds in flight. `httpx.AsyncClient` is left out on purpose: above the transport it only adds
redirects, cookies and environment lookups, none of which a paid POST may be subject to, and CPU.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from fairlane_workers.providers.wording import bounded

KEEPALIVE_S = 30.0


class TransportFault(Exception):
    """The network or the peer broke HTTP. ``str(fault)`` is short and names the cause; never leaves the workers."""


@dataclass(slots=True)
class Reply:
    """An HTTP response whose body has not been read. Close it, read or not."""

    status: int
    headers: httpx.Headers
    _response: httpx.Response = field(repr=False)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, decompressed. Raises `TransportFault` where it breaks off."""
        try:
            async with aclosing(self._response.aiter_bytes()) as chunks:
                async for chunk in chunks:
                    yield chunk
        except Exception as error:
            raise _fault(error) from error

    async def aclose(self) -> None:
        """Give the connection back if the body was read to its end; close it otherwise."""
        try:
            await self._response.aclose()
        except Exception as error:  # noqa: BLE001 the answer is settled, how its connection dies says nothing
            del error


class Transport:
    """The connections to one provider, for one event loop; opened when first used.

    Promises: a request goes out at most once (aiohttp repeats only idempotent methods on a connection that
    was closed under it, and POST is not one; nothing else here retries); TLS certificates are verified
    (against certifi, or ``SSL_CERT_FILE``/``SSL_CERT_DIR`` where those are set); proxies and ``.netrc`` of the
    environment are ignored; redirects are not followed; cookies are not kept. The number of connections is
    not bounded here, since the worker's slots bound the calls. Idle connections are kept for 30 s.
    """

    def __init__(self, connect_timeout_s: float = 10.0) -> None:
        self._extensions = {"timeout": {"connect": connect_timeout_s, "pool": connect_timeout_s}}
        self._http: AiohttpTransport | None = None
        self._closed = False

    async def post(self, url: httpx.URL, headers: httpx.Headers, content: bytes) -> Reply:
        """Send one POST and return when the response's headers are there. Raises `TransportFault`."""
        if self._closed:
            raise TransportFault("the transport is closed")
        request = httpx.Request("POST", url, headers=headers, content=content, extensions=self._extensions)
        try:
            response = await self._open().handle_async_request(request)
        except Exception as error:
            raise _fault(error) from error
        return Reply(response.status_code, response.headers, response)

    async def aclose(self) -> None:
        """Close all connections, those in use too. Idempotent."""
        self._closed = True
        if self._http is not None:
            http, self._http = self._http, None
            await http.aclose()

    def _open(self) -> AiohttpTransport:
        if self._http is None:
            tls = httpx.create_ssl_context()
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, ssl=tls)
            session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            )
            self._http = AiohttpTransport(verify=tls, client=session)
        return self._http


def _fault(error: Exception) -> TransportFault:
    """The fault as aiohttp saw it: httpx-aiohttp calls a refused or lost connection a ``ConnectTimeout``."""
    seen = error.__cause__ if isinstance(error, httpx.TransportError) and error.__cause__ else error
    text = str(seen).strip()
    return TransportFault(bounded(f"{type(seen).__name__}: {text}" if text else type(seen).__name__))
