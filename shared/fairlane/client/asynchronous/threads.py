"""Runs the blocking client's work in a bounded number of threads, and waits in the event loop."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from threading import Event
from typing import Any, Concatenate, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

from fairlane.client.deployment import Steps, Wait

AT_ONCE = 256
"""Most elements that one visit to a thread fetches: as many as one round trip to Redis reads."""

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
B = TypeVar("B", covariant=True)

_abandoned: ContextVar[Event | None] = ContextVar("abandoned", default=None)


class AbandonedError(BaseException):
    """Raised in a thread whose caller was cancelled. No handler of errors catches it."""


def checkpoint() -> None:
    """Raise `AbandonedError` in a thread whose caller was cancelled."""
    event = _abandoned.get()
    if event is not None and event.is_set():
        raise AbandonedError


class Threads:
    """A bounded pool of threads, and the event loop's own way to pause."""

    def __init__(self, most: int, pause: Callable[[float], Awaitable[None]]) -> None:
        """``most`` threads are started as they are needed; ``pause`` waits for some seconds."""
        self._most, self._pause = most, pause
        self._open()

    async def call(self, work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """The result of ``work``, done in a thread.

        A cancelled caller is released as soon as the thread has ended: ``work`` gives up at its next
        checkpoint. If it had ended before that, ``undo`` takes its result back.
        """
        event, context = Event(), copy_context()
        context.run(_abandoned.set, event)
        job: Future[T] = self._submit(context.run, work)
        try:
            return await asyncio.shield(asyncio.wrap_future(job))
        except asyncio.CancelledError:
            event.set()
            await self._end(job)
            if undo is not None and not job.cancelled() and job.exception() is None:
                await self._end(self._submit(undo, job.result()))
            raise

    async def finish(self, steps: Steps[T]) -> T:
        """Do all steps, each in a thread, and return their result. No thread is held during a pause."""
        try:
            while True:
                step = await self.call(functools.partial(_advance, steps))
                if not isinstance(step, Wait):
                    return step.value
                await self._pause(step.seconds)
        finally:
            steps.close()

    async def iterate(self, steps: Iterator[T | Wait], at_once: int = AT_ONCE) -> AsyncGenerator[T, None]:
        """Yield what the steps yield; a thread fetches some at a time. No thread is held during a pause."""
        while True:
            portion = await self.call(functools.partial(_pull, steps, at_once))
            for each in portion.elements:
                yield each
            if portion.error is not None:
                raise portion.error
            if portion.then == "end":
                return
            if isinstance(portion.then, Wait):
                await self._pause(portion.then.seconds)

    def one(self) -> Threads:
        """A thread beside the pool, for work that keeps it for long."""
        return Threads(1, self._pause)

    def close(self) -> None:
        """Let the threads end; does not wait for them."""
        self._pool.shutdown(wait=False)

    def _open(self) -> None:
        self._pool = ThreadPoolExecutor(self._most, thread_name_prefix="fairlane-client")
        self._process = os.getpid()

    def _submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self._process != os.getpid():  # a fork copies the pool, and none of its threads
            self._open()
        return self._pool.submit(work, *args, **kwargs)

    @staticmethod
    async def _end(job: Future[Any]) -> None:
        """Return once ``job`` is over, however often the caller is cancelled meanwhile."""
        if job.cancel():
            return
        over = asyncio.wrap_future(job)
        while not over.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([over])
        if not over.cancelled():
            over.exception()  # it is nobody's any more: asyncio need not report it


class _End(NamedTuple, Generic[T]):
    value: T


def _advance(steps: Steps[T]) -> Wait | _End[T]:
    try:
        return next(steps)
    except StopIteration as end:
        return _End(end.value)


class _Portion(NamedTuple, Generic[T]):
    """Elements, and what follows them: a pause, more, the end, or an error."""

    elements: list[T]
    then: Wait | Literal["more", "end"]
    error: Exception | None = None


def _pull(steps: Iterator[T | Wait], at_once: int) -> _Portion[T]:
    elements: list[T] = []
    try:
        for step in steps:
            if isinstance(step, Wait):
                return _Portion(elements, step)
            elements.append(step)
            if len(elements) == at_once:
                return _Portion(elements, "more")
    except Exception as error:  # noqa: BLE001 - raised in the event loop, after the elements before it
        return _Portion(elements, "end", error)
    return _Portion(elements, "end")


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
