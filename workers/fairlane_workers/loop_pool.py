"""A Celery pool without threads: each attempt is a coroutine on the engine's event loop.

A pool thread that only waits for the loop costs two hand-overs a task, each through the interpreter's lock;
they are most of what a no-op task costs. Celery's own tasks, should any arrive, run on one thread beside it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.concurrency.base import BasePool, apply_target
from kombu.serialization import loads

from fairlane.broker import TASK_NAME
from fairlane.job import Attempt
from fairlane.logs import get_logger

log = get_logger("pool")

POOL = "fairlane_workers.loop_pool:TaskPool"

PENDING = "Pending"
"""What an attempt has come to, to whoever lists tasks, when it gives its slot back before it ends."""


class TaskPool(BasePool):  # type: ignore[misc]
    """What ``worker_pool`` names. The application's attempt task has ``start``, which begins an attempt.

    An attempt that needs its slot no longer counts as done to Celery, which takes the next message then; it
    stays in hand here until it has been reported.
    """

    body_can_be_buffer = True
    signal_safe = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._others = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fairlane-other")
        self._idle = threading.Condition()
        self._busy = 0

    def on_apply(
        self,
        target: Callable[..., Any],
        args: Any = None,
        kwargs: Any = None,
        callback: Callable[[Any], None] | None = None,
        accept_callback: Callable[[int, float], None] | None = None,
        **_: Any,
    ) -> None:
        """Begin a task. ``args`` are Celery's (name, id, request, body, content type, encoding)."""
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
        """Start the attempt that a message names; one that names none has failed already."""
        try:
            body: Any = loads(args[3], args[4], args[5], accept={"application/json"})
            app: Any = self.app
            begun: Future[str] = app.tasks[TASK_NAME].start(Attempt.from_message(body[1]), free)
        except Exception as error:
            log.exception("message_unreadable", id=str(args[1])[:200])
            begun = Future()
            begun.set_exception(error)
        return begun

    def on_stop(self) -> None:
        """Wait for what is in hand; the engine's grace period bounds how long that takes."""
        with self._idle:
            self._idle.wait_for(lambda: self._busy == 0)
        self._others.shutdown(cancel_futures=True)

    def _finish(self, future: Future[str], slot: _Slot) -> None:
        try:
            slot.end(future)
        finally:
            with self._idle:
                self._busy -= 1
                self._idle.notify_all()


class _Slot:
    """A place among the messages that Celery has taken; given back once."""

    def __init__(self, callback: Callable[[Any], None] | None) -> None:
        self._callback, self._started = callback, time.monotonic()

    def free(self) -> None:
        """The attempt goes on without it."""
        try:
            self._tell(0, PENDING)
        except Exception:  # Celery's; the attempt is not to suffer from it
            log.exception("slot_not_freed")

    def end(self, future: Future[str]) -> None:
        """The attempt is over."""
        self._tell(*_result(future))

    def _tell(self, failed: int, value: Any) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback((failed, value, time.monotonic() - self._started))


def _result(future: Future[str]) -> tuple[int, Any]:
    """Celery's (failed, value or exception). Only a defect of ours makes an attempt raise."""
    error = None if future.cancelled() else future.exception()
    if error is None:
        return 0, None if future.cancelled() else future.result()
    return 1, ExceptionInfo((type(error), error, error.__traceback__))
