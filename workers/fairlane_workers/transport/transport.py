"""Sends requests to one provider over pooled connections: through its proxy, with its certificates."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx

from fairlane_workers.transport.departure import PermitExpiredError
from fairlane_workers.transport.faults import TransportError, named
from fairlane_workers.transport.pool import ConnectionPool
from fairlane_workers.transport.proxy import parse_proxy
from fairlane_workers.transport.reply import Reply
from fairlane_workers.transport.tls import Certificates, tls_context


class Transport:
    """The connections to one provider, for one event loop; opened when first used.

    A POST is sent at most once, also if its connection breaks. Certificates are verified, see `tls_context`.
    Proxies and ``.netrc`` of the environment are ignored, redirects are not followed, cookies are not kept.
    The transport bounds only the time to connect; callers bound the call. A cancelled call hangs up.
    """

    def __init__(
        self,
        connect_timeout_s: float = 10.0,
        *,
        proxy: str | None = None,
        ca_file: Path | None = None,
        client_certificate: Path | None = None,
    ) -> None:
        """``proxy`` is a URL, see `parse_proxy`; for the files see `tls_context`.

        Raises `UnusableSettingError`.
        """
        self._connect_timeout_s = connect_timeout_s
        self._proxy = None if proxy is None else parse_proxy(proxy)
        # Files are tried now, not at the first call. Without any there is nothing to try, and it takes 20 ms.
        self._certificates = (
            Certificates(ca_file, client_certificate) if ca_file or client_certificate else None
        )
        self._pool: ConnectionPool | None = None
        self._closed = False

    async def send(
        self,
        method: str,
        url: httpx.URL,
        headers: httpx.Headers,
        content: bytes = b"",
        leave: Callable[[], object] | None = None,
    ) -> Reply:
        """Send one request; returns once the response's headers arrive. Raises `TransportError`.

        ``leave`` is called when the request has its connection, right before the first byte is sent. If it
        raises `PermitExpiredError`, nothing is sent, and that passes through.
        """
        await _let_sockets_be_read()
        try:
            return await self._opened().send(method, url, headers, content, leave)
        except PermitExpiredError:
            raise
        except Exception as error:
            raise named(error) from error

    def prepare(self) -> None:
        """Make the pool and its TLS settings now, on the running loop; no connection is opened."""
        self._opened()

    async def aclose(self) -> None:
        """Close all connections, those in use too. Idempotent."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    def _opened(self) -> ConnectionPool:
        if self._closed:
            raise TransportError("the transport is closed")
        if self._certificates is not None:
            self._certificates.renew()
        if self._pool is None:
            tls = tls_context() if self._certificates is None else self._certificates.context
            self._pool = ConnectionPool(self._connect_timeout_s, tls, self._proxy)
        return self._pool


async def _let_sockets_be_read() -> None:
    """Let the loop read its sockets, so that the pool reuses no connection that its server has closed.

    A task that was ready runs before the loop handles its sockets' events, so two turns are needed.
    """
    loop = asyncio.get_running_loop()
    for _ in range(2):
        turn = loop.create_future()
        loop.call_soon(_end_turn, turn)
        await turn


def _end_turn(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
