"""A pool of HTTP/1.1 connections, each with one call at a time. It reuses only young and sound ones.

It wraps aiohttp's pool: httpx's own assigns connections in O(n²) and collapses at hundreds in flight.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from random import uniform
from time import monotonic
from typing import Any

import aiohttp
import httpx
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from fairlane.core.figures import plain_number
from fairlane_workers.transport.faults import broken_off, named, refused_by_proxy, through_proxy
from fairlane_workers.transport.proxy import Proxy
from fairlane_workers.transport.reply import Reply

KEEPALIVE_S = 30.0  # how long an idle connection is kept; each costs a socket here and at the provider
PIECE_BYTES = 256 * 1024  # a larger body is sent in such pieces, so the loop serves other calls in between
HEADER_BYTES = 32 * 1024  # most of one header: policies and cookies of gateways exceed aiohttp's 8 KB
MOST_HEADERS = 256

SERVER_FAULT = 500
"""From this status on, a reply spoils its connection. A balancer leads a new one to any replica, where the
kept one would lead back to the broken one. A 429 does not: a limit is the same over every connection."""

IDLE_TOO_LONG = 408  # sent without being asked (RFC 9110, 15.5.9): the reply to the call itself may follow

# Below the idle timeouts of common NAT gateways and load balancers (AWS: 350 s, Azure: 240 s).
TCP_IDLE_S = 30
PROBE_EVERY_S = 10
SILENT_S = 60

MOST_AGE_S = 60.0
"""A connection older than about this serves no further call. A balancer spreads connections, not calls: one
that lives on keeps its replica, and those that an autoscaler adds get nothing. Autoscalers take a minute or
more to add one; a TLS handshake costs a few ms."""

AGE_VARIES = 0.25
"""The share by which that age varies, so that connections of one burst are not all replaced at once."""

KEEP_MARGIN_S = 1.0  # a request in transit must arrive before the server closes

_ADDRESS = tuple[Any, ...]

_TLS_ERRORS = (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)


@dataclass(slots=True)
class Line:
    """One connection. ``end``: from when on it serves no further call, by `time.monotonic`. ``body``: of the
    reply that it receives, or received last.
    """

    protocol: ResponseHandler
    end: float
    body: aiohttp.StreamReader | None = None

    @property
    def sound(self) -> bool:
        """Whether a further call may use it: it is young, not spoilt, and its server has sent no bytes that
        nobody asked for. They would be read as the next call's reply.
        """
        return monotonic() < self.end and not self.protocol.should_close

    def ended(self, lost: asyncio.Future[None]) -> None:
        """End the body of a lost connection: aiohttp closes one at a malformed chunk without telling the
        reader of the body.
        """
        lost_by = None if lost.cancelled() else lost.exception()
        body, self.body = self.body, None
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(broken_off(self.protocol.exception() or lost_by))


@dataclass(slots=True)
class Outgoing:
    """One request on its way to a connection. ``leave``: see `Transport.send`."""

    leave: Callable[[], object] | None
    line: Line | None = None

    def receive(self, body: aiohttp.StreamReader) -> None:
        """Note that the reply's headers have arrived, and that its body follows."""
        if self.line is not None:
            self.line.body = body

    def spoil(self) -> None:
        """Let no further call use the connection. One that is using it by now is not disturbed."""
        if self.line is not None:
            self.line.protocol.force_close()


outgoing: ContextVar[Outgoing | None] = ContextVar("outgoing", default=None)
"""The request that the current task sends: aiohttp passes nothing through to its connector."""


class Connector(aiohttp.TCPConnector):
    """Asks each request whether it may leave, and closes idle connections before the server does.

    It also closes a kept connection before its next call if that is not `Line.sound`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lines: dict[ResponseHandler, Line] = {}

    async def connect(self, *args: Any, **options: Any) -> aiohttp.connector.Connection:
        """A connection for a request that may still leave; otherwise it is kept for the next."""
        connection = await super().connect(*args, **options)
        while (line := self._line_of(connection.protocol)) is not None and not line.sound:
            connection.close()
            connection = await super().connect(*args, **options)
        if (request := outgoing.get()) is not None:
            request.line = line
            if request.leave is not None:
                try:
                    request.leave()
                except BaseException:
                    connection.release()
                    raise
        return connection

    def keep_at_most(self, seconds: float) -> None:
        """Keep idle connections for less than so many seconds; perhaps for none."""
        self._keepalive_timeout = min(self._keepalive_timeout or 0.0, max(seconds - KEEP_MARGIN_S, 0.0))

    def _line_of(self, protocol: ResponseHandler | None) -> Line | None:
        """The line of a connection, new or kept; ``None`` if the connection is lost."""
        if protocol is None:
            return None
        line = self._lines.get(protocol)
        if line is None and (lost := protocol.closed) is not None:
            age = MOST_AGE_S * uniform(1 - AGE_VARIES, 1 + AGE_VARIES)
            line = self._lines[protocol] = Line(protocol, monotonic() + age)
            lost.add_done_callback(line.ended)
            lost.add_done_callback(lambda _: self._lines.pop(protocol, None))
        return line


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
        if (seconds := _keep_alive_s(response.headers.get("keep-alive", ""))) is not None:
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


def _keep_alive_s(keep_alive: str) -> float | None:
    """Seconds that a server keeps an idle connection, of ``Keep-Alive: timeout=5, max=100``."""
    for part in keep_alive.split(","):
        name, _, value = part.strip().partition("=")
        if name.lower() == "timeout":
            with suppress(ValueError):
                return plain_number(value)
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
