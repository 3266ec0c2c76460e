"""A Celery pool without threads: each attempt is a coroutine on the engine's event loop.

A pool thread that only waits for the loop costs two hand-overs per task, each through the interpreter's lock:
most of the cost of a no-op task. Celery's own tasks, should any arrive, run on one thread beside the loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from billiard.einfo import ExceptionInfo
from celery.concurrency.base import BasePool, apply_target
from celery.exceptions import Reject
from kombu.serialization import loads

from fairlane.broker.app import TASK_NAME
from fairlane.broker.bundle import AttemptBody
from fairlane.core.events import Event
from fairlane.model.job import Attempt
from fairlane.telemetry.logs import get_logger

log = get_logger("pool")

POOL = "fairlane_workers.intake.loop_pool:TaskPool"

GATHER_S = 0.2
"""Seconds for which ends of attempts wait for others, to reach Celery with one wake-up of its thread."""

BUSY_PART = 0.5
"""Part of the slots from which on an end reaches Celery at once: it takes the next message for that slot."""

PENDING = "Pending"
"""The result in lists of tasks for an attempt that returns its slot before it ends."""


Start: TypeAlias = Callable[[], Coroutine[Any, Any, str]]


class Starter:
    """Starts coroutines on a loop that another thread runs: one wake-up for all of a burst.

    A wake-up costs a system call on both threads.
    """

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
        """Requeue what the loop has not started: each future raises Celery's `Reject`.

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
        # First, so that attempts that are added from now on wake the loop again.
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


class TaskPool(BasePool):  # type: ignore[misc]
    """The value of Celery's ``worker_pool``. The application's attempt task has ``start``, to start an
    attempt.

    An attempt that needs its slot no longer counts as done for Celery, which then takes the next message. The
    pool holds it until it is reported.
    """

    body_can_be_buffer = True
    signal_safe = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._others = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fairlane-other")
        self._idle = threading.Condition()
        self._busy = 0
        self._ended: deque[tuple[Future[str], _Slot]] = deque()

    def on_apply(
        self,
        target: Callable[..., Any],
        args: Any = None,
        kwargs: Any = None,
        callback: Callable[[Any], None] | None = None,
        accept_callback: Callable[[int, float], None] | None = None,
        **_: Any,
    ) -> None:
        """Start a task. ``args`` are Celery's (name, id, request, body, content type, encoding)."""
        if args[0] != TASK_NAME:
            self._others.submit(apply_target, target, args, kwargs, callback, accept_callback)
            return
        if accept_callback is not None:
            accept_callback(os.getpid(), time.monotonic())
        slot = _Slot(callback)
        with self._idle:
            self._busy += 1
        self._begin(args, slot.free).add_done_callback(lambda future: self._finish(future, slot))

    def _begin(self, args: Any, free: Callable[[], None]) -> Future[str]:
        """Start the attempt that a message names; without one, return a failed future."""
        try:
            app: Any = self.app
            begun: Future[str] = app.tasks[TASK_NAME].start(_attempt_in(*args[3:6]), free)
        except Exception as error:
            log.exception(Event.MESSAGE_UNREADABLE, id=str(args[1])[:200])
            begun = Future()
            begun.set_exception(error)
        return begun

    def on_stop(self) -> None:
        """Wait for attempts in flight; the engine's grace period bounds the wait."""
        with self._idle:
            self._idle.wait_for(lambda: self._busy == 0)
        self._others.shutdown(cancel_futures=True)

    def _finish(self, future: Future[str], slot: _Slot) -> None:
        """Report an attempt's end to Celery: soon, or at once if slots are scarce or no loop runs here."""
        self._ended.append((future, slot))
        loop = None
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
        if loop is None or self._busy >= BUSY_PART * (self.limit or 0):
            self._report_ends()
        elif len(self._ended) == 1:
            loop.call_later(GATHER_S, self._report_ends)

    def _report_ends(self) -> None:
        """Report what has ended so far. The loop's thread and Celery's may do so at the same time."""
        while True:
            try:
                future, slot = self._ended.popleft()
            except IndexError:
                return
            try:
                slot.end(future)
            finally:
                with self._idle:
                    self._busy -= 1
                    self._idle.notify_all()


class _Slot:
    """The slot of a message that Celery has taken; returned once."""

    def __init__(self, callback: Callable[[Any], None] | None) -> None:
        self._callback, self._started = callback, time.monotonic()

    def free(self) -> None:
        """Return the slot: the attempt continues without it."""
        self._report(0, PENDING)

    def end(self, future: Future[str]) -> None:
        """Return the slot of an attempt that has ended."""
        self._report(*_result(future))

    def _report(self, failed: int, value: Any) -> None:
        callback, self._callback = self._callback, None
        if callback is None:
            return
        try:
            callback((failed, value, time.monotonic() - self._started))
        except Exception:  # a defect of Celery's must end neither this attempt nor others
            log.exception(Event.SLOT_NOT_FREED)


def _attempt_in(body: bytes, content_type: str, encoding: str) -> Attempt:
    """The attempt that a message's body names."""
    if isinstance(body, AttemptBody):
        return body.attempt
    arguments: Any = loads(body, content_type, encoding, accept={"application/json"})
    return Attempt.from_message(arguments[1])


def _result(future: Future[str]) -> tuple[int, Any]:
    """Celery's (failed, value or exception). Only a bug in Fairlane makes an attempt raise."""
    error = None if future.cancelled() else future.exception()
    if error is None:
        return 0, None if future.cancelled() else future.result()
    return 1, ExceptionInfo((type(error), error, error.__traceback__))
