"""Runs the blocking client's work in a bounded number of threads, and waits in the event loop."""

from __future__ import annotations

import asyncio
import functools
import os
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from threading import Event
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from fairlane.client.deployment import Steps, Wait
from fairlane.core.daemon_threads import DaemonThreads, Job
from fairlane.core.errors import FairlaneError

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
B = TypeVar("B", covariant=True)

_abandoned: ContextVar[Event | None] = ContextVar("abandoned", default=None)


class AbandonedError(BaseException):
    """Raised in a thread whose caller was cancelled. No ``except Exception`` catches it."""


def checkpoint() -> None:
    """Raise `AbandonedError` in a thread whose caller was cancelled."""
    event = _abandoned.get()
    if event is not None and event.is_set():
        raise AbandonedError


class Threads:
    """A bounded pool of threads, and the event loop's own way to pause."""

    def __init__(self, most: int, pause: Callable[[float], Awaitable[None]]) -> None:
        """``most`` threads are started as they are needed; ``pause`` waits for some seconds."""
        self._most, self.pause = most, pause
        self._closed = False
        self._open()

    async def call(self, work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """The result of ``work``, done in a thread.

        If the caller is cancelled, ``work`` ends at its next checkpoint; if it completes before, ``undo``
        reverts its result. The caller waits for that, unless it is cancelled again, as when a dataset blocks:
        then the thread reverts the result by itself.
        """
        given_up = Event()

        def abandonable() -> T:
            _abandoned.set(given_up)
            return work()

        found: T = await self._result(self._submit(abandonable), given_up, undo)
        return found

    async def stoppable(self, work: Callable[[Event], T]) -> T:
        """The result of ``work``, done in a thread. If the caller is cancelled, ``work`` sees its event set.
        No checkpoint abandons it: its effects count.
        """
        given_up = Event()
        found: T = await self._result(self._submit(partial(work, given_up)), given_up, None)
        return found

    async def finish(self, steps: Steps[T]) -> T:
        """Do all steps, each in a thread, and return their result. No thread is held during a pause."""
        try:
            while True:
                step = await self.call(partial(_advance, steps))
                if not isinstance(step, Wait):
                    return step.value
                await self.pause(step.seconds)
        finally:
            with suppress(ValueError):  # an abandoned thread is still at a step
                steps.close()

    def dedicated(self) -> Threads:
        """A thread beside the pool, for work that occupies it for long."""
        return Threads(1, self.pause)

    def close(self) -> None:
        """Let the threads end; does not wait for them."""
        self._closed = True
        self._pool.close()

    def _open(self) -> None:
        self._pool = DaemonThreads(self._most, "fairlane-client")
        self._process = os.getpid()
        weakref.finalize(self, _close_own, self._pool, self._process).atexit = False

    def _submit(self, work: Callable[[], Any]) -> Job:
        if self._closed:
            raise FairlaneError("this AsyncClient is closed: make another one, and use it until its `close`")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise FairlaneError(
                "AsyncClient runs on a loop of asyncio, and none runs here: use Client, under trio in "
                "trio.to_thread.run_sync"
            ) from None
        if self._process != os.getpid():  # a fork copies the pool, and none of its threads
            self._open()
        return self._pool.submit(work)

    async def _result(self, job: Job, given_up: Event, undo: Callable[[Any], object] | None) -> Any:
        over = asyncio.wrap_future(job.ended)
        try:
            await asyncio.wait([over])
        except asyncio.CancelledError:
            given_up.set()
            await self._given_up(job, over, undo)
            raise
        result, error = over.result()
        if error is not None:
            raise error
        return result

    async def _given_up(
        self, job: Job, over: asyncio.Future[Any], undo: Callable[[Any], object] | None
    ) -> None:
        """Return once ``job`` is over and undone, or at once if the caller is cancelled again."""
        if job.ended.cancel():
            return
        pool = self._pool
        try:
            await asyncio.wait([over])
        except asyncio.CancelledError:
            if undo is not None:
                job.ended.add_done_callback(lambda _: _undo(pool, job, undo))
            pool.abandon(job)
            raise
        undoing = None if undo is None else _undo(pool, job, undo)
        if undoing is not None:
            await asyncio.wait([asyncio.wrap_future(undoing.ended)])


def _close_own(pool: DaemonThreads, process: int) -> None:
    """Close an unreferenced pool; in a fork it has no threads, and its lock may be held for ever."""
    if process == os.getpid():
        pool.close()


def _undo(pool: DaemonThreads, job: Job, undo: Callable[[Any], object]) -> Job | None:
    """Revert the result of a finished job, in a thread; ``None`` where it has none."""
    result, error = job.ended.result()
    return pool.submit(partial(undo, result)) if error is None else None


class _End(NamedTuple, Generic[T]):
    value: T


def _advance(steps: Steps[T]) -> Wait | _End[T]:
    try:
        return next(steps)
    except StopIteration as end:
        return _End(end.value)


class Threaded(Protocol[B]):
    """An async object over a blocking one of class ``B``."""

    def in_thread(self, work: Callable[[B], T]) -> Coroutine[Any, Any, T]:
        """The result of ``work`` on the blocking object, done in a thread."""
        ...


def off_loop(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[Threaded[S], P], Coroutine[Any, Any, T]]:
    """A method of the blocking class as one of the async class: a coroutine with the same arguments."""

    @functools.wraps(method)
    async def call(self: Threaded[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.in_thread(lambda blocking: method(blocking, *args, **kwargs))

    return call
