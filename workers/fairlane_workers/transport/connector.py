"""Hands out connections that are young, and that no failed reply has spoiled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from random import uniform
from time import monotonic
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from fairlane_workers.transport.faults import broken_off

MOST_AGE_S = 60.0
"""A connection older than about this serves no further call. A balancer spreads connections, not calls: one
that lives on keeps its replica, and those that an autoscaler adds get nothing. Autoscalers take a minute or
more to add one; a TLS handshake costs a few ms."""

AGE_VARIES = 0.25
"""The share by which that age varies, so that connections of one burst are not all replaced at once."""

KEEP_MARGIN_S = 1.0  # a request on its way must arrive before the server closes


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
        """End the body that nobody ends: aiohttp closes a connection at a malformed chunk, and says nothing
        to whoever reads the body.
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
