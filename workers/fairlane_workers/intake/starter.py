"""Hands attempts from the intake's thread to the engine's event loop: one wake-up for all of a burst."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeAlias

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

    def _begin(self) -> None:
        # First: what is added from now on wakes the loop again.
        self._woken = False
        while self._waiting:
            start, future = self._waiting.popleft()
            task = self._loop.create_task(start())
            task.add_done_callback(partial(_hand_back, future))


def _hand_back(future: Future[str], ended: asyncio.Task[str]) -> None:
    if ended.cancelled():
        future.cancel()
    elif (error := ended.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(ended.result())
