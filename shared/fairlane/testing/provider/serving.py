"""Ways to run the simulated provider: in a thread beside a test, or as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fairlane.clock import Clock
from fairlane.testing.provider.config import SimulatorConfig
from fairlane.testing.provider.dialect import write_json
from fairlane.testing.provider.server import SimulatedProvider
from fairlane.testing.provider.stats import StatsReport

T = TypeVar("T")


class ServedProvider:
    """A simulated provider that another thread serves; every method may be called from any thread."""

    def __init__(self, provider: SimulatedProvider, loop: asyncio.AbstractEventLoop) -> None:
        self._provider, self._loop = provider, loop
        self.url = provider.url
        self.base_url = provider.base_url

    def stats(self) -> StatsReport:
        """What ``GET /stats`` tells."""
        return self._call(self._provider.stats)

    def reset(self) -> None:
        """Zero counts, full buckets."""
        self._call(self._provider.reset)

    def change_model(self, name: str, **changes: Any) -> None:
        """Change fields of one model while it serves. Raises ``KeyError`` or ``ValidationError``."""
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
    """Serve ``config`` from a thread of its own until the block ends; the port is free unless stated."""
    started: Future[tuple[ServedProvider, Callable[[], None]]] = Future()
    thread = threading.Thread(
        target=lambda: asyncio.run(
            _serve_until_told(SimulatedProvider(config, clock=clock), host, port, started)
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


async def _serve_until_told(
    provider: SimulatedProvider,
    host: str,
    port: int,
    started: Future[tuple[ServedProvider, Callable[[], None]]],
) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    try:
        await provider.start(host, port)
    except OSError as error:
        started.set_exception(error)
        return
    started.set_result((ServedProvider(provider, loop), lambda: _tell(loop, told)))
    await told.wait()
    await provider.stop()


def _tell(loop: asyncio.AbstractEventLoop, told: asyncio.Event) -> None:
    loop.call_soon_threadsafe(told.set)


def run_simulator(
    config: SimulatorConfig,
    host: str,
    port: int,
    ready_file: Path | None,
    announce: Callable[[SimulatedProvider], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; the main thread's to call.

    Once it answers, ``ready_file`` holds JSON with ``base_url`` (with ``/v1``, as a connection takes it),
    ``url`` (the root, for ``/stats``) and ``pid``; it is removed at the end. ``port`` 0 means a free one.
    ``announce`` is called once, right after that. Raises ``OSError`` where it cannot listen.
    """
    asyncio.run(_serve_until_signalled(SimulatedProvider(config), host, port, ready_file, announce))


async def _serve_until_signalled(
    provider: SimulatedProvider,
    host: str,
    port: int,
    ready_file: Path | None,
    announce: Callable[[SimulatedProvider], None] | None,
) -> None:
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled.set)
    await provider.start(host, port)
    try:
        with _announced(provider, ready_file):
            if announce is not None:
                announce(provider)
            await signalled.wait()
    finally:
        await provider.stop()


@contextmanager
def _announced(provider: SimulatedProvider, ready_file: Path | None) -> Iterator[None]:
    """The ready file is there while the block runs; it appears whole, so that nobody reads half of it."""
    if ready_file is None:
        yield
        return
    part = ready_file.with_name(f"{ready_file.name}.part")
    part.write_bytes(write_json({"base_url": provider.base_url, "url": provider.url, "pid": os.getpid()}))
    part.replace(ready_file)
    try:
        yield
    finally:
        ready_file.unlink(missing_ok=True)
