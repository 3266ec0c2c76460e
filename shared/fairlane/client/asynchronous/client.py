"""The client for an event loop: submits runs, finds them again, lists them, without blocking the loop."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any, Self, TypeVar, Unpack

from fairlane.client.asynchronous.calls import AsyncCallHandle, AsyncCallMap
from fairlane.client.asynchronous.rows import AsyncRowWriter
from fairlane.client.asynchronous.run import AsyncRun
from fairlane.client.asynchronous.threads import Threads, checkpoint, off_loop
from fairlane.client.calls import Arguments, CallOptions
from fairlane.client.client import Client, Dataset
from fairlane.client.deployment import Waiter
from fairlane.client.handles import Unsent, run_id_of
from fairlane.client.outputs import Run
from fairlane.client.submitting.options import Evaluator, SubmitOptions
from fairlane.client.submitting.row_writer import RowWriter
from fairlane.config.settings import Settings
from fairlane.core.clock import Clock
from fairlane.core.errors import ConfigurationError
from fairlane.datasets.references import Reference
from fairlane.store.connection.connect import RedisClient

THREADS = 8
"""Threads by default: each serves one request to Redis at a time, of a millisecond or so."""

T = TypeVar("T")


class AsyncClient(Unsent):
    """One team's access to a deployment, for asyncio: the methods of `Client` as coroutines.

    It runs the blocking client in at most ``threads`` threads; waiting takes none. It connects at the first
    call, or on ``async with``. Cancelling a task ends its request; a submission leaves no run behind then.
    Use it in one event loop.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        team: str | None = None,
        settings: Settings | None = None,
        threads: int = THREADS,
        pause: Callable[[float], Awaitable[None]] | None = None,
        redis: RedisClient | None = None,
        clock: Clock | None = None,
        waiter: Waiter | None = None,
    ) -> None:
        """``url``, ``team`` and ``settings`` are those of `Client`, which says what is wrong with them.

        ``pause``, which waits for some seconds, ``redis``, ``clock`` and ``waiter`` are for tests.
        """
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise ConfigurationError("threads", threads, "is no number of threads", "Give 1 or more.")
        self._connect = partial(
            Client,
            url,
            team=team,
            settings=settings,
            checkpoint=checkpoint,
            redis=redis,
            clock=clock,
            waiter=waiter,
        )
        self._threads = Threads(threads, pause or asyncio.sleep)  # noqa: TID251 - the one place that waits; tests inject another
        self._client: Client | None = None
        self._opening = Lock()

    runs = off_loop(Client.runs)
    why = off_loop(Client.why)
    connections = off_loop(Client.connections)
    lanes = off_loop(Client.lanes)
    estimate = off_loop(Client.estimate)

    async def submit(
        self,
        dataset: Dataset | Reference,
        prompt: str | None = None,
        *,
        check: bool = True,
        **options: Unpack[SubmitOptions],
    ) -> AsyncRun:
        """Submit a run and return as soon as its rows are in Redis: see `Client.submit`.

        ``dataset`` is read in a thread. A cancelled submission leaves no run behind.
        """
        work = partial(Client.submit, dataset=dataset, prompt=prompt, check=check, **options)
        return await self._run_of(work)

    async def continue_run(
        self,
        run_id: str | Run | AsyncRun,
        dataset: Dataset | None = None,
        *,
        evaluators: Sequence[Evaluator] | None = None,
        retry_errors: bool = True,
        check: bool = True,
    ) -> AsyncRun:
        """Continue a finished run: see `Client.continue_run`. A cancelled call leaves no new run behind."""
        work = partial(
            Client.continue_run,
            run_id=run_id_of(run_id),
            dataset=dataset,
            evaluators=evaluators,
            retry_errors=retry_errors,
            check=check,
        )
        return await self._run_of(work)

    def open(
        self, prompt: str | None = None, *, check: bool = True, **options: Unpack[SubmitOptions]
    ) -> AsyncRowWriter:
        """Submit a run whose rows follow, in an ``async with``: see `Client.open`."""

        def cancel(writer: RowWriter) -> None:
            writer.run.cancel()

        work = partial(Client.open, prompt=prompt, check=check, **options)
        return AsyncRowWriter(partial(self.in_thread, work, cancel), self._threads)

    async def run(self, run_id: str | Run | AsyncRun) -> AsyncRun:
        """The run of that id or handle. Raises `RunNotFound`."""
        return AsyncRun(await self.in_thread(lambda client: client.run(run_id_of(run_id))), self._threads)

    async def call(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> AsyncCallHandle:
        """Call a function or a Celery task on a worker once its lane allows: see `Client.call`."""
        handle = await self.in_thread(
            lambda client: client.call(name, args, kwargs, **options), lambda handle: handle.cancel()
        )
        return AsyncCallHandle(handle, self._threads)

    async def map(
        self, name: str, calls: Sequence[Arguments], **options: Unpack[CallOptions]
    ) -> AsyncCallMap:
        """`call` for each ``(args, kwargs)``, as one run."""
        handle = await self.in_thread(
            lambda client: client.map(name, calls, **options), lambda handle: handle.cancel()
        )
        return AsyncCallMap(handle, self._threads)

    async def close(self) -> None:
        """Close the connections. Runs continue."""
        opened, self._client = self._client, None
        if opened is not None:
            await self._threads.call(opened.close)
        self._threads.close()

    async def __aenter__(self) -> Self:
        await self.in_thread(lambda client: client)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def in_thread(self, work: Callable[[Client], T], undo: Callable[[T], object] | None = None) -> T:
        """The result of ``work`` on the blocking client, done in a thread; see `Threads.call`."""
        return await self._threads.call(lambda: work(self._opened()), undo)

    async def _run_of(self, work: Callable[[Client], Any]) -> AsyncRun:
        return AsyncRun(await self.in_thread(work, lambda run: run.cancel()), self._threads)

    def _opened(self) -> Client:
        """The blocking client; the first thread that asks opens it."""
        with self._opening:
            if self._client is None:
                self._client = self._connect()
            return self._client
