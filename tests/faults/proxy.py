"""A TCP proxy that can be cut in either direction, slowed down, reset, or made to refuse connections."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")
BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards connections to ``backend``, a port of this machine. Used from the proxies' loop alone."""

    def __init__(self, backend: int) -> None:
        self.backend, self.port = backend, 0
        self.delay_s, self.refuses = 0.0, False
        self._forth, self._back = asyncio.Event(), asyncio.Event()
        self._forth.set()
        self._back.set()
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        """Accept connections on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Accept nothing more, and return once every connection is closed."""
        self._server.close()
        self.mend()
        self.reset()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def cut(self, *, forth: bool, back: bool) -> None:
        """Hold the bytes of these directions until `mend`."""
        for gate, closed in ((self._forth, forth), (self._back, back)):
            gate.clear() if closed else gate.set()

    def mend(self) -> None:
        """Let everything pass as before."""
        self.delay_s, self.refuses = 0.0, False
        self._forth.set()
        self._back.set()

    def reset(self) -> None:
        """Reset every connection at once."""
        for writer in list(self._open):
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        if (task := asyncio.current_task()) is not None:
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        try:
            if not self.refuses:
                with suppress(OSError):
                    await self._connect(reader, writer)
        finally:
            self._open.discard(writer)
            writer.close()  # what was received is still sent, unless `reset` has aborted it

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.backend)
        self._open.add(far_writer)
        forth = asyncio.ensure_future(self._pump(reader, far_writer, self._forth))
        back = asyncio.ensure_future(self._pump(far_reader, writer, self._back))
        try:
            await asyncio.wait({forth, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open.discard(far_writer)
            for pump in (forth, back):
                pump.cancel()
            await asyncio.gather(forth, back, return_exceptions=True)
            far_writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(BYTES):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)  # noqa: TID251 - it simulates a slow network
                await gate.wait()
                writer.write(data)
                await writer.drain()


class Proxies:
    """All proxies of a deployment, in one thread. Each method may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._proxies: dict[str, Proxy] = {}

    def add(self, name: str, backend: int) -> int:
        """Make a proxy to a port of this machine; its own port."""

        async def make() -> int:
            proxy = self._proxies[name] = Proxy(backend)
            await proxy.listen()
            return proxy.port

        return asyncio.run_coroutine_threadsafe(make(), self._loop).result()

    def remove(self, name: str) -> None:
        """Close a proxy and its connections."""
        closing = self._proxies.pop(name).close()
        asyncio.run_coroutine_threadsafe(closing, self._loop).result()

    async def close(self) -> None:
        """Close all of them, from their loop."""
        for proxy in self._proxies.values():
            await proxy.close()

    def lead_to(self, backend: int, names: list[str]) -> None:
        """New connections of these proxies go to another port."""
        self.each(names, lambda proxy: setattr(proxy, "backend", backend))

    def each(self, names: list[str], act: Callable[[Proxy], object]) -> None:
        """Do something with these proxies, in their loop."""

        async def call() -> None:
            for name in names:
                act(self._proxies[name])

        asyncio.run_coroutine_threadsafe(call(), self._loop).result()


@contextmanager
def run_proxies() -> Iterator[Proxies]:
    """A thread for proxies; it ends with the block, and every connection with it."""
    started: Future[tuple[Proxies, Callable[[], None]]] = Future()

    async def serve() -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        proxies = Proxies(loop)
        started.set_result((proxies, lambda: loop.call_soon_threadsafe(stopping.set)))
        await stopping.wait()
        await proxies.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="proxies", daemon=True)
    thread.start()
    proxies, stop = started.result()
    try:
        yield proxies
    finally:
        stop()
        thread.join()
