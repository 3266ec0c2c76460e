"""An HTTP/2 server on loopback whose every answer, refusal and goodbye a test decides."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import cast

from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset, WindowUpdated
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings


@dataclass
class Call:
    """One request, read to its end unless ``early``; the handler answers it as it likes."""

    connection: Connection
    stream: int
    headers: dict[str, str]
    body: bytearray = field(default_factory=bytearray)

    def begin(self, status: int = 200, **headers: str) -> None:
        fields = [
            (":status", str(status)),
            *((name.replace("_", "-"), text) for name, text in headers.items()),
        ]
        self.connection.h2.send_headers(self.stream, fields)
        self.connection.flush()

    async def write(self, data: bytes, *, end: bool = False) -> None:
        """Send a piece of the body, as the client's window allows."""
        h2 = self.connection.h2
        while data:
            size = min(h2.local_flow_control_window(self.stream), h2.max_outbound_frame_size, len(data))
            if size <= 0:
                await self.connection.window_opened()
                continue
            h2.send_data(self.stream, data[:size])
            self.connection.flush()
            data = data[size:]
        if end:
            h2.send_data(self.stream, b"", end_stream=True)
            self.connection.flush()

    async def answer(self, body: bytes = b"{}", status: int = 200, *, content_type: str = "") -> None:
        self.begin(status, **({"content_type": content_type} if content_type else {}))
        await self.write(body, end=True)

    def cancel(self, code: ErrorCodes = ErrorCodes.INTERNAL_ERROR) -> None:
        self.connection.h2.reset_stream(self.stream, code)
        self.connection.flush()


Handler = Callable[[Call], Awaitable[None]]


class Connection(asyncio.Protocol):
    """A client's connection."""

    def __init__(self, server: Http2Server) -> None:
        self.server = server
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._calls: dict[int, Call] = {}
        self._opened = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.server.connections.append(self)
        allowed = {SettingCodes.MAX_CONCURRENT_STREAMS: self.server.streams}
        self.h2.local_settings = Settings(client=False, initial_values=allowed)
        self.h2.initiate_connection()
        if self.server.unwilling:
            self.h2.close_connection(last_stream_id=0)
        self.flush()

    def data_received(self, data: bytes) -> None:
        with suppress(H2Error):  # the client left in the middle
            for event in self.h2.receive_data(data):
                match event:
                    case RequestReceived():
                        headers = cast("list[tuple[str, str]]", event.headers)
                        self._calls[event.stream_id] = call = Call(self, event.stream_id, dict(headers))
                        if self.server.early:
                            self.server.handle(call)
                    case DataReceived():
                        self._calls[event.stream_id].body += event.data
                        if not self.server.early:
                            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    case StreamEnded() if not self.server.early:
                        self.server.handle(self._calls[event.stream_id])
                    case StreamReset():
                        self.server.cancelled.append(event.stream_id)
                        self.server.hung_up.set()
                    case WindowUpdated():
                        self._opened.set()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._opened.set()
        self.server.closed.set()

    async def window_opened(self) -> None:
        self._opened.clear()
        await self._opened.wait()

    def goodbye(self, last_stream: int, code: ErrorCodes = ErrorCodes.NO_ERROR) -> None:
        """GOAWAY; what is in flight can be answered all the same."""
        self.h2.close_connection(code, last_stream_id=last_stream)
        self.h2.state_machine.state = ConnectionState.SERVER_OPEN
        self.flush()

    def raw(self, data: bytes) -> None:
        """Bytes that h2 would not send."""
        self.transport.write(data)

    def flush(self) -> None:
        if data := self.h2.data_to_send():
            self.transport.write(data)


@dataclass
class Http2Server:
    """``calls`` are the requests in the order they came; ``cancelled`` the streams that clients reset."""

    handler: Handler
    streams: int
    early: bool
    unwilling: bool
    url: str = ""
    connections: list[Connection] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)  # a client cancelled a call
    closed: asyncio.Event = field(default_factory=asyncio.Event)  # a client's connection ended
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def handle(self, call: Call) -> None:
        self.calls.append(call)
        self.arrived.set()
        task = asyncio.ensure_future(self._answer(call))
        self.tasks.add(task)

    async def _answer(self, call: Call) -> None:
        with suppress(H2Error):  # the client left in the middle
            await self.handler(call)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        for connection in self.connections:
            connection.transport.abort()
        results = await asyncio.gather(*self.tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result


@asynccontextmanager
async def http2_server(
    handler: Handler, tls: ssl.SSLContext, *, streams: int = 100, early: bool = False, unwilling: bool = False
) -> AsyncIterator[Http2Server]:
    """Run one as ``localhost``, within the running loop. ``early``: it answers before it read the body;
    ``unwilling``: it says goodbye before any call.
    """
    scripted = Http2Server(handler, streams, early, unwilling)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(scripted), "127.0.0.1", 0, ssl=tls
    )
    scripted.url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
    try:
        yield scripted
    finally:
        server.close()
        await scripted.stop()
