"""Runs the simulated provider in a thread beside a test, or as a process."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fairlane.core.clock import Clock
from fairlane.export.files import whole_bytes
from fairlane.lab.simulator.config import SimulatorConfig
from fairlane.lab.simulator.http.server import SimulatedProvider
from fairlane.lab.simulator.model.stats import StatsReport
from fairlane.lab.simulator.wire.dialect import write_json

T = TypeVar("T")


class ServedProvider:
    """A simulated provider in another thread; each method may be called from any thread."""

    def __init__(self, provider: SimulatedProvider, loop: asyncio.AbstractEventLoop) -> None:
        self._provider, self._loop = provider, loop
        self.url = provider.url
        self.base_url = provider.base_url

    def stats(self) -> StatsReport:
        """The answer of ``GET /stats``."""
        return self._call(self._provider.stats)

    def reset(self) -> None:
        """See `SimulatedProvider.reset`."""
        self._call(self._provider.reset)

    def change_model(self, name: str, **changes: Any) -> None:
        """Change fields of a model in service. Raises ``KeyError`` or ``ValidationError``."""
        self._call(lambda: self._provider.change_model(name, **changes))

    def change_key(self, key: str | None) -> None:
        """See `SimulatedProvider.change_key`."""
        self._call(lambda: self._provider.change_key(key))

    def _call(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()


@contextmanager
def serve_in_thread(
    config: SimulatorConfig, *, clock: Clock | None = None, host: str = "127.0.0.1", port: int = 0
) -> Iterator[ServedProvider]:
    """Serve ``config`` from a background thread until the block ends; ``port`` 0: any free port."""
    started: Future[tuple[ServedProvider, Callable[[], None]]] = Future()
    thread = threading.Thread(
        target=lambda: asyncio.run(
            _serve_until_stopped(SimulatedProvider(config, clock=clock), host, port, started)
        ),
        name="simulated-provider",
        daemon=True,
    )
    thread.start()
    served, stop = started.result()
    try:
        yield served
    finally:
        stop()
        thread.join()


async def _serve_until_stopped(
    provider: SimulatedProvider,
    host: str,
    port: int,
    started: Future[tuple[ServedProvider, Callable[[], None]]],
) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    try:
        await provider.start(host, port)
    except OSError as error:
        started.set_exception(error)
        return

    def stop() -> None:
        loop.call_soon_threadsafe(stopping.set)

    started.set_result((ServedProvider(provider, loop), stop))
    await stopping.wait()
    await provider.stop()


def run_simulator(config: SimulatorConfig, host: str, port: int, ready_file: Path | None) -> None:
    """Serve until SIGINT or SIGTERM. Only the main thread may call it.

    ``port`` 0: any free port. As soon as the server answers, it writes ``ready_file``: JSON with
    ``base_url`` (for a connection), ``url`` (the root, for ``/stats``) and ``pid``. It removes the
    file at the end. Raises ``OSError`` if it cannot listen.
    """
    asyncio.run(_serve_until_signalled(SimulatedProvider(config), host, port, ready_file))


async def _serve_until_signalled(
    provider: SimulatedProvider, host: str, port: int, ready_file: Path | None
) -> None:
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled.set)
    await provider.start(host, port)
    try:
        with _announced(provider, ready_file):
            await signalled.wait()
    finally:
        await provider.stop()


@contextmanager
def _announced(provider: SimulatedProvider, ready_file: Path | None) -> Iterator[None]:
    """Keep the ready file while the block runs."""
    if ready_file is None:
        yield
        return
    with whole_bytes(ready_file) as file:
        file.write(write_json({"base_url": provider.base_url, "url": provider.url, "pid": os.getpid()}))
    try:
        yield
    finally:
        ready_file.unlink(missing_ok=True)
