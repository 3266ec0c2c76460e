"""One call on an HTTP/2 connection: a request out, a response in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Protocol

import httpx

from fairlane_workers.transport.faults import TransportError

BURST_BYTES = 256 * 1024  # of a request, before other calls get their turn


class Link(Protocol):
    """What a stream asks of its connection."""

    def send_body(self, stream: Stream, data: memoryview, *, last: bool) -> int:
        """Send as much of ``data`` as the server takes now; returns how many bytes that was."""
        ...

    async def written(self) -> None:
        """Return when more may be sent."""
        ...

    def acknowledge(self, stream: Stream, size: int) -> None:
        """``size`` bytes were taken by the reader."""
        ...

    def leave(self, stream: Stream, unread: int) -> None:
        """Nobody uses the stream any more; ``unread`` bytes were not taken."""
        ...


class Stream:
    """A `Body`, and before that the request. One task uses it; the connection fills it.

    ``sent`` and ``ended`` tell whether the request and the response are through.
    """

    def __init__(self, connection: Link, number: int, *, sent: bool) -> None:
        self.number, self.sent, self.ended = number, sent, False
        self._connection = connection
        self._head: tuple[int, httpx.Headers] | None = None
        self._pieces: deque[tuple[bytes, int]] = deque()
        self._fault: TransportError | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def upload(self, content: bytes) -> None:
        """Send the request's body as fast as the server takes it; the rest stays if it answers early."""
        rest = memoryview(content)
        while not self.sent and self._head is None:
            if self._fault is not None:
                raise self._fault
            taken = self._connection.send_body(self, rest[:BURST_BYTES], last=len(rest) <= BURST_BYTES)
            rest = rest[taken:]
            if not self.sent:
                await (self._connection.written() if taken else self._changed())

    async def head(self) -> tuple[int, httpx.Headers]:
        """Status and headers, when they are there."""
        while self._head is None:
            if self._fault is not None:
                raise self._fault
            await self._changed()
        return self._head

    async def pieces(self) -> AsyncIterator[bytes]:
        """See `Body.pieces`. What the reader has not taken holds the server back."""
        while True:
            while self._pieces:
                data, size = self._pieces.popleft()
                self._connection.acknowledge(self, size)
                yield data
            if self._fault is not None:
                raise self._fault
            if self.ended:
                return
            await self._changed()

    async def aclose(self) -> None:
        """See `Body.aclose`. A call that is not through is cancelled at the server; others go on."""
        self._connection.leave(self, sum(size for _, size in self._pieces))
        self._pieces.clear()

    # What the connection tells

    def begin(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """The response's header list; h2 has seen to it that it holds one status."""
        received: list[tuple[bytes, bytes]] = []
        status = b""
        for name, value in fields:
            if name == b":status":
                status = value
            else:
                received.append((name, value))
        if not status.isdigit():
            self.fail(TransportError("the server broke HTTP/2: its status is no number"))
            return
        self._head = (int(status), httpx.Headers(received))
        self.wake()

    def add(self, data: bytes, size: int) -> None:
        """Data that counts for ``size`` in the window, padding included."""
        self._pieces.append((data, size))
        self.wake()

    def end(self) -> None:
        self.ended = True
        self.wake()

    def fail(self, fault: TransportError) -> None:
        """Nothing more will come. Without effect on a response that is through."""
        if not self.ended and self._fault is None:
            self._fault = fault
            self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _changed(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter
