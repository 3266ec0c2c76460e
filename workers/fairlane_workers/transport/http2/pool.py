"""HTTP/2 connections to a server: one carries as many calls as the server allows, then another opens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import httpx

from fairlane_workers.transport.faults import Http1OnlyError, TransportError
from fairlane_workers.transport.http2.connection import Http2Connection
from fairlane_workers.transport.reply import Reply

STREAMS = 100  # what a server is taken to allow until it tells: the least that RFC 9113, 6.5.2, recommends


@dataclass(slots=True)
class _Opening:
    """A connection on its way, and how many calls wait for it."""

    task: asyncio.Task[Http2Connection | None]
    waiting: int = 0


class Http2Pool:
    """The connections to one server, for one event loop.

    A call never waits for another to end: where all connections are full, one more is opened. Their number
    is not bounded here, since the worker's slots bound the calls.
    """

    def __init__(self, dial: Callable[[], Awaitable[Http2Connection | None]]) -> None:
        """``dial`` opens a connection; ``None`` says that the server chose HTTP/1.1."""
        self._dial = dial
        self._connections: list[Http2Connection] = []
        self._openings: list[_Opening] = []
        self._streams = STREAMS
        self._http1_only = False

    async def send(self, method: str, url: httpx.URL, headers: httpx.Headers, content: bytes) -> Reply:
        """See `Transport.send`. Raises `Http1OnlyError` where the server does not speak HTTP/2."""
        connection = await self._with_room()
        stream = connection.request(method, url, headers, content)
        try:
            await stream.upload(content)
            status, received = await stream.head()
        except BaseException:
            await stream.aclose()
            raise
        return Reply(status, received, stream)

    async def aclose(self) -> None:
        """Close all connections, those in use and those on their way too."""
        for opening in self._openings:
            opening.task.cancel()
        await asyncio.gather(*(opening.task for opening in self._openings), return_exceptions=True)
        await asyncio.gather(*(connection.aclose() for connection in self._connections))

    async def _with_room(self) -> Http2Connection:
        while not self._http1_only:
            self._connections = [connection for connection in self._connections if connection.usable]
            for connection in self._connections:
                if connection.room > 0:
                    return connection
            await self._opened()
        raise Http1OnlyError

    async def _opened(self) -> None:
        """Wait for a connection: one on its way that has room, as far as is known, or else a new one."""
        opening = next((some for some in self._openings if some.waiting < self._streams), None)
        if opening is None:
            opening = _Opening(asyncio.create_task(self._open()))
            self._openings.append(opening)
            opening.task.add_done_callback(partial(self._conclude, opening))
        opening.waiting += 1
        try:
            connection = await asyncio.shield(opening.task)
        except asyncio.CancelledError:
            opening.waiting -= 1
            if not opening.task.cancelled():
                raise
            raise TransportError("the transport is closed") from None
        if connection is not None and not connection.usable:
            raise TransportError("the server closed the connection before it took the call")

    async def _open(self) -> Http2Connection | None:
        connection = await self._dial()
        if connection is None:
            self._http1_only = True
            return None
        if connection.room < 1:
            await connection.aclose()
            raise TransportError("the server takes no calls: it allows no streams")
        self._streams = connection.room
        self._connections.append(connection)
        return connection

    def _conclude(self, opening: _Opening, task: asyncio.Task[Http2Connection | None]) -> None:
        self._openings.remove(opening)
        if not task.cancelled():
            task.exception()  # whoever waited may have left
