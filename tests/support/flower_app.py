"""Flower with Fairlane's pages, served from this process: handlers and options, no events or workers."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
from flower import urls
from flower.app import Flower
from flower.options import options
from flower.views.tasks import TASK_COLUMNS
from redis import Redis
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.netutil import bind_sockets

from fairlane.broker.app import make_app
from fairlane.client.deployment import Deployment
from fairlane.config.settings import Settings
from fairlane.embedded.ports import LOOPBACK
from fairlane.flower.installing import install
from fairlane.flower.readings.readers import Readers

LOGIN = ("me", "a-password-of-tests")


@dataclass
class Served:
    """A running Flower. ``tasks`` are those it has events of, by id; ``base`` includes its prefix, if any."""

    base: str
    readers: Readers
    tasks: dict[str, Any] = field(default_factory=dict)

    def client(self, *, login: bool = False, **more: Any) -> httpx.Client:
        """Get a page as a browser does, with or without the login."""
        return httpx.Client(base_url=self.base, auth=LOGIN if login else None, **more)


@contextmanager
def served(
    redis: Redis,
    *,
    login: bool = False,
    show_text: bool = False,
    settings: Settings | None = None,
    **flower_options: Any,
) -> Iterator[Served]:
    """Install the pages and serve Flower during the block; then restore Flower's module.

    ``flower_options`` are options of Flower itself.
    """
    chosen = settings or Settings.model_validate({"redis": {"deployment": "test"}})
    before = (list(urls.handlers), dict(urls.settings), dict(TASK_COLUMNS))
    kept = copy.copy(options._options["format-task"]), copy.copy(options._options["tasks-columns"])
    readers = install(Deployment(chosen, redis), show_text=show_text)
    basic_auth = {"basic_auth": [":".join(LOGIN)]} if login else {}
    all_options = {**options.as_dict(), **basic_auth, **flower_options}
    app = make_app(chosen.model_copy(update={"broker_url": "memory://"}), "flower_of_tests")
    made = Served("", readers)
    try:
        with _running(SimpleNamespace(**all_options), app, made):
            yield made
    finally:
        urls.handlers[:] = before[0]
        urls.settings.clear()
        urls.settings.update(before[1])
        TASK_COLUMNS.clear()
        TASK_COLUMNS.update(before[2])
        options._options["format-task"], options._options["tasks-columns"] = kept
        readers.readings.close()


@contextmanager
def _running(shown: SimpleNamespace, app: Any, made: Served) -> Iterator[None]:
    ready, loops = threading.Event(), []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        heard = SimpleNamespace(state=SimpleNamespace(tasks=made.tasks))
        flower = Flower(capp=app, options=shown, events=heard, io_loop=IOLoop.current(), **urls.settings)
        server, sockets = HTTPServer(flower), bind_sockets(0, LOOPBACK)
        server.add_sockets(sockets)
        prefix = f"/{shown.url_prefix.strip('/')}" if shown.url_prefix else ""
        made.base = f"http://{LOOPBACK}:{sockets[0].getsockname()[1]}{prefix}"
        over = asyncio.Event()
        loops.append(over)
        ready.set()
        await over.wait()
        server.stop()
        await server.close_all_connections()
        flower.executor.shutdown()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(10.0)
    try:
        yield
    finally:
        loops[0].call_soon_threadsafe(loops[1].set)
        thread.join(10.0)
