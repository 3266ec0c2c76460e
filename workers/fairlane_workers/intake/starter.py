"""Hands attempts from the intake's thread to the engine's event loop: one wake-up for all of a burst."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeAlias

from celery.exceptions import Reject

Start: TypeAlias = Callable[[], Coroutine[Any, Any, str]]


class Starter:
    """Starts coroutines on a loop that another thread runs. A wake-up costs a system call on both threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Start, Future[str]]] = deque()
        self._woken = False

    def start(self, start: Start) -> Future[str]:
        """Call ``start`` on the loop and await its coroutine there; the future gets its result or its error.

        Raises `RuntimeError` once the loop is closed.
        """
        future: Future[str] = Future()
        self._waiting.append((start, future))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._begin)
        return future

    def put_back(self) -> None:
        """Have what the loop has not begun go back to its queue: each future raises Celery's `Reject`.

        Any thread may call it, but not the loop's.
        """
        while (waiting := self._next()) is not None:
            try:
                raise Reject("the event loop of this worker stands still", requeue=True)  # noqa: TRY301
            except Reject as error:  # raised, since Celery reads its traceback
                waiting[1].set_exception(error)

    def _next(self) -> tuple[Start, Future[str]] | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def _begin(self) -> None:
        # First: what is added from now on wakes the loop again.
        self._woken = False
        while (waiting := self._next()) is not None:
            start, future = waiting
            task = self._loop.create_task(start())
            task.add_done_callback(partial(_hand_back, future))


def _hand_back(future: Future[str], ended: asyncio.Task[str]) -> None:
    if ended.cancelled():
        future.cancel()
    elif (error := ended.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(ended.result())
