"""A pool of HTTP/1.1 connections, each with one call at a time.

It wraps aiohttp's pool: httpx's own assigns connections in O(n²) and collapses at hundreds in flight.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import aiohttp
import httpx
from yarl import URL

from fairlane_workers.transport.connector import Connector, Outgoing, outgoing
from fairlane_workers.transport.faults import named, refused_by_proxy, through_proxy
from fairlane_workers.transport.proxy import Proxy
from fairlane_workers.transport.reply import Reply

KEEPALIVE_S = 30.0  # how long an idle connection is kept; each costs a socket here and at the provider
PIECE_BYTES = 256 * 1024  # a larger body is sent in such pieces, so the loop serves other calls in between
HEADER_BYTES = 32 * 1024  # of one header: policies and cookies of gateways outgrow aiohttp's 8 KB
MOST_HEADERS = 256

SERVER_FAULT = 500
"""From this status on, a reply spoils its connection. A balancer leads a new one to any replica, where the
kept one would lead back to the broken one. A 429 does not: a limit is the same over every connection."""

IDLE_TOO_LONG = 408  # sent without being asked (RFC 9110, 15.5.9): the reply to the call itself may follow

# Below the idle timeouts of common NAT gateways and load balancers (AWS: 350 s, Azure: 240 s).
TCP_IDLE_S = 30
PROBE_EVERY_S = 10
SILENT_S = 60

_ADDRESS = tuple[Any, ...]

_TLS_ERRORS = (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)


class ConnectionPool:
    """Connections for one event loop: opened if none is idle, closed after 30 s without a call.

    None serves a call after about 60 s, or after a reply that a broken server may have sent.
    The pool does not bound their number, since the worker's slots bound the calls. It sends a request at most
    once. Only aiohttp repeats an idempotent one (never a POST) if the server closed a kept connection.
    """

    def __init__(self, connect_timeout_s: float, tls: ssl.SSLContext, proxy: Proxy | None) -> None:
        self._proxy = proxy
        # "connect" bounds all of connecting, name resolution too; "sock_connect" a part of it.
        self._timeout = aiohttp.ClientTimeout(
            total=None, connect=connect_timeout_s, sock_connect=connect_timeout_s
        )
        self._connector = Connector(
            limit=0, keepalive_timeout=KEEPALIVE_S, ssl=tls, socket_factory=open_socket
        )
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            requote_redirect_url=False,
            max_field_size=HEADER_BYTES,
            max_headers=MOST_HEADERS,
        )

    async def send(
        self,
        method: str,
        url: httpx.URL,
        headers: httpx.Headers,
        content: bytes,
        leave: Callable[[], object] | None = None,
    ) -> Reply:
        """See `Transport.send`."""
        sent = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers.raw]
        data: bytes | AsyncIterator[bytes] | None = content or None
        if len(content) > PIECE_BYTES:
            sent.append(("content-length", str(len(content))))
            data = _pieces(content)
        proxy, tunnelled = self._proxy, url.scheme == "https"
        if proxy is not None and not tunnelled:
            sent += proxy.headers.items()
        request = Outgoing(leave)
        outgoing.set(request)
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
        request.receive(response.content)
        if response.status >= SERVER_FAULT or response.status == IDLE_TOO_LONG:
            request.spoil()
        return Reply(response.status, httpx.Headers(list(response.raw_headers)), response, request.spoil)

    async def aclose(self) -> None:
        """Close all connections, those in use too."""
        await self._session.close()


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    """A large body in pieces, so that the loop serves other calls between them."""
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


def socket_options() -> list[tuple[int, int, int]]:
    """Level, name and value of each TCP option that this platform has.

    TCP probes a connection after 30 s without traffic, every 10 s. After 60 s without a sign of the peer, to
    probes or to data, the connection breaks (Linux; other systems bound unacknowledged data themselves).
    """
    options = [
        ("TCP_NODELAY", 1),
        ("TCP_KEEPIDLE", TCP_IDLE_S),
        ("TCP_KEEPINTVL", PROBE_EVERY_S),
        ("TCP_KEEPCNT", max(1, (SILENT_S - TCP_IDLE_S) // PROBE_EVERY_S)),
        ("TCP_USER_TIMEOUT", SILENT_S * 1000),
    ]
    present = [(getattr(socket, name), value) for name, value in options if hasattr(socket, name)]
    tcp = [(socket.IPPROTO_TCP, name, value) for name, value in present]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *tcp]


def open_socket(address: _ADDRESS) -> socket.socket:
    """A socket with these options, for an address in the form of `getaddrinfo`."""
    family, kind, protocol = address[:3]
    sock = socket.socket(family, kind, protocol)
    for level, name, value in socket_options():
        sock.setsockopt(level, name, value)
    return sock
