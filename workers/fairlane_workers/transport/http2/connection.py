"""One HTTP/2 connection: h2 knows the protocol, this moves its bytes and tells each stream its part."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

import httpx
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error, NoSuchStreamError, ProtocolError

from fairlane_workers.transport.faults import TransportError, named
from fairlane_workers.transport.http2.protocol import FIRST_WINDOW_BYTES, WINDOW_BYTES, client, request_fields
from fairlane_workers.transport.http2.stream import Stream

KEEPALIVE_S = 30.0
GOODBYE_S = 1.0
STREAMS_MOST = 1000  # on one connection, whatever the server allows: they share one TCP window
LAST_STREAM = 2**31 - 1
CONTROL_BYTES = 1 << 20  # answers owed to a server that asks and does not read


class Http2Connection(asyncio.Protocol):
    """Calls side by side to one server.

    ``spoken`` is done when the server's settings are there; it is false where the server chose HTTP/1.1, and
    then the connection is closed.
    """

    def __init__(self) -> None:
        self.spoken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._h2: H2Connection = client()
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, Stream] = {}
        self._fault: TransportError | None = None
        self._leaving = False
        self._flushing = False
        self._writable, self._lost = asyncio.Event(), asyncio.Event()
        self._writable.set()
        self._idle: asyncio.TimerHandle | None = None

    @property
    def usable(self) -> bool:
        """Whether it takes new calls."""
        is_open = self._transport is not None and not self._transport.is_closing()
        return is_open and self._fault is None and not self._leaving

    @property
    def room(self) -> int:
        """How many more calls the server takes beside those in flight."""
        return min(self._h2.remote_settings.max_concurrent_streams, STREAMS_MOST) - len(self._streams)

    # What a stream and the pool ask for

    def request(self, method: str, url: httpx.URL, headers: httpx.Headers, content: bytes) -> Stream:
        """Send a request's headers; ``content`` is the stream's to upload. Raises where h2 refuses them."""
        number = self._h2.get_next_available_stream_id()
        self._h2.send_headers(
            number, request_fields(method, url, headers, len(content)), end_stream=not content
        )
        if self._idle is not None:
            self._idle.cancel()
        self._leaving = self._leaving or number >= LAST_STREAM
        stream = self._streams[number] = Stream(self, number, sent=not content)
        self._flush_soon()
        return stream

    def send_body(self, stream: Stream, data: memoryview, *, last: bool) -> int:
        """Send as much as the server allows, and say how much; ``last``: the request ends with this data."""
        sent = 0
        try:
            while sent < len(data):
                window = self._h2.local_flow_control_window(stream.number)
                if window <= 0:
                    break
                part = data[sent : sent + min(window, self._h2.max_outbound_frame_size)]
                sent += len(part)
                stream.sent = last and sent == len(data)
                self._h2.send_data(stream.number, bytes(part), end_stream=stream.sent)
        except H2Error as error:
            raise named(error) from error
        self._flush_soon()
        return sent

    async def written(self) -> None:
        """Wait until the network has taken most of what was to be sent."""
        self._flush()
        await self._writable.wait()

    def acknowledge(self, stream: Stream, size: int) -> None:
        """So much was read: the server may send as much again."""
        if size and self._fault is None:
            self._h2.acknowledge_received_data(size, stream.number)
            self._flush_soon()

    def leave(self, stream: Stream, unread: int) -> None:
        """A stream's user is gone: it is cancelled at the server unless it is through. Idempotent."""
        if self._streams.pop(stream.number, None) is None or self._fault is not None:
            return
        if not (stream.sent and stream.ended):
            with suppress(NoSuchStreamError):  # the server has cancelled it
                self._h2.reset_stream(stream.number, ErrorCodes.CANCEL)
        self.acknowledge(stream, unread)
        self._flush_soon()
        if not self._streams:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(0.0 if self._leaving else KEEPALIVE_S, self._rest)

    def abort(self) -> None:
        """Break it off."""
        if self._transport is not None:
            self._transport.abort()

    async def aclose(self) -> None:
        """Say goodbye and close, whatever is in flight."""
        if self._transport is None:
            return
        self._end(TransportError("the transport is closed"))
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._lost.wait()
        except TimeoutError:  # the server does not take the goodbye
            self._transport.abort()
            await self._lost.wait()

    # What the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
            self.spoken.set_result(False)
            transport.close()
            return
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(WINDOW_BYTES - FIRST_WINDOW_BYTES)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._flush()  # a goodbye within the data makes h2 forget what it has not handed over
        try:
            events = self._h2.receive_data(data)
        except ProtocolError as error:
            self._end(TransportError(f"the server broke HTTP/2: {type(error).__name__}: {error}"))
            return
        for event in events:
            self._take(event)
        self._flush()
        if self._transport is not None and self._transport.get_write_buffer_size() > CONTROL_BYTES:
            self._end(TransportError("the server does not read what it asks for"))
            self.abort()

    def eof_received(self) -> None:
        self._end(TransportError("ServerDisconnectedError: Server disconnected"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(named(exc) if exc else TransportError("ServerDisconnectedError: Server disconnected"))
        self._writable.set()
        self._lost.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # Inside

    def _take(self, event: Event) -> None:
        match event:
            case ResponseReceived():
                if stream := self._streams.get(event.stream_id):
                    stream.begin(event.headers)
            case DataReceived():
                self._take_data(event)
            case StreamEnded():
                if stream := self._streams.get(event.stream_id):
                    stream.end()
            case StreamReset():
                if stream := self._streams.get(event.stream_id):
                    stream.fail(TransportError(f"the server cancelled the call: {_code(event.error_code)}"))
            case RemoteSettingsChanged():
                if not self.spoken.done():
                    self.spoken.set_result(True)
                self._wake_all()
            case WindowUpdated():
                if not event.stream_id:
                    self._wake_all()
                elif stream := self._streams.get(event.stream_id):
                    stream.wake()
            case ConnectionTerminated():
                self._take_goodbye(event)

    def _take_data(self, event: DataReceived) -> None:
        stream, size = self._streams.get(event.stream_id), event.flow_controlled_length
        if stream is not None and event.data:
            stream.add(event.data, size)
        elif size:
            self._h2.acknowledge_received_data(size, event.stream_id)

    def _take_goodbye(self, event: ConnectionTerminated) -> None:
        """GOAWAY: calls up to the last one that the server took go on, unless it tells of an error."""
        if event.error_code != ErrorCodes.NO_ERROR:
            self._end(TransportError(f"the server broke off the connection: {_code(event.error_code)}"))
            return
        self._leaving = True
        for stream in list(self._streams.values()):
            if stream.number > (event.last_stream_id or 0):
                stream.fail(
                    TransportError("the server closed the connection before it took the call (GOAWAY)")
                )
        self._rest()

    def _wake_all(self) -> None:
        for stream in self._streams.values():
            stream.wake()

    def _rest(self) -> None:
        """Close a connection that nobody uses."""
        if not self._streams:
            self._end(TransportError("the connection was idle"))

    def _end(self, fault: TransportError) -> None:
        """Nothing more goes over this connection. The first fault is the cause."""
        if self._fault is not None:
            return
        self._fault = fault
        if self._idle is not None:
            self._idle.cancel()
        if not self.spoken.done():
            self.spoken.set_exception(fault)
            self.spoken.exception()  # whoever waited may have left
        for stream in self._streams.values():
            stream.fail(fault)
        if self._transport is not None and not self._transport.is_closing():
            with suppress(ProtocolError):  # h2 has said goodbye already
                self._h2.close_connection()
            self._flush()
            self._transport.close()

    def _flush_soon(self) -> None:
        """Once a turn of the loop: what many calls send in one turn goes out together."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        transport = self._transport
        if transport is not None and not transport.is_closing() and (data := self._h2.data_to_send()):
            transport.write(data)


def _code(error_code: ErrorCodes | int | None) -> str:
    return error_code.name if isinstance(error_code, ErrorCodes) else f"error {error_code}"
